"""The metrics of requests and points, by the exact inputs of the field cases."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from request_rows import failed, ns, request, table

from raybench.analysis import metrics
from raybench.analysis.in_flight import Window, handover_gaps_ms, in_flight
from raybench.analysis.point_metrics import POINT_METRICS, point_metrics


def test_o_t1_tpot_divides_by_tokens_and_chunks_have_gaps_of_their_own() -> None:
    chunk_s = [1.0 + 0.04 * k for k in range(11)]
    row = request(0, 0.0, 1.4, first_s=1.0, last_s=1.4, output_tokens=31)
    row |= {"chunk_ns": [ns(s) for s in chunk_s], "chunk_tokens": [1] + [3] * 10, "first_chunk_tokens": 1}
    rows = table([row])
    assert metrics.tpot_ms(rows).to_pylist() == [pytest.approx(400 / 30)]
    assert metrics.chunk_gap_ms(rows).tolist() == pytest.approx([40.0] * 10)
    assert metrics.tokens_per_chunk(rows) == pytest.approx(31 / 11)
    columns = point_metrics(rows)
    assert columns["tpot_ms_mean"] == pytest.approx(13.333, abs=0.001)
    assert columns["chunk_gap_ms_mean"] == pytest.approx(40.0)
    assert not [name for name in columns if "itl" in name]


def test_o_t1_a_first_chunk_of_four_tokens_shifts_the_result_and_is_kept() -> None:
    row = request(0, 0.0, 1.4, first_s=1.0, last_s=1.4, output_tokens=34, first_chunk_tokens=4)
    rows = table([row])
    assert metrics.tpot_ms(rows).to_pylist() == [pytest.approx(12.12, abs=0.005)]
    assert rows["first_chunk_tokens"].to_pylist() == [4]


def test_o_t1_one_token_has_no_tpot_and_none_of_its_statistics() -> None:
    rows = table([request(0, 0.0, 1.0, output_tokens=1), request(1, 0.0, 2.0, first_s=1.0, output_tokens=11)])
    assert metrics.tpot_ms(rows).to_pylist() == [None, 100.0]
    columns = point_metrics(rows)
    assert (columns["tpot_ms_n"], columns["tpot_ms_mean"], columns["tpot_ms_p95"]) == (1, 100.0, 100.0)
    alone = point_metrics(table([request(0, 0.0, 1.0, output_tokens=1)]))
    assert (alone["tpot_ms_n"], alone["tpot_ms_mean"], alone["tpot_ms_max"]) == (0, None, None)


def o_t3() -> pa.Table:
    good = [request(k, 0.0, 10.0, first_s=1.0, output_tokens=512) for k in range(8)]
    refused = failed(8, 0.0, 0.005, "http_error", "http_503")
    broken = failed(9, 0.0, 4.0, "bad_stream", "broken_stream", partial_output_tokens=200)
    return table([*good, refused, broken])


def test_o_t3_failed_requests_stay_in_n_and_leave_latency_and_throughput_alone() -> None:
    columns = point_metrics(o_t3(), concurrency=10)
    assert (columns["requests"], columns["requests_ok"], columns["requests_failed"]) == (10, 8, 2)
    assert columns["failure_share"] == 0.20
    assert (columns["ttft_ms_n"], columns["tpot_ms_n"], columns["e2e_ms_n"]) == (8, 8, 8)
    assert columns["e2e_ms_mean"] == 10_000.0
    assert columns["wall_s"] == 10.0
    assert columns["output_tokens_per_s"] == 409.6
    assert columns["failed_output_tokens"] == 200
    assert columns["errors_by_class"] == {"broken_stream": 1, "http_503": 1}


def test_a_failed_request_gives_no_sample_even_when_its_stamps_are_whole() -> None:
    row = request(0, 0.0, 1.0, first_s=0.5, output_tokens=5) | {"outcome": "engine_error"}
    rows = table([row])
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        assert metrics.LATENCIES[name](rows).to_pylist() == [None]


def test_a_point_without_a_successful_request_has_no_mean_and_no_throughput_but_zero() -> None:
    columns = point_metrics(table([failed(0, 0.0, 1.0, "timeout", "timeout_idle")]))
    assert (columns["ttft_ms_mean"], columns["e2e_ms_p95"], columns["accept_length"]) == (None, None, None)
    assert (columns["output_tokens_per_s"], columns["requests_per_s"]) == (0.0, 0.0)


def test_no_requests_at_all_leave_everything_unknown_that_is_not_a_count() -> None:
    columns = point_metrics(table([]), concurrency=4)
    assert columns["requests"] == 0
    for name in ("wall_s", "output_tokens_per_s", "failure_share", "prefix_hit_rate", "in_flight_peak"):
        assert columns[name] is None


def test_requests_of_the_prewarm_are_in_no_metric() -> None:
    rows = table([request(0, 5.0, 6.0), request(0, 0.0, 9.0, phase="prewarm")])
    assert point_metrics(rows)["wall_s"] == 1.0


def test_a_hit_rate_counts_only_requests_that_report_and_unknown_is_not_zero() -> None:
    known = [request(0, 0, 1, cached_tokens=512), request(1, 0, 1, cached_tokens=0)]
    silent = request(2, 0, 1)
    assert metrics.prefix_hit_rate(table([*known, silent])) == 0.25
    assert metrics.prefix_hit_rate(table([silent])) is None
    assert metrics.cached_tokens(table([silent])) is None
    assert metrics.cached_tokens(table([known[1]])) == 0


def test_token_counts_that_the_server_did_not_give_make_throughput_unknown() -> None:
    rows = table([request(0, 0, 1, output_tokens=8), request(1, 0, 1, output_tokens=8, tokens_source="estimated")])
    assert metrics.output_tokens_per_s(rows) is None
    assert metrics.tpot_ms(rows).to_pylist()[1] is None
    assert metrics.input_tokens_per_s(table([request(0, 0, 1) | {"input_tokens": None}])) is None


def test_accept_length_and_preemptions_are_unknown_where_nobody_reports_them() -> None:
    rows = [
        request(0, 0, 1, accept_length=2.0, retractions=1),
        request(1, 0, 1, accept_length=3.0),
        request(2, 0, 1),
    ]
    columns = point_metrics(table(rows))
    assert (columns["accept_length"], columns["preemptions"]) == (2.5, 1)
    silent = point_metrics(table(rows[2:]))
    assert (silent["accept_length"], silent["preemptions"]) == (None, None)


def test_queue_delays_are_told_apart_from_asked_over_connected_to_sent() -> None:
    row = request(0, 1.0, 2.0) | {"asked_ns": ns(0.5), "connected_ns": ns(0.9), "scheduled_ns": ns(0.25)}
    rows = table([row])
    assert metrics.connect_wait_ms(rows).to_pylist() == [400.0]
    assert metrics.send_wait_ms(rows).to_pylist() == [100.0]
    assert metrics.send_delay_ms(rows).to_pylist() == [750.0]
    assert metrics.ttft_scheduled_ms(rows).to_pylist() == [1750.0]


def test_gaps_are_never_taken_between_the_chunks_of_two_requests() -> None:
    rows = table(
        [
            request(0, 0, 1) | {"chunk_ns": [ns(0.1), ns(0.2)], "chunk_tokens": [1, 1]},
            request(1, 0, 9) | {"chunk_ns": [], "chunk_tokens": []},
            request(2, 0, 9) | {"chunk_ns": [ns(5.0), ns(5.5)], "chunk_tokens": [1, None]},
            request(3, 0, 9),
        ]
    )
    assert metrics.chunk_gap_ms(rows).tolist() == pytest.approx([100.0, 500.0])
    assert metrics.tokens_per_chunk(rows) == 1.0


def test_in_flight_peak_and_its_share_of_the_time() -> None:
    waves = [request(k, wave * 1.0, wave + 1.0) for wave in range(2) for k in range(4)]
    columns = point_metrics(table([*waves, request(9, 2.0, 4.0)]), concurrency=4)
    assert columns["in_flight_peak"] == 4
    assert columns["in_flight_share"] == 0.5
    assert columns["in_flight_share_unsent"] == 1.0


def test_a_point_of_one_wave_held_its_level_if_it_reached_it() -> None:
    rows = [request(k, 0.01 * k, 5.0) for k in range(3)]
    assert point_metrics(table(rows), concurrency=3)["in_flight_share_unsent"] == 1.0
    rows[2] = request(2, 6.0, 7.0)
    assert point_metrics(table(rows), concurrency=3)["in_flight_share_unsent"] == 0.0


def test_the_steady_window_leaves_out_the_ramp_and_the_drain() -> None:
    ramp = [request(k, 0.05 * k, 2.0, first_s=1.5, output_tokens=2) for k in range(20)]
    rest = [request(20 + k, 2.0, 3.0 + k, first_s=2.5, output_tokens=2) for k in range(20)]
    for row in [*ramp, *rest]:
        row |= {"chunk_ns": [row["first_token_ns"], row["last_token_ns"]], "chunk_tokens": [1, 1]}
    columns = point_metrics(table([*ramp, *rest]), concurrency=20)
    # 19 of 20 are in flight from the 19th send (0.9 s) until the second wave's second end (4.0 s)
    assert columns["steady_start_s"] == pytest.approx(0.9)
    assert columns["steady_end_s"] == pytest.approx(4.0)
    assert columns["steady_share"] == pytest.approx(3.1 / 22.0)
    assert columns["steady_requests"] == 22
    # 20 first tokens at 1.5 s, 20 last ones at 2.0 s, 20 first ones at 2.5 s, one each at 3.0 and 4.0 s
    assert columns["output_tokens_per_s_steady"] == pytest.approx(62 / 3.1)
    assert columns["input_tokens_per_s_steady"] == pytest.approx(40 * 1024 / 3.1)
    assert columns["ttft_ms_p95_steady"] == 1450.0


def test_16_of_17_in_flight_are_fewer_than_95_percent() -> None:
    flow = in_flight(np.zeros(16, np.int64), np.ones(16, np.int64))
    assert (flow.steady_window(17), flow.steady_window(16)) == (None, Window(0, 1))


@pytest.mark.parametrize(("each_s", "told"), [(2.5, True), (5.0, False)])
def test_a_steady_rate_has_an_interval_if_its_slices_outlive_a_request(each_s: float, told: bool) -> None:
    """40 s of one request after the other, cut into slices of 4 s."""
    rows = []
    for k in range(int(40 / each_s)):
        row = request(k, k * each_s, (k + 1) * each_s, output_tokens=2)
        rows.append(row | {"chunk_ns": [row["first_token_ns"], row["last_token_ns"]], "chunk_tokens": [1, 1]})
    columns = point_metrics(table(rows), concurrency=1)
    assert columns["output_tokens_per_s_steady"] == 2 / each_s
    assert (columns["output_tokens_per_s_steady_low"] is not None) == told


def test_chunks_without_token_counts_leave_steady_throughput_unknown() -> None:
    row = request(0, 0.0, 2.0, first_s=1.0, output_tokens=2)
    row |= {"chunk_ns": [ns(1.0), ns(2.0)], "chunk_tokens": [1, None]}
    assert point_metrics(table([row]), concurrency=1)["output_tokens_per_s_steady"] is None
    del row["chunk_ns"], row["chunk_tokens"]
    assert point_metrics(table([row]), concurrency=1)["output_tokens_per_s_steady"] is None


def test_wall_of_two_hosts_is_taken_on_the_aligned_time_line() -> None:
    rows = table([request(0, 1000.0, 1001.0), request(1, 7.0, 8.0)])
    aligned = rows.append_column("sent_unix_ns", pa.array([ns(50), ns(50.5)]))
    aligned = aligned.append_column("end_unix_ns", pa.array([ns(51), ns(51.5)]))
    columns = point_metrics(aligned, concurrency=2)
    assert (columns["wall_s"], columns["in_flight_peak"]) == (1.5, 2)
    assert columns["e2e_ms_mean"] == 1000.0


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=30))
def test_in_flight_is_the_number_of_overlapping_requests_at_any_moment(lives: list[tuple[int, int]]) -> None:
    spans = [(start, start + length) for start, length in lives]
    columns = point_metrics(table([request(k, a, b) for k, (a, b) in enumerate(spans)]), concurrency=1)
    peak = max(sum(a <= t < b for a, b in spans) for t in range(101))
    assert columns["in_flight_peak"] == peak


def test_a_point_has_exactly_the_columns_that_the_schema_names() -> None:
    for rows in (table([]), o_t3()):
        assert list(point_metrics(rows, 10)) and set(point_metrics(rows, 10)) == set(POINT_METRICS)


@given(
    concurrency=st.integers(1, 5),
    services=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    gaps=st.lists(st.integers(0, 9), min_size=40, max_size=40),
)
def test_hand_over_gaps_pair_ends_and_sends_without_knowing_the_slots(
    concurrency: int, services: list[int], gaps: list[int]
) -> None:
    """A closed loop played through: equal gaps come out exactly; unequal ones keep their number and their sum."""
    free = [0] * concurrency
    sent, end = [], []
    true_gaps = []
    for number, service in enumerate(services):
        free.sort()
        ready = free.pop(0)
        gap = 0 if number < concurrency else gaps[number % 40]
        if number >= concurrency:
            true_gaps.append(gap)
        sent.append(ready + gap)
        end.append(ready + gap + service)
        free.append(end[-1])
    found = handover_gaps_ms(np.array(sent) * 10**6, np.array(end) * 10**6, concurrency)
    assert len(found) == len(true_gaps)
    assert (found >= 0).all()
    assert sum(found) == pytest.approx(sum(true_gaps))


def test_the_offered_rate_of_several_hosts_counts_requests_that_never_left() -> None:
    """Each host's own stamps begin somewhere else; a request that was not sent is placed by its end."""
    sent = [request(k, k, k + 0.5, scheduled_ns=ns(k)) for k in range(4)]
    other = failed(4, 4, 5, "connect_error", "connect_error", scheduled_ns=ns(4), sent_ns=None)
    rows = [row | {"sent_unix_ns": int(str(row["sent_ns"])) + ns(10**6)} for row in sent]
    rows = [row | {"end_unix_ns": int(str(row["end_ns"])) + ns(10**6)} for row in rows]
    moved = {name: int(str(other[name])) - ns(777) for name in ("scheduled_ns", "end_ns", "asked_ns")}
    rows.append(other | moved | {"sent_unix_ns": None, "end_unix_ns": ns(5 + 10**6)})
    schema = (
        table([]).schema.append(pa.field("sent_unix_ns", pa.int64())).append(pa.field("end_unix_ns", pa.int64()))
    )
    whole = pa.Table.from_pylist(rows, schema=schema)
    assert metrics.offered_rate_per_s(whole) == 1.0
    assert metrics.sent_rate_per_s(whole) == 1.0
    assert metrics.late_sends(whole) == 1
