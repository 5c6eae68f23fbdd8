"""Whole runs of raybench, Ray and all, against real engines; its records against the engines' own counters."""

from __future__ import annotations

import json
import pydoc_data.topics
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import ray_product as product
from by_hand import CONTEXT, Start
from real_engines import MODEL, ROOT, Server, difference, pointed_at, recorded

from raybench.analysis.agreement import read_agreements
from raybench.records.rundir import RunDirectory
from raybench.records.strict_json import read_json

pytestmark = pytest.mark.engine

COLD = {"requests": 0.0, "counters": 0.0, "log": None}


def one_point(name: str, server: Server, workload: dict[str, Any], **sections: dict[str, Any]) -> dict[str, Any]:
    """The content of a scenario with one arm and one workload."""
    return {
        "name": name,
        "arms": {"tiny": {"engine": server.engine, "url": server.url, **sections.pop("arm", {})}},
        "workloads": [{"name": "only", **workload}],
        "corpus": {"synthetic": {"tokens": "64k", "vocabulary": 2048, "seed": 7}},
        "guards": {"idle_stable_s": 0.3, **sections.pop("guards", {})},
        "monitors": {"gpu": {"source": "none"}},
        **sections,
    }


def only_run(folder: Path) -> RunDirectory:
    found = product.only_run(folder / "runs")
    assert found is not None, f"no run in {folder}"
    return found


@pytest.mark.parametrize(("engine", "command"), [("sglang", "submit"), ("llamacpp", "run"), ("vllm", "run")])
def test_the_main_job_is_cold_and_its_records_equal_the_servers_counters(
    engine: str, command: str, start: Start, tmp_path: Path
) -> None:
    server = start(engine)
    scenario = pointed_at(ROOT / "scenarios" / f"local_{engine}.yaml", server, tmp_path)
    before = server.tally()
    ended = product.run(command, scenario, folder=tmp_path)
    counted = server.tally().since(before)
    assert ended.exit_code == 0, ended.output

    run = only_run(tmp_path)
    points = product.points(run)
    assert [point["verdict"] for point in points.values()] == ["accepted"] * 3
    assert [line["hit_rates"] for line in product.events(run, "verdict")] == [COLD] * 3
    assert difference(counted, recorded(product.requests(run))) == []

    rows = product.requests(run).to_pylist()
    assert {row["outcome"] for row in rows} == {"ok"}
    for row in rows:
        asked = (row["input_tokens_asked"], row["output_tokens_asked"], "server")
        assert (row["input_tokens"], row["output_tokens"], row["tokens_source"]) == asked
        assert row["asked_ns"] <= row["sent_ns"] <= row["first_token_ns"] <= row["last_token_ns"] <= row["end_ns"]
    samples = pq.read_table(run.server_parquet)
    assert samples.num_rows > 0
    assert samples["error"].null_count == samples.num_rows
    assert samples["output_tokens_total"].null_count == 0
    for agreement in read_agreements(run):
        assert {line.judgement for line in agreement.counts} == {"equal"}, agreement.counts
        for line in agreement.latencies:  # how far apart they are is a timing, and not asserted
            assert line.engine_n == line.client_n, line
        told = set() if engine == "llamacpp" else {"ttft", "e2e", "tpot", "itl"}
        assert {line.name for line in agreement.latencies} == told
        assert {line.name for line in agreement.paired} == ({"ttft", "e2e"} if engine == "sglang" else set())
    reconciled = product.run("reconcile", run.path, folder=tmp_path)
    print(f"{engine}:\n{reconciled.output}")
    assert "sooner than the engine" not in reconciled.output, reconciled.output
    # Declared are 16k or 32k: what the engine says of itself wins.
    [ready] = product.events(run, "arm_ready")
    assert ready["limits"]["context_tokens"] == CONTEXT
    assert ready["instance"] is not None


