"""How each peer is asked for one load, and where it leaves the TTFT that it reports; used by `peers.py`.

All get the same work: OpenAI completions, 128 prompt tokens, a fixed output length, a fixed number of streams, no
warm-up, no network but the mock server. Every one runs its own unmodified client code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from server import INPUT_TOKENS, Work

#: The client that runs instead of `vllm bench serve`, whose command wants the metadata of a package that is called
#: `vllm`; the wheel for the CPU is not. It is what that command calls.
VLLM_MAIN = (
    "import argparse; from vllm.benchmarks.serve import add_cli_args, main;"
    " parser = argparse.ArgumentParser(); add_cli_args(parser); main(parser.parse_args())"
)


@dataclass(frozen=True)
class Asked:
    """One run of a peer. environment: its virtual environment. folder: where it may write."""

    work: Work
    url: str
    environment: Path
    tokenizer: Path
    folder: Path

    def program(self, name: str) -> str:
        return str(self.environment / "bin" / name)


@dataclass(frozen=True)
class Reported:
    """What a peer says of its own run; None where it says nothing."""

    completed: float | None
    ttft_ms_p50: float | None
    ttft_ms_p99: float | None


@dataclass(frozen=True)
class Peer:
    """environment: a name of `peer_setup.ENVIRONMENTS`; None is the one that runs this.

    environ: variables that are set for it. cpu_is_charged: whether the kernel charges all CPU of its processes to
    who started it. Ray's raylet has its workers reaped by the kernel, and theirs is then charged to nobody.
    """

    name: str
    environment: str | None
    command: Callable[[Asked], list[str]]
    read: Callable[[Path], Reported]
    environ: tuple[tuple[str, str], ...] = ()
    cpu_is_charged: bool = True


def sglang(module: str) -> Callable[[Asked], list[str]]:
    def command(asked: Asked) -> list[str]:
        work = asked.work
        return [
            *(asked.program("python"), "-m", f"sglang.benchmark.{module}", "--backend", "sglang-oai"),
            *("--base-url", asked.url, "--model", "mock", "--tokenizer", str(asked.tokenizer)),
            *("--dataset-name", "random-ids", "--random-input-len", str(INPUT_TOKENS)),
            *("--random-output-len", str(work.tokens), "--random-range-ratio", "1.0"),
            *("--num-prompts", str(work.requests), "--max-concurrency", str(work.streams)),
            *("--warmup-requests", "0", "--disable-tqdm", "--output-file", str(asked.folder / "out.jsonl")),
        ]

    return command


def read_sglang(folder: Path) -> Reported:
    told = json.loads((folder / "out.jsonl").read_text().splitlines()[-1])
    return Reported(told["completed"], told["median_ttft_ms"], told["p99_ttft_ms"])


def vllm(asked: Asked) -> list[str]:
    work = asked.work
    return [
        *(asked.program("python"), "-c", VLLM_MAIN, "--backend", "openai", "--base-url", asked.url),
        *("--model", "mock", "--tokenizer", str(asked.tokenizer), "--dataset-name", "random"),
        *("--random-input-len", str(INPUT_TOKENS), "--random-output-len", str(work.tokens), "--ignore-eos"),
        *("--num-prompts", str(work.requests), "--max-concurrency", str(work.streams), "--disable-tqdm"),
        *("--percentile-metrics", "ttft", "--metric-percentiles", "50,99", "--ready-check-timeout-sec", "0"),
        *("--save-result", "--result-dir", str(asked.folder), "--result-filename", "out.json"),
    ]


def read_vllm(folder: Path) -> Reported:
    told = read_json(folder, "out.json")
    return Reported(told["completed"], told["median_ttft_ms"], told["p99_ttft_ms"])


def aiperf(asked: Asked) -> list[str]:
    work = asked.work
    return [
        *(asked.program("aiperf"), "profile", "-m", "mock", "--tokenizer", str(asked.tokenizer)),
        *("--url", asked.url, "--endpoint-type", "completions", "--streaming", "--use-legacy-max-tokens"),
        *("--concurrency", str(work.streams), "--request-count", str(work.requests)),
        *("--isl", str(INPUT_TOKENS), "--isl-stddev", "0", "--osl", str(work.tokens), "--osl-stddev", "0"),
        *("--output-artifact-dir", str(asked.folder), "--ui-type", "none"),
    ]


def read_aiperf(folder: Path) -> Reported:
    told = read_json(folder, "profile_export_aiperf.json")
    ttft = told["time_to_first_token"]
    return Reported(told["request_count"]["avg"], ttft["p50"], ttft["p99"])


def guidellm(asked: Asked) -> list[str]:
    work = asked.work
    return [
        *(asked.program("guidellm"), "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={asked.url},model=mock,request_format=/v1/completions"),
        *("--profile", f"kind=concurrent,streams={work.streams}"),
        *("--constraint", f"kind=max_requests,count={work.requests}"),
        *("--tokenizer", f"kind=huggingface_auto,model={asked.tokenizer}"),
        *("--data", f"kind=synthetic_text,prompt_tokens={INPUT_TOKENS},output_tokens={work.tokens}"),
        *("--output", f"kind=json,path={asked.folder / 'out.json'}"),
    ]


def read_guidellm(folder: Path) -> Reported:
    told = read_json(folder, "out.json")["benchmarks"][0]["metrics"]
    ttft = told["time_to_first_token_ms"]["successful"]
    return Reported(told["request_totals"]["successful"], ttft["median"], ttft["percentiles"]["p99"])


def evalscope(asked: Asked) -> list[str]:
    work = asked.work
    return [
        *(asked.program("evalscope"), "perf", "--model", "mock", "--url", f"{asked.url}/v1/completions"),
        *("--api", "openai", "--dataset", "random", "--tokenizer-path", str(asked.tokenizer), "--stream"),
        *("--min-prompt-length", str(INPUT_TOKENS), "--max-prompt-length", str(INPUT_TOKENS)),
        *("--prefix-length", "0", "--max-tokens", str(work.tokens), "--min-tokens", str(work.tokens)),
        *("--parallel", str(work.streams), "-n", str(work.requests), "--num-workers", "1"),
        *("--no-test-connection", "--outputs-dir", str(asked.folder)),
    ]


def read_evalscope(folder: Path) -> Reported:
    summary = read_json(folder, "benchmark_summary.json")
    rows = read_json(folder, "benchmark_percentile.json")
    completed = summary.get("Succeed requests") or summary.get("Success requests")
    ttft = {str(row["Percentiles"]).rstrip("%"): row for row in rows}
    return Reported(completed, in_ms(ttft["50"]), in_ms(ttft["99"]))


def in_ms(row: dict[str, Any]) -> float:
    """The TTFT of a row of evalscope's, whatever unit it names."""
    name, value = next((name, value) for name, value in row.items() if name.startswith("TTFT"))
    return float(value) * (1e3 if "(s)" in name else 1)


