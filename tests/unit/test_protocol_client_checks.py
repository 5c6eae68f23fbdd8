"""The client's own innocence: workers that were late or full, hosts near or above what they can carry."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from raybench.analysis.client_load import NodeLoad
from raybench.protocol.client_checks import (
    check_rooflines,
    check_workers_health,
    expected_load,
    expected_loads,
    streams_by_host,
)
from raybench.protocol.findings import Finding
from raybench.records.roofline import Roofline
from raybench.records.schema import WORKER
from raybench.scenario.plan import Plan, Point


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


def test_streams_are_spread_over_the_hosts_of_the_workers() -> None:
    assert streams_by_host(10, ["a", "a", "b"]) == {"a": 7, "b": 3}


@pytest.mark.parametrize(
    ("streams", "words"),
    [(700, None), (701, "701 streams, 70% of the 1,000"), (1500, "150% of the 1,000 .*points would be void")],
)
def test_too_many_streams_for_a_host_are_told_before_the_run(streams: int, words: str | None) -> None:
    told = expected_load({"a": streams, "never measured": 10**6}, {"a": roofline()})
    assert len(told) == (words is not None)
    if words is not None:
        assert re.search(words, told[0])
        assert "limited by client CPU" in told[0]
        assert "use more client nodes" in told[0]


def plan(*levels: int) -> Plan:
    points = [Point(f"arm/w/c{level}", "arm", "w", level, level, 16, 16, None, None, None) for level in levels]
    return Plan(tuple(points), {})


def test_the_plan_names_the_points_that_are_too_much() -> None:
    stored = {"a": roofline(), "b": roofline(host="b", streams=400)}
    assert list(expected_loads(plan(500, 600, 2000), stored, None)) == ["arm/w/c600", "arm/w/c2000"]
    assert list(expected_loads(plan(500, 600, 2000), stored, 1)) == ["arm/w/c500", "arm/w/c600", "arm/w/c2000"]
    # Two more hosts that were never measured take their share.
    assert list(expected_loads(plan(1000), stored, 4)) == []
    assert expected_loads(plan(10**6), {}, None) == {}
