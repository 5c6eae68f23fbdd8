"""Every word that a report says, by language. Numbers, names and reasons come from the run itself."""

from __future__ import annotations

from dataclasses import dataclass

from raybench.report.artifact_text import ENGLISH_ARTIFACTS, ArtifactText


@dataclass(frozen=True)
class SearchText:
    """The words of searches. Answers are by status, sides by whether a probe passes (None: it says nothing)."""

    heading: str
    note: str
    title: str
    slo: str
    knee: str
    slo_answers: dict[str, str]
    knee_answers: dict[str, str]
    goodput: str
    interval: str
    no_interval: str
    bounded: str
    columns: tuple[str, ...]
    goodput_column: str
    slo_sides: dict[bool | None, str]
    knee_sides: dict[bool | None, str]
    not_known: str


@dataclass(frozen=True)
class DeploymentText:
    """The words of processes on the target's host. reasons: why one ended."""

    heading: str
    process_columns: tuple[str, ...]
    reasons: dict[str, str]
    ledger: str
    ledger_columns: tuple[str, ...]


@dataclass(frozen=True)
class Text:
    """The words of one language. Placeholders in braces are filled by `str.format`."""

    title: str
    summary: str
    counts: str
    best: str
    nothing_valid: str
    ended: str
    environment: str
    fact: str
    client: str
    engine_facts: dict[str, str]
    gpus: str
    gpu_unavailable: str
    protocol: str
    protocol_attempts: str
    protocol_cold: str
    protocol_prewarm: str
    protocol_flush: str
    protocol_no_flush: str
    protocol_load: str
    protocol_open_loop: str
    rejected: str
    interrupted: str
    attempt_columns: tuple[str, ...]
    active_limits: str
    active_limits_note: str
    workload: str
    limit_by_running: str
    limit_by_pool: str
    results: str
    result_columns: tuple[str, ...]
    open_loop: str
    level: str
    open_loop_note: str
    open_loop_columns: tuple[str, ...]
    searches: SearchText
    artifacts: ArtifactText
    deployments: DeploymentText
    boundary: str
    boundary_note: str
    boundary_columns: tuple[str, ...]
    vram: str
    vram_note: str
    vram_columns: tuple[str, ...]
    vram_unavailable: str
    appendix_windows: str
    appendix_windows_note: str
    window_columns: tuple[str, ...]
    appendix_points: str
    appendix_columns: tuple[str, ...]
    appendix_steady: str
    steady_note: str
    steady_columns: tuple[str, ...]
    invalid: str
    warnings: str
    gpu_incomplete: str
    notes: str
    percentile_note: str
    queueing_note: str
    struck_note: str
    throughput_note: str
    inputs: str
    input_columns: tuple[str, ...]
    verdicts: dict[str | None, str]
    yes: str
    no: str


ENGLISH_SEARCHES = SearchText(
    heading="Searches",
    note="Each level that a search came to is a point of its own, with its own verdict. A level without a valid"
    " number counts neither as passing nor as failing.",
    title="{workload} on {arm}: {question}",
    slo="the highest level with {limits}",
    knee="the lowest level whose output throughput the highest exceeds by at most {gain}",
    slo_answers={
        "found": "{passes}; {fails} fails.",
        "below_minimum": "None: the minimum, {fails}, fails.",
        "above_maximum": "{passes}, the maximum: not bounded by the search.",
        "probes_used_up": "Highest that passes {passes}, lowest that fails {fails}: all probes are used.",
        "void_probes": "Highest that passes {passes}, lowest that fails {fails}: no other level gave a valid"
        " number.",
        "skipped": "Not searched: the target cannot hold the minimum.",
        "unfinished": "Not finished. Highest that passes {passes}, lowest that fails {fails}.",
    },
    knee_answers={
        "found": "{fails}; up to {passes} throughput still grows.",
        "below_minimum": "{fails}, the minimum, is saturated already.",
        "above_maximum": "None: throughput still grows at {passes}, the maximum.",
        "probes_used_up": "Saturated at {fails}, not yet at {passes}: all probes are used.",
        "void_probes": "Saturated at {fails}, not yet at {passes}: no other level gave a valid number.",
        "skipped": "Not searched: the target cannot hold the minimum.",
        "unfinished": "Not finished. Saturated at {fails}, not yet at {passes}.",
    },
    goodput="Goodput there: {good} of {n} requests met the limits each by itself, {rate} requests/s ({interval}),"
    " {tokens} output tok/s.",
    interval="95 % interval {low} to {high}",
    no_interval="too few for an interval",
    bounded="Searched up to {level} only: {reason}.",
    columns=("Level", "Verdict", "Result", "Why"),
    goodput_column="Goodput (req/s)",
    slo_sides={True: "passes", False: "fails", None: "—"},
    knee_sides={True: "grows", False: "saturated", None: "—"},
    not_known="{metric} is not known",
)

