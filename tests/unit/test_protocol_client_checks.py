"""The client's own innocence: workers that were late or full, hosts near or above what they can carry."""

from __future__ import annotations

import re
from dataclasses import replace

import pyarrow as pa
import pytest

from raybench.analysis.client_load import NodeLoad
from raybench.protocol.client_checks import (
    Asked,
    asked_by_host,
    check_rooflines,
    check_workers_health,
    expected_load,
    expected_loads,
)
from raybench.protocol.verdict import Finding
from raybench.records.roofline import Roofline
from raybench.records.schema import WORKER
from raybench.scenario.levels import Level
from raybench.scenario.load import parse_scenario
from raybench.scenario.plan import Plan, PlannedSearch, Point, make_plan


def health(**columns: float | None) -> pa.Table:
    """Two seconds of two workers; `columns` are those of the second."""
    idle = {"cpu_share": 0.2, "loop_lag_ms_max": 1.0, "send_delay_ms_max": 1.0, "unread_streams_share": 0.01}
    rows = [{"worker": "w000", **idle}] * 2 + [{"worker": "w001", **idle, **columns}] * 2
    return pa.Table.from_pylist(rows, schema=WORKER)


def of_health(table: pa.Table | None) -> dict[str, Finding]:
    return {finding.code: finding for finding in check_workers_health(table)}


def test_a_client_with_time_to_spare_is_no_finding() -> None:
    assert of_health(None) == of_health(health()) == {}
    unknown = dict.fromkeys(("cpu_share", "loop_lag_ms_max", "send_delay_ms_max", "unread_streams_share"))
    assert of_health(health(**unknown)) == {}


def test_a_worker_that_filled_its_core_voids_the_point() -> None:
    found = of_health(health(cpu_share=0.97))
    assert found["client_saturated"].severity == "void"
    assert found["client_saturated"].data["worker"] == "w001"
    assert "97% of a core" in found["client_saturated"].message


@pytest.mark.parametrize(
    ("column", "value", "code", "words"),
    [
        ("cpu_share", 0.8, "client_busy", "80% of a core"),
        ("loop_lag_ms_max", 120.0, "client_late", "120 ms late"),
        ("send_delay_ms_max", 90.0, "client_starts_late", "90 ms after they were due"),
        ("unread_streams_share", 0.7, "client_unread", "unread bytes in 70% of the streams"),
    ],
)
def test_a_busy_or_late_worker_is_told_of(column: str, value: float, code: str, words: str) -> None:
    [(found_code, found)] = of_health(health(**{column: value})).items()
    assert (found_code, found.severity) == (code, "warning")
    assert "w001" in found.message
    assert words in found.message


def roofline(**changes: object) -> Roofline:
    fields: dict[str, object] = {
        "host": "a",
        "client": "wire",
        "cores": 2,
        "servers": 1,
        "stamp_error_ms_max": 25.0,
        "streams": 1000,
        "streams_limited_by": "client CPU",
        "tokens_per_s": 40_000.0,
        "tokens_limited_by": "node CPU",
        "others_node_share": 0.0,
        "raybench_version": "1",
        "measured_unix_ns": 0,
        "steps": (),
    }
    return Roofline(**{**fields, **changes})  # type: ignore[arg-type]


def of_load(streams: int, tokens_per_s: float | None, known: Roofline | None) -> list[Finding]:
    stored = {} if known is None else {"a": known}
    return list(check_rooflines({"a": NodeLoad("wire", streams, tokens_per_s)}, stored))


def test_below_70_percent_of_both_rooflines_is_no_finding() -> None:
    assert of_load(700, 28_000.0, roofline()) == []


@pytest.mark.parametrize(
    ("streams", "tokens_per_s", "code", "severity", "words"),
    [
        (701, 0.0, "client_busy", "warning", "701 streams and 0 tokens/s, 70% of its roofline in streams"),
        (1000, 0.0, "client_busy", "warning", "100% of its roofline in streams (1,000 streams, 40,000 tokens/s)"),
        (1001, None, "client_saturated", "void", "up to 1,001 streams, 100% of its roofline"),
        (10, 30_000.0, "client_busy", "warning", "75% of its roofline in tokens_per_s"),
        (900, 48_000.0, "client_saturated", "void", "120% of its roofline in tokens_per_s"),
    ],
)
def test_the_larger_share_decides(
    streams: int, tokens_per_s: float | None, code: str, severity: str, words: str
) -> None:
    [finding] = of_load(streams, tokens_per_s, roofline())
    assert (finding.code, finding.severity) == (code, severity)
    assert words in finding.message
    assert finding.data["in_flight_peak"] == streams


@pytest.mark.parametrize(("others", "severity"), [(None, "void"), (0.1, "void"), (0.11, "warning")])
def test_a_roofline_that_was_measured_on_a_busy_host_voids_nothing(others: float | None, severity: str) -> None:
    [finding] = of_load(1500, None, roofline(others_node_share=others))
    assert (finding.code, finding.severity) == (
        "client_saturated" if severity == "void" else "client_busy",
        severity,
    )
    why = "not void, since other work took up to 11% of the CPU of a while that was measured"
    assert (why in finding.message) == (severity == "warning")
    assert finding.data["roofline_others_node_share"] == others