def inference_perf(asked: Asked) -> list[str]:
    work = asked.work
    lengths = {
        f"{side}_distribution": {"min": n, "max": n, "mean": n, "std_dev": 0, "total_count": max(2, work.requests)}
        for side, n in (("input", INPUT_TOKENS), ("output", work.tokens))
    }
    settings = {
        "load": {
            "type": "concurrent",
            "stages": [{"num_requests": work.requests, "concurrency_level": work.streams}],
            "num_workers": min(2, work.streams),
            "worker_max_concurrency": max(100, work.streams),
            "worker_max_tcp_connections": max(2500, work.streams),
        },
        "api": {"type": "completion", "streaming": True},
        "server": {"type": "vllm", "model_name": "mock", "base_url": asked.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(asked.tokenizer)},
        "data": {"type": "random", **lengths},
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
        "storage": {"local_storage": {"path": str(asked.folder / "report")}},
    }
    path = asked.folder / "settings.yaml"
    path.write_text(json.dumps(settings))  # JSON is YAML
    return [asked.program("inference-perf"), "--config_file", str(path)]


def read_inference_perf(folder: Path) -> Reported:
    told = read_json(folder, "summary_lifecycle_metrics.json")["successes"]
    ttft = told["latency"]["time_to_first_token"]
    return Reported(told["count"], ttft["median"] * 1e3, ttft["p99"] * 1e3)


def read_json(folder: Path, name: str) -> Any:
    return json.loads(next(folder.rglob(name)).read_text())


OFFLINE = (("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_OFFLINE", "1"), ("HF_DATASETS_OFFLINE", "1"))
PEERS = (
    Peer(
        "sglang Rust",
        "sglang",
        sglang("rust_client"),
        read_sglang,
        (*OFFLINE, ("SGLANG_RUST_BUILD_MODE", "never")),
    ),
    Peer("vLLM bench serve", "vllm", vllm, read_vllm, (*OFFLINE, ("VLLM_NO_USAGE_STATS", "1"))),
    Peer("evalscope perf", "evalscope", evalscope, read_evalscope, OFFLINE),
    Peer("sglang bench_serving", "sglang", sglang("serving"), read_sglang, OFFLINE),
    Peer("aiperf", "aiperf", aiperf, read_aiperf),
    Peer("inference-perf", "inference-perf", inference_perf, read_inference_perf, OFFLINE),
    Peer("guidellm", "guidellm", guidellm, read_guidellm, OFFLINE),
)