ENGLISH = Text(
    deployments=DeploymentText(
        heading="Deployments",
        process_columns=("Arm", "Load", "Process", "End"),
        reasons={
            "stopped": "stopped by raybench",
            "not_ready": "not ready in time",
            "out_of_memory": "out of memory",
            "out_of_host_memory": "out of host memory",
            "killed": "killed by somebody else",
            "failed": "failed",
            "ended": "ended by itself",
        },
        ledger="Ledger",
        ledger_columns=("Arm", "What", "sha256 or version"),
    ),
    title="Report of run {run_id}",
    summary="Summary",
    counts="{total} points: {accepted} accepted, {void} void, {skipped} skipped, {missing} not measured.",
    best="{workload}: highest output throughput {rate} tok/s ({arm}, {level})",
    nothing_valid="No point is valid, so there is nothing to sum up.",
    ended="The run ended as: {status}.",
    environment="Environment",
    fact="Fact",
    client="Client: raybench {raybench}, Python {python}, Ray {ray}",
    engine_facts={
        "engine": "Engine",
        "version": "Version",
        "model": "Model",
        "max_running_requests": "Max running requests",
        "kv_pool_tokens": "KV pool (tokens)",
        "context_tokens": "Context limit (tokens)",
        "max_input_tokens": "Input limit (tokens)",
        "page_tokens": "Page (tokens)",
        "dp_size": "Data-parallel size",
        "prefix_cache": "Prefix cache",
        "host_cache": "Host cache tier",
        "storage_cache": "Storage cache tier",
        "incremental_stream": "Incremental stream",
    },
    gpus="GPUs",
    gpu_unavailable="not available ({reason})",
    protocol="Protocol as executed",
    protocol_attempts="{attempts} attempts for {points} measured points; {rejected} rejected.",
    protocol_cold="Cold: prefix hit rate at most {limit:g} by every source that tells; highest of an accepted"
    " point: {highest}.",
    protocol_prewarm="Prewarm: {count} requests of the same shape with other text before each attempt.",
    protocol_flush="Prefix cache flushed before each load, its reply read; idle before and after the prewarm.",
    protocol_no_flush="The prefix cache was not flushed: cold rests on fresh text and the hit check.",
    protocol_load="Closed loop: concurrency C is held until no request is unsent; streaming; token counts as"
    " the server gives them.",
    protocol_open_loop="Open loop: each request is sent at its time by a schedule made from a seed or a trace,"
    " whatever became of the others; streaming; token counts as the server gives them.",
    rejected="Attempts that do not count",
    interrupted="interrupted before its verdict",
    attempt_columns=(
        "Point",
        "Attempt",
        "Verdict",
        "Hit rate (requests)",
        "Hit rate (counters)",
        "Windows",
        "Why",
    ),
    active_limits="Active limits",
    active_limits_note="How many requests of a shape can run at once: min(max running requests, KV pool //"
    " (input + output)). A higher concurrency queues inside the engine.",
    workload="Workload",
    limit_by_running="max running requests",
    limit_by_pool="KV pool",
    results="Results",
    result_columns=("C", "Arm", "Input TPS", "Output TPS", "TTFT P95", "TPOT P95", "n", "Verdict"),
    open_loop="Open loop",
    level="Level",
    open_loop_note="Rates in requests per second: as scheduled, as sent, as completed. Latencies P95 from when a"
    " request was sent / from when it was scheduled; the difference is what waited in the client.",
    open_loop_columns=(
        "Workload",
        "Level",
        "Arm",
        "Offered",
        "Sent",
        "Completed",
        "Late sends",
        "Send delay P50 / P99 / max",
        "TTFT P95",
        "E2E P95",
        "Peak in flight",
        "Verdict",
    ),
    searches=ENGLISH_SEARCHES,
    artifacts=ENGLISH_ARTIFACTS,
    boundary="Context boundary",
    boundary_note="One output token: these rows prove capacity and prefill only.",
    boundary_columns=(
        "Input",
        "Arm",
        "Completed C",
        "Input TPS (lowest C)",
        "TTFT P95 (highest C)",
        "Not completed",
    ),
    vram="GPU memory",
    vram_note="In use = total - free, over the loads of the accepted points. Idle: the least between ready"
    " and the first load.",
    vram_columns=("Arm", "GPU", "Total", "Idle", "Mean", "Peak", "Least headroom", "Peak at"),
    vram_unavailable="No GPU samples of accepted points.",
    appendix_windows="Appendix A: corpus windows",
    appendix_windows_note="First and last token at which a request's text begins; each record names its own"
    " window (`window_start`, `window_end`).",
    window_columns=("Point", "Attempt", "Verdict", "Load windows", "Prewarm windows"),
    appendix_points="Appendix B: all points",
    appendix_columns=(
        "Workload",
        "C",
        "Arm",
        "ok/n",
        "Wall (s)",
        "Output tok/s",
        "Input tok/s",
        "TTFT mean / P95 / max",
        "TPOT mean / P95 / max",
        "Retractions",
        "Accept",
        "VRAM peak",
        "Headroom",
        "Verdict",
    ),
    appendix_steady="Appendix C: steady state and client",
    steady_note="Steady state: from the first to the last moment with at least 95 % of C in flight; its latencies"
    " are those of requests that ended in it. Shares are of the wall. Hand-over: from the end of a request to the"
    " send that fills its place. Waits are the client's own.",
    steady_columns=(
        "Workload",
        "C",
        "Arm",
        "In-flight peak",
        "Time at C",
        "Hand-over P50 / P99",
        "Steady",
        "Input TPS whole / steady",
        "Output TPS whole / steady",
        "TTFT P95 steady",
        "TPOT P95 steady",
        "Connect wait P95",
        "Send wait P95",
    ),
    invalid="Points without a valid number",
    warnings="Warnings",
    gpu_incomplete="{point}: GPU samples are missing for a part of the load",
    notes="Notes",
    percentile_note="Percentiles by nearest rank: the ceil(p*n/100)-th smallest of n. P95 is the maximum for"
    " n < 20. Failed requests give no latency sample and are never dropped from ok/n.",
    queueing_note="† queueing point: C exceeds the active limit, so TTFT contains the wait in the engine's queue.",
    struck_note="Struck-through numbers belong to void points: they are kept, and count nowhere.",
    throughput_note="Input and output TPS: tokens of successful requests / wall, wall = first send to last end.",
    inputs="Inputs (sha256)",
    input_columns=("Input", "sha256"),
    verdicts={"accepted": "accepted", "void": "void", "skipped": "skipped", None: "not measured"},
    yes="yes",
    no="no",
)

TEXTS = {"en": ENGLISH}
