"""A recorded trace for an open loop: when each request came and, where the file says so, how long it was.

JSON Lines (one object a line) or CSV with a heading. Known fields, those of common public traces:
arrival `timestamp_s` (seconds) or `timestamp` (milliseconds, as Mooncake's traces) or `TIMESTAMP` (a date
and time, as Azure's); lengths `input_tokens`, `input_length` or `ContextTokens`, and `output_tokens`,
`output_length` or `GeneratedTokens`. Others are ignored. Contacts nothing.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path

from raybench.errors import ConfigError, ConfigProblem
from raybench.scenario.load import similar_file
from raybench.scenario.schema import Scenario
from raybench.scenario.workload import Workload

INPUT_FIELDS = ("input_tokens", "input_length", "ContextTokens")
OUTPUT_FIELDS = ("output_tokens", "output_length", "GeneratedTokens")
TIME_FIELDS = ("timestamp_s", "timestamp", "TIMESTAMP")

Line = tuple[int, Mapping[str, object]]


@dataclass(frozen=True)
class Trace:
    """The entries that a workload sends, in order. arrival_s: seconds after the first, never descending."""

    path: str
    arrival_s: tuple[float, ...]
    input_tokens: tuple[int, ...]
    output_tokens: tuple[int, ...]

    @property
    def span_s(self) -> float:
        """From the first arrival to the last."""
        return self.arrival_s[-1]


def read_traces(scenario: Scenario, base: Path, *, here_only: bool = False) -> dict[str, Trace]:
    """By workload, the traces of a scenario whose relative paths start at `base`.

    here_only: leave out absolute paths that this machine does not have: they are the coordinator's.
    Raises ConfigError for a file that cannot be read and for every entry that cannot be sent.
    """
    traces = {}
    for workload in scenario.workloads:
        if workload.trace is None:
            continue
        path = base / workload.trace.path
        if here_only and Path(workload.trace.path).is_absolute() and not path.exists():
            continue
        traces[workload.name] = read_trace(path, workload)
    return traces


def read_trace(path: Path, workload: Workload) -> Trace:
    """The first entries of a file, as many as the workload asks for. Raises ConfigError with file and line."""
    wanted = workload.requests
    assert isinstance(wanted, int), "a trace workload says how many entries it sends"
    arrivals: list[float] = []
    inputs, outputs = [], []
    for number, entry in islice(_lines(path), wanted):
        arrivals.append(_arrival_s(path, number, entry))
        if arrivals[-1] < arrivals[max(0, len(arrivals) - 2)]:
            raise _refused(path, number, "comes before the entry above it", way_out="sort the trace by time")
        inputs.append(_length(path, number, entry, INPUT_FIELDS, workload.input_tokens, "input_tokens"))
        outputs.append(_length(path, number, entry, OUTPUT_FIELDS, workload.output_tokens, "output_tokens"))
    if len(arrivals) < wanted:
        message = f"has {len(arrivals)} entries, {wanted} are asked"
        raise _refused(path, None, message, way_out="lower `requests`")
    first = arrivals[0]
    return Trace(str(path), tuple(at - first for at in arrivals), tuple(inputs), tuple(outputs))


def _lines(path: Path) -> Iterator[Line]:
    """(line number, fields) of each entry."""
    readers = {".jsonl": _json_lines, ".csv": _csv_lines}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(
            str(path),
            ConfigProblem("not a kind of trace file", value=path.suffix, allowed=", ".join(readers)),
        )
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from reader(path, file)
    except FileNotFoundError:
        raise _refused(path, None, "no such trace file", way_out=similar_file(path)) from None
    except UnicodeDecodeError:
        raise ConfigError(str(path), "not UTF-8 text") from None
    except csv.Error as error:
        raise ConfigError(str(path), f"not CSV: {error}") from None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from None


def _json_lines(path: Path, file: Iterable[str]) -> Iterator[Line]:
    for number, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError) as error:  # of numbers with thousands of digits, and of depth, too
            reason = error.msg if isinstance(error, json.JSONDecodeError) else error
            raise _refused(path, number, f"not JSON: {reason}", text.strip()[:80]) from None
        if not isinstance(entry, dict):
            raise _refused(path, number, "not an object", text.strip()[:80])
        yield number, entry


def _csv_lines(path: Path, file: Iterable[str]) -> Iterator[Line]:
    rows = csv.DictReader(file)
    for row in rows:
        values: dict[str, object] = {}
        for name, text in row.items():
            if name in TIME_FIELDS[:2] or name in INPUT_FIELDS or name in OUTPUT_FIELDS:
                values[name] = _csv_number(path, rows.line_num, name, text or "")
            elif name is not None:
                values[name] = text
        yield rows.line_num, values


def _csv_number(path: Path, line: int, name: str, text: str) -> float | int | None:
    if not text.strip():
        return None
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        raise _refused(path, line, f"{name} is not a number", text) from None


def _arrival_s(path: Path, line: int, entry: Mapping[str, object]) -> float:
    """Seconds on the trace's own clock."""
    name = next((name for name in TIME_FIELDS if entry.get(name) is not None), None)
    if name is None:
        raise _refused(path, line, f"says no time: none of {', '.join(TIME_FIELDS)}")
    value = entry[name]
    if name == "TIMESTAMP":
        return _date_s(path, line, str(value))
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise _refused(path, line, f"{name} is not a time from 0", str(value))
    return value / 1000 if name == "timestamp" else float(value)


def _date_s(path: Path, line: int, text: str) -> float:
    """A date and time such as `2023-11-16 18:17:03.9799600`; more digits than microseconds are cut off."""
    whole, dot, fraction = text.strip().partition(".")
    try:
        moment = datetime.fromisoformat(whole + dot + fraction[:6].ljust(6, "0") if dot else whole)
    except ValueError:
        raise _refused(path, line, "TIMESTAMP is not a date and time", text) from None
    return (moment - datetime(1970, 1, 1, tzinfo=moment.tzinfo)).total_seconds()


def _length(
    path: Path, line: int, entry: Mapping[str, object], names: tuple[str, ...], most: int, limit: str
) -> int:
    value = next((entry[name] for name in names if entry.get(name) is not None), most)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _refused(path, line, f"{limit} is not a whole number from 1", str(value))
    if value > most:
        raise _refused(
            path,
            line,
            f"longer than the workload's {limit}, which is {most}",
            str(value),
            f"raise the workload's {limit}: it is the longest that may occur",
        )
    return value


def _refused(
    path: Path, line: int | None, message: str, value: str | None = None, way_out: str | None = None
) -> ConfigError:
    return ConfigError(str(path), ConfigProblem(message, value=value, way_out=way_out, line=line))
