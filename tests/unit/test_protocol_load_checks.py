"""The load that was asked: each request with one record, a concurrency that was held, a schedule that was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from attempt_evidence import BEFORE, N, after, broken, evidence, findings, only, rows, table, verdict
from request_rows import failed, ns, request

from raybench.analysis.metrics import late_sends, offered_rate_per_s, sent_rate_per_s
from raybench.load.pacer import due_ns_of_rate
from raybench.protocol.load_checks import check_growth, check_schedule
from raybench.protocol.target import ServerView
from raybench.protocol.verdict import Finding
from raybench.scenario.arrivals import Arrivals
from raybench.scenario.schema import Guards

Rows = Sequence[dict[str, Any]]


def stamps(sent: Rows) -> pa.Table:
    """Only what the check of growth reads: a table of whole rows takes longer to make than to judge."""
    names = {"sent_unix_ns": "sent_ns", "end_unix_ns": "end_ns", "scheduled_ns": "scheduled_ns"}
    return pa.table({name: [row[source] for row in sent] for name, source in names.items()})


def on_schedule(scheduled_s: Sequence[float], delays_s: Sequence[float], *, takes_s: float = 0.5) -> Rows:
    return [
        request(ticket, at + delay, at + delay + takes_s, scheduled_ns=ns(at))
        for ticket, (at, delay) in enumerate(zip(scheduled_s, delays_s, strict=True))
    ]


def of_open_loop(sent: Rows) -> list[Finding]:
    return [*check_schedule(table(sent), 0.1), *check_growth(table(sent))]


EVERY_TENTH = [k / 10 for k in range(200)]


def test_a_schedule_that_is_kept_and_answered_has_no_finding() -> None:
    assert of_open_loop(on_schedule(EVERY_TENTH, [0.001] * 200)) == []


def test_a_closed_loop_has_no_schedule_to_keep() -> None:
    rows = [request(k, k / 10, k / 10 + 0.5) for k in range(200)]
    assert of_open_loop(rows) == []
    assert late_sends(table(rows)) is None
    assert (offered_rate_per_s(table(rows)), sent_rate_per_s(table(rows))) == (None, None)


@pytest.mark.parametrize(("late", "severity"), [(1, None), (2, "warning"), (20, "warning"), (21, "void")])
def test_late_sends_are_told_from_one_percent_and_void_from_ten(late: int, severity: str | None) -> None:
    found = list(check_schedule(table(on_schedule(EVERY_TENTH, [0.08] * late + [0.02] * (200 - late))), 0.1))
    assert [one.severity for one in found] == ([] if severity is None else [severity])
    for one in found:
        assert one.code == "schedule_not_kept"
        assert f"{late} of 200 requests were sent more than 20 ms after their time or never (at worst 80 ms)" in (
            one.message
        )
        assert (one.data["late"], one.data["late_for_want_of_a_connection"]) == (late, 0)
        assert one.data["send_delay_ms_p99"] == pytest.approx(20 if late == 2 else 80)


def test_what_waited_for_a_connection_is_told_from_what_waited_for_the_client() -> None:
    rows = on_schedule(EVERY_TENTH, [0.08] * 50 + [0.0] * 150)
    waited = [row | {"asked_ns": row["scheduled_ns"]} for row in rows[:30]]
    (found,) = check_schedule(table([*waited, *rows[30:]]), 0.1)
    assert found.data["late_for_want_of_a_connection"] == 30
    assert "30 of them waited for a connection, 20 for the client itself" in found.message


def test_a_request_that_never_left_did_not_keep_its_time() -> None:
    never = {"sent_ns": None, "connected_ns": None, "sent_unix_ns": None}
    rows = [
        failed(k, k / 10, k / 10 + 1, "connect_error", "connect_error", scheduled_ns=ns(k / 10), **never)
        for k in range(40)
    ]
    (found,) = of_open_loop(rows)
    assert (found.code, found.severity) == ("schedule_not_kept", "void")
    assert "40 of 40 requests" in found.message and "none was sent" in found.message
    assert found.data["late_for_want_of_a_connection"] == 40


def test_a_server_that_falls_behind_is_told_with_both_rates() -> None:
    """Ten a second come, eight are completed: the k-th ends at k / 8."""
    at = 1000.0  # no clock of a run begins at zero
    rows = [request(k, at + k / 10, at + k / 8 + 0.1, scheduled_ns=ns(at + k / 10)) for k in range(400)]
    (found,) = of_open_loop(rows)
    assert (found.code, found.severity) == ("rate_not_sustained", "warning")
    assert "10 requests/s were sent and 8.02 completed, so that in flight grew from 41 to 81" in found.message
    assert "overloaded server" in found.message


def test_a_point_that_ends_while_the_load_builds_up_is_told_as_that() -> None:
    (found,) = of_open_loop(on_schedule(EVERY_TENTH, [0.0] * 200, takes_s=15))
    assert found.code == "rate_not_sustained"
    assert "was still building up" in found.message


@pytest.mark.parametrize(("rate", "takes_s"), [(2.0, 1.0), (40.0, 0.05), (40.0, 1.0), (10.0, 2.0)])
def test_chance_alone_is_told_as_growth_less_than_once_in_a_hundred(rate: float, takes_s: float) -> None:
    """Poisson arrivals at an engine that answers each after the same time, however many there are."""
    told = 0
    for seed in range(300):
        due_s = due_ns_of_rate(Arrivals(seed=seed), rate, 400) / 1e9
        rows = on_schedule(due_s.tolist(), [0.0] * 400, takes_s=takes_s)
        told += bool(list(check_growth(stamps(rows))))
    assert told < 3


def test_rates_are_those_of_the_stamps() -> None:
    rows = table(on_schedule([0, 1, 2, 3, 4], [0, 0, 0, 0, 4]))
    assert offered_rate_per_s(rows) == 1.0
    assert sent_rate_per_s(rows) == 0.5
    assert late_sends(rows) == 1


def test_o_r4_a_lost_worker_voids_the_point_with_planned_sent_and_received() -> None:
    lost = evidence(
        rows()[:4],
        lost_workers={"w001": "its process is gone"},
        leased=5,
        after=ServerView("pid-1", after(requests=5)),
    )
    found = findings(lost)
    assert found["worker_lost"].severity == "void"
    assert found["worker_lost"].message == (
        "client lost: worker w001 (its process is gone); 6 requests planned,"
        " 5 handed out to be sent, 4 with a record"
    )
    assert found["worker_lost"].data == {"planned": 6, "handed_out": 5, "received": 4, "worker": "w001"}
    assert "requests_missing" not in found
    assert verdict(lost).decision == "void", "fresh text cures no lost worker"


def test_a_request_without_a_record_is_missed() -> None:
    found = findings(evidence(rows()[:5]))
    assert found["requests_missing"].message == "5 records for 6 planned requests"


def test_a_request_with_two_records_is_doubled() -> None:
    whole = rows()
    found = findings(evidence([*whole[:5], whole[4]]))
    assert found["requests_doubled"].severity == "void"


def test_a_part_that_was_not_closed_voids_the_point() -> None:
    torn = only(evidence(torn_parts=("w000.arrows: file not closed",)), "part_torn")
    assert (torn.severity, torn.data) == ("void", {"part": "w000.arrows: file not closed"})


def test_a_lost_worker_s_torn_part_is_not_told_twice() -> None:
    lost = evidence(torn_parts=("w1.arrows",), lost_workers={"w1": "gone"})
    assert list(findings(lost)) == ["worker_lost"]


def test_a_concurrency_that_was_never_reached_is_void() -> None:
    whole = [row | {"sent_ns": ns(number), "end_ns": ns(number + 1)} for number, row in enumerate(rows())]
    found = only(evidence(whole), "concurrency_not_reached")
    assert found.message == "at most 1 requests were in flight, asked 2"
    assert found.data["level"] == 2


def test_a_concurrency_that_was_exceeded_is_void() -> None:
    found = only(evidence(rows({5: {"sent_ns": ns(0.5)}})), "concurrency_exceeded")
    assert found.message == "at most 3 requests were in flight, asked 2"


def test_a_concurrency_that_was_not_held_long_enough_is_void_where_a_share_is_asked() -> None:
    late = rows({2: {"sent_ns": ns(1.8)}})
    assert findings(evidence(late)) == {}
    found = only(evidence(late), "concurrency_not_held", Guards(in_flight_share_min=0.95))
    assert found.data["share_at_level"] == pytest.approx(0.6)


def test_records_without_a_time_of_sending_prove_no_concurrency() -> None:
    refused = rows({n: broken(n, 0, 1, "connect_error", "connect_error", sent_ns=None) for n in range(N)})
    found = findings(evidence(refused, after=ServerView("pid-1", BEFORE)), Guards(success_rate_min=0.0))
    assert found["concurrency_not_verified"].severity == "void"