@pytest.mark.parametrize(
    ("engine", "found_tokens", "requests"),
    [
        ("sglang", 255, 12),  # all but the last token of each prompt
        ("llamacpp", 255, 4),  # a slot holds the last prompt only
        ("vllm", 128, 12),  # a block, and not the last one
    ],
)
def test_o_p5_text_that_the_server_still_holds_is_caught_by_every_source(
    engine: str, found_tokens: int, requests: int, start: Start, tmp_path: Path
) -> None:
    """O-P3's trap on a real cache: the first run's text stays, the second run's ledger does not know it."""
    server = start(engine)
    workload = {"input_tokens": 256, "output_tokens": 16, "concurrency": [4], "requests": requests}
    # Only SGLang's log tells of its cache.
    arm = {"log": {"path": str(server.log_path)}} if engine == "sglang" else {}
    guards = {"flush": False, "prewarm_requests": 0}
    scenario = product.write_scenario(tmp_path, one_point("warm", server, workload, arm=arm, guards=guards))
    first = product.run("run", scenario, folder=tmp_path)
    assert first.exit_code == 0, first.output
    shutil.rmtree(tmp_path / "runs")

    second = product.run("run", scenario, folder=tmp_path)
    assert second.exit_code == 0, second.output
    run = only_run(tmp_path)
    warm, cold = product.events(run, "verdict")
    assert (warm["verdict"], cold["verdict"]) == ("retry", "accept")
    sources = [finding["data"]["source"] for finding in warm["findings"] if finding["code"] == "hit_rate_exceeded"]
    assert sorted(sources) == ["counters", *(["log"] if engine == "sglang" else []), "requests"]
    assert {source: warm["hit_rates"][source] for source in sources} == dict.fromkeys(sources, found_tokens / 256)
    assert max(cold["hit_rates"][source] for source in sources) <= 0.01
    [point] = product.points(run).values()
    assert (point["verdict"], point["final_attempt"]) == ("accepted", 2)


def test_an_interrupted_run_leaves_no_ghost(start: Start, tmp_path: Path) -> None:
    server = start("sglang")
    workload = {"input_tokens": 64, "output_tokens": 3000, "concurrency": [8], "requests": 16}
    content = one_point("cut-off", server, workload, guards={"prewarm_requests": 0})
    scenario = product.write_scenario(tmp_path, content)
    before = server.tally()
    with product.start("run", scenario, folder=tmp_path) as running:
        run = product.wait_for_run(tmp_path / "runs", running)
        product.wait_for_event(run, running, "step", step="counters_before")
        product.until(lambda: load(server)[0] > 0, "requests run in the engine")
        running.interrupt()
        ended = running.end()
    assert ended.exit_code == 1, ended.output
    product.until(lambda: load(server) == (0, 0), "the engine is idle again")
    assert server.tally().since(before).output_tokens < 16 * 3000

    [end] = product.events(run, "run_ended")
    assert (end["status"], end["missing"]) == ("interrupted", 1)
    rows = product.requests(run).to_pylist()
    assert {row["outcome"] for row in rows} == {"cancelled"}
    assert sum(row["output_tokens"] for row in rows) == 0


def test_a_chat_run_on_a_built_corpus_is_accepted(start: Start, tmp_path: Path) -> None:
    """Text of a book that every Python brings, in the model's own tokens."""
    server = start("llamacpp")
    tokenizer = MODEL / "hf" / "tokenizer.json"
    book = pydoc_data.topics.__file__
    built = product.run("corpus", "build", book, "--tokenizer", tokenizer, "-o", "book", folder=tmp_path)
    assert built.exit_code == 0, built.output
    workload = {"input_tokens": 1024, "output_tokens": 24, "concurrency": [2], "requests": 8}
    content = one_point("chat", server, workload, arm={"route": "chat"}, corpus={"path": "book"})
    before = server.tally()
    ended = product.run("run", product.write_scenario(tmp_path, content), folder=tmp_path)
    counted = server.tally().since(before)
    assert ended.exit_code == 0, ended.output

    run = only_run(tmp_path)
    assert difference(counted, recorded(product.requests(run))) == []
    [verdict] = product.events(run, "verdict")
    # The chat template begins every prompt alike, so a few tokens are found, by both sources the same.
    assert verdict["hit_rates"]["requests"] == verdict["hit_rates"]["counters"] <= 0.01
    for row in product.requests(run).to_pylist():
        assert (row["outcome"], row["done_marker"], row["tokens_source"]) == ("ok", True, "server")
        assert row["output_tokens"] == 24
        assert row["input_tokens"] > 1000
        assert row["text_chars"] > 0
    assert read_json(run.manifest)["scenario"]["corpus"]["path"] == "book"


def load(server: Server) -> tuple[int, int]:
    """Requests that run and that wait, by SGLang's own count."""
    [core] = json.loads(server.get("/v1/loads?include=core"))["loads"]
    return core["num_running_reqs"], core["num_waiting_reqs"]
