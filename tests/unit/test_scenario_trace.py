"""Trace files: the formats that people have, and each refusal with its line."""

import json
from pathlib import Path

import pytest

from raybench.errors import ConfigError
from raybench.scenario.load import load_scenario
from raybench.scenario.schema import Scenario
from raybench.scenario.trace import Trace, read_trace, read_traces
from raybench.scenario.workload import Workload

ROOT = Path(__file__).parents[2]


def workload(requests: int = 3, path: str = "t.jsonl") -> Workload:
    keys = {"name": "w", "input_tokens": 5000, "output_tokens": 100, "trace": {"path": path}, "requests": requests}
    return Workload.model_validate(keys)


def read(tmp_path: Path, text: str, requests: int = 3, name: str = "t.jsonl") -> Trace:
    path = tmp_path / name
    path.write_text(text)
    return read_trace(path, workload(requests))


def lines(*entries: object) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


MOONCAKE = lines(
    {"timestamp": 27482, "input_length": 4096, "output_length": 52, "hash_ids": [46, 47]},
    {"timestamp": 30535, "input_length": 672, "output_length": 26, "hash_ids": [46]},
    {"timestamp": 30535, "input_length": 655, "output_length": 1, "hash_ids": []},
)
OWN = "\n" + lines({"timestamp_s": 0.5}, {"timestamp_s": 1, "input_tokens": 7}, {"timestamp_s": 2.25})
AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.9799600,4808,10
2023-11-16 18:17:04.0000000,3180,8
2023-11-16 18:18:04.0000000,110,27
"""
PLAIN_CSV = "timestamp,input_tokens,user\n0,12,x\n1500,,y\n1500.5,13,\n"


@pytest.mark.parametrize(
    ("name", "text", "arrivals", "inputs", "outputs"),
    [
        ("t.jsonl", MOONCAKE, (0, 3.053, 3.053), (4096, 672, 655), (52, 26, 1)),
        ("t.jsonl", OWN, (0, 0.5, 1.75), (5000, 7, 5000), (100, 100, 100)),
        ("t.csv", AZURE, (0, 0.02004, 60.02004), (4808, 3180, 110), (10, 8, 27)),
        ("t.csv", PLAIN_CSV, (0, 1.5, 1.5005), (12, 5000, 13), (100, 100, 100)),
    ],
)
def test_public_formats_are_read_and_begin_at_their_first_entry(
    tmp_path: Path,
    name: str,
    text: str,
    arrivals: tuple[float, ...],
    inputs: tuple[int, ...],
    outputs: tuple[int, ...],
) -> None:
    trace = read(tmp_path, text, name=name)
    assert trace.arrival_s == pytest.approx(arrivals, abs=1e-6)
    assert (trace.input_tokens, trace.output_tokens) == (inputs, outputs)


def test_only_as_many_entries_as_asked_are_read(tmp_path: Path) -> None:
    trace = read(tmp_path, MOONCAKE + "this line is never reached", requests=2)
    assert len(trace.arrival_s) == 2
    assert trace.span_s == pytest.approx(3.053)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.jsonl", lines({"timestamp_s": 1}, {"timestamp_s": 0.5}), "line 2: comes before the entry above it"),
        ("t.jsonl", lines({"timestamp": -1}), "line 1: timestamp is not a time from 0; got: -1"),
        ("t.jsonl", lines({"timestamp": "now"}), "line 1: timestamp is not a time from 0; got: now"),
        ("t.jsonl", '{"timestamp": NaN}\n', "line 1: timestamp is not a time from 0; got: nan"),
        ("t.jsonl", lines({"timestamp": 0}, {"input_length": 5}), "line 2: says no time: none of timestamp_s"),
        (
            "t.jsonl",
            lines({"timestamp": 0, "input_length": 5001}),
            "line 1: longer than the workload's input_tokens",
        ),
        ("t.jsonl", lines({"timestamp": 0, "output_length": 101}), "raise the workload's output_tokens"),
        (
            "t.jsonl",
            lines({"timestamp": 0, "input_length": 0}),
            "line 1: input_tokens is not a whole number from 1",
        ),
        ("t.jsonl", lines({"timestamp": 0, "input_length": 1.5}), "line 1: input_tokens is not a whole number"),
        (
            "t.jsonl",
            lines({"timestamp": 0}, {"timestamp": 1}),
            "has 2 entries, 3 are asked; try: lower `requests`",
        ),
        ("t.jsonl", lines({"timestamp": 0}) + "{\n", "line 2: not JSON"),
        ("t.jsonl", '{"timestamp": ' + "1" * 5000 + "}\n", "line 1: not JSON: Exceeds the limit"),
        ("t.jsonl", "[" * 200_000 + "\n", "line 1: not JSON"),
        ("t.csv", "timestamp,note\n0," + "x" * 200_000 + "\n", "not CSV: field larger than field limit"),
        ("t.jsonl", "[1]\n", "line 1: not an object; got: [1]"),
        ("t.csv", "timestamp,input_tokens\n0,many\n", "line 2: input_tokens is not a number; got: many"),
        ("t.csv", "TIMESTAMP\nyesterday\n", "line 2: TIMESTAMP is not a date and time; got: yesterday"),
        ("t.txt", "", "not a kind of trace file; got: .txt; allowed: .jsonl, .csv"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_file_and_line(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text, name=name)
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert message in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such trace file"):
        read_trace(tmp_path / "none.jsonl", workload())
    (tmp_path / "t.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_trace(tmp_path / "t.jsonl", workload())


def scenario(path: str) -> Scenario:
    one = workload(path=path).model_dump(mode="json")
    arms = {"a": {"url": "http://a:1"}}
    keys = {"name": "s", "arms": arms, "workloads": [one], "corpus": {"synthetic": {}}}
    return Scenario.model_validate(keys)


def test_a_relative_path_belongs_to_the_scenario_and_an_absolute_one_to_the_coordinator(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(MOONCAKE)
    assert list(read_traces(scenario("t.jsonl"), tmp_path)) == ["w"]
    assert list(read_traces(scenario(str(tmp_path / "t.jsonl")), Path("/elsewhere"), here_only=True)) == ["w"]
    assert read_traces(scenario("/of/the/coordinator.jsonl"), tmp_path, here_only=True) == {}
    with pytest.raises(ConfigError, match="no such trace file"):
        read_traces(scenario("/of/the/coordinator.jsonl"), tmp_path)
    with pytest.raises(ConfigError, match="no such trace file"):
        read_traces(scenario("other.jsonl"), tmp_path, here_only=True)


def test_the_shipped_trace_fits_its_scenario() -> None:
    shipped = load_scenario(ROOT / "scenarios" / "open_loop_sim.yaml")
    assert len(read_traces(shipped, ROOT / "scenarios")["recorded"].arrival_s) == 40