def test_between_70_and_100_percent_a_busy_host_changes_nothing() -> None:
    assert of_load(800, None, roofline(others_node_share=0.5)) == [
        replace(one, data=one.data | {"roofline_others_node_share": 0.5}) for one in of_load(800, None, roofline())
    ]


def test_a_host_without_a_roofline_is_a_note_with_the_way_out() -> None:
    [finding] = of_load(10_000, 1e6, None)
    assert (finding.code, finding.severity) == ("roofline_unknown", "note")
    assert "raybench roofline" in finding.message


def test_the_roofline_of_another_client_says_nothing() -> None:
    [finding] = of_load(10_000, 1e6, roofline(client="plain"))
    assert (finding.code, finding.severity) == ("roofline_unknown", "note")
    assert "with the client wire (one with plain is)" in finding.message


def test_what_could_not_be_measured_judges_nothing() -> None:
    assert of_load(10_000, 1e6, roofline(streams=None, tokens_per_s=None)) == []


# Before anything is sent


def point(level: Level, output_tokens: int = 16) -> Point:
    return Point(
        f"arm/w/{level.name}",
        "arm",
        "w",
        level.concurrency,
        8,
        16,
        output_tokens,
        None,
        None,
        None,
        rate_per_s=level.rate_per_s,
        trace_speed=level.trace_speed,
    )


def test_streams_and_rates_are_spread_over_the_hosts_of_the_workers() -> None:
    hosts = ["a", "a", "b"]
    assert asked_by_host([point(Level(10))], hosts) == {"a": Asked(7), "b": Asked(3)}
    rate = point(Level(rate_per_s=6.0), output_tokens=100)
    assert asked_by_host([rate], hosts) == {"a": Asked(None, 400.0), "b": Asked(None, 200.0)}
    both = [point(Level(10)), rate, point(Level(4)), point(Level(trace_speed=2.0))]
    assert asked_by_host(both, hosts) == {"a": Asked(7, 400.0), "b": Asked(3, 200.0)}


def test_what_a_trace_asks_of_a_host_is_not_known() -> None:
    assert asked_by_host([point(Level(trace_speed=2.0))], ["a"]) == {"a": Asked()}
    assert expected_load({"a": Asked()}, {"a": roofline()}) == []


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Asked(700), None),
        (Asked(701), "701 streams, 70% of the 1,000 .*limited by client CPU.* 70% a point gets a warning"),
        (Asked(1500), "150% of the 1,000 .*points would be void; use more client nodes, or fewer streams"),
        (Asked(None, 28_000.0), None),
        (Asked(None, 60_000.0), "60,000 tokens/s, 150% of the 40,000 .*limited by node CPU.* or a lower rate"),
    ],
)
def test_too_much_for_a_host_is_told_before_the_run(asked: Asked, words: str | None) -> None:
    told = expected_load({"a": asked, "never measured": Asked(10**6, 1e9)}, {"a": roofline()})
    assert len(told) == (words is not None)
    if words is not None:
        assert re.search(words, told[0])


def test_too_much_for_a_busy_host_is_told_as_the_warning_that_it_will_be() -> None:
    [told] = expected_load({"a": Asked(1500)}, {"a": roofline(others_node_share=0.5)})
    assert "its points would get a warning, and not be void, since other work took up to 50%" in told


def plan(*points: Point, searches: tuple[PlannedSearch, ...] = ()) -> Plan:
    return Plan(points, searches, {})


def levels(*concurrencies: int) -> Plan:
    return plan(*(point(Level(concurrency)) for concurrency in concurrencies))


def test_the_plan_names_the_points_that_are_too_much() -> None:
    stored = {"a": roofline(), "b": roofline(host="b", streams=400)}
    assert list(expected_loads(levels(500, 600, 2000), stored, None)) == ["arm/w/c600", "arm/w/c2000"]
    assert list(expected_loads(levels(500, 600, 2000), stored, 1)) == ["arm/w/c500", "arm/w/c600", "arm/w/c2000"]
    # Two more hosts that were never measured take their share.
    assert list(expected_loads(levels(1000), stored, 4)) == []
    assert expected_loads(levels(10**6), {}, None) == {}


def test_the_plan_names_the_rates_that_are_too_much_for_the_host_with_the_fewest_tokens() -> None:
    stored = {"a": roofline(), "b": roofline(host="b", streams=400, tokens_per_s=90_000.0)}
    rates = plan(*(point(Level(rate_per_s=rate), output_tokens=1000) for rate in (20.0, 50.0)))
    [(point_id, [told])] = expected_loads(rates, stored, 1).items()
    assert point_id == "arm/w/r50"
    assert told.startswith("a is to carry 50,000 tokens/s, 125% of the 40,000")


def test_a_search_is_held_against_the_roofline_at_its_maximum() -> None:
    text = """
name: s
arms: {arm: {url: "http://a:1"}}
workloads:
  - {name: w, input_tokens: 16, output_tokens: 16, search: {maximum: 4096, knee: {}}}
corpus: {synthetic: {}}
"""
    made = make_plan(parse_scenario(text, "s.yaml"))
    assert made.points == ()
    assert list(expected_loads(made, {"a": roofline()}, None)) == ["arm/w/c4096"]
