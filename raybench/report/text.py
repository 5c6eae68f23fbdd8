"""Every word that a report says, by language. Numbers, names and reasons come from the run itself.

English is here, Chinese in `text_zh`. A test compares the placeholders of both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Text:
    """The words of one language. Placeholders in braces are filled by `str.format`."""

    language: str
    title: str
    subtitle: str
    summary: str
    counts: str
    nothing_valid: str
    ended: str
    simulated: str
    metrics: dict[str, str]
    separator: str
    ahead: str
    throughput: str
    peak: str
    lead_one: str
    lead_many: str
    lead_by: str
    tie: str
    crossover: str
    growth: dict[str, str]
    queueing_points: str
    queueing_point: str
    tightest: str
    reach: str
    steadiness: str
    environment: str
    fact: str
    client: str
    client_host: str
    engine_facts: dict[str, str]
    simulated_fact: str
    simulated_value: str
    engine_settings: dict[str, str]
    launch: str
    gpus: str
    gpu_unavailable: str
    protocol: str
    protocol_attempts: str
    protocol_cold: str
    protocol_prewarm: str
    protocol_flush: str
    protocol_no_flush: str
    protocol_load: str
    protocol_open: str
    protocol_of: str
    rejected: str
    interrupted: str
    attempt_columns: tuple[str, ...]
    hit_sources: dict[str, str]
    active_limits: str
    active_limits_note: str
    workload: str
    limit_by_running: str
    limit_by_pool: str
    results: str
    results_note: str
    result_columns: tuple[str, ...]
    level_column: str
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
    invalid_columns: tuple[str, ...]
    warnings: str
    gpu_incomplete: str
    notes: str
    percentile_note: str
    queueing_note: str
    struck_note: str
    strong_note: str
    throughput_note: str
    inputs: str
    inputs_note: str
    input_columns: tuple[str, ...]
    reproduce: str
    reproduce_measure: str
    reproduce_report: str
    reproduce_query: str
    verdicts: dict[str | None, str]
    yes: str
    no: str
    plots: Plots
    page: Page


@dataclass(frozen=True)
class Plots:
    """Words of the figures."""

    level: str
    rate: str
    output_throughput: str
    ttft: str
    tpot: str
    pareto: str
    pareto_x: str
    pareto_front: str
    queueing: str
    hit_rates: str
    hit_rate_x: str
    hit_limit: str
    not_told: str
    does_not_count: str
    waterfall: str
    thinned: str
    phases: dict[str, str]
    seconds: str
    in_flight: str
    in_flight_client: str
    running: str
    queued: str
    gpu_memory: str
    highest_gpu: str
    lowest_gpu: str
    chunk_gaps: str
    chunk_gap_x: str
    chunk_gap_y: str


@dataclass(frozen=True)
class Page:
    """Words that only the HTML page needs."""

    contents: str
    points: str
    pick: str
    previous: str
    next: str
    requests_shown: str
    request_columns: tuple[str, ...]
    no_records: str
    ok: str
    hit_rates: str
    attempts: str
    accept_length: str
    headroom: str
    query: str
    file: str
    sort: str


ENGLISH = Text(
    language="en",
    title="Benchmark report: {run_id}",
    subtitle="raybench {version}",
    summary="Summary",
    counts="{total} points: {accepted} accepted, {void} void, {skipped} skipped, {missing} not measured.",
    nothing_valid="No point is valid, so there is nothing to sum up.",
    ended="The run ended as: {status}.",
    simulated="Simulated, no statement about any hardware: {arms}.",
    metrics={
        "output_tokens_per_s": "Output TPS",
        "input_tokens_per_s": "Input TPS",
        "ttft_ms_p95": "TTFT P95",
        "tpot_ms_p95": "TPOT P95",
    },
    separator="; ",
    ahead="Clearly ahead",
    throughput="Throughput",
    peak="highest {metric} {value} tok/s ({arm}, C={concurrency})",
    lead_one="{arm} ahead at C={levels}{by}",
    lead_many="{arm} ahead at C={levels}, most at C={at}{by}",
    lead_by=" by {advantage} ({ahead} against {behind})",
    tie="no clear difference (within {floor:g} %) at C={levels}",
    crossover="{to_arm} overtakes {from_arm} above C={above}, at C={at} at the latest",
    growth={
        "climbing": "{arm} still climbing: {step} from C={before_at} to C={last_at}",
        "plateau": "{arm} on a plateau from C={plateau_from} on ({last} tok/s)",
        "falling": "{arm} falling: {last} at C={last_at} after {best} at C={best_at}",
    },
    queueing_points="Queueing points, whose TTFT holds the wait inside the engine: {points}.",
    queueing_point="{workload} {arm} C={concurrency} ({waiting} wait)",
    tightest="Tightest GPU of {arm}: {host} {gpu}, {headroom} free at least ({workload}, C={concurrency}).",
    reach="valid numbers from {arm} only, none from {others}",
    steadiness="{requests} requests counted, {failed} failed; {preemptions} retractions or preemptions.",
    environment="Environment and configuration",
    fact="Fact",
    client="Run {run_id} ({created}): raybench {raybench}, Python {python}, Ray {ray}",
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
    client_host="Client host {host}: {cpus} usable CPUs ({cpu}), {memory} memory, {system} {kernel}",
    simulated_fact="Simulated",
    simulated_value="profile {profile}, time compressed {compression:g} times",
    engine_settings={
        "tp_size": "Tensor parallel",
        "pp_size": "Pipeline parallel",
        "tensor_parallel_size": "Tensor parallel",
        "pipeline_parallel_size": "Pipeline parallel",
        "quantization": "Quantization",
        "dtype": "Data type",
        "kv_cache_dtype": "KV cache data type",
        "mem_fraction_static": "Static memory fraction",
        "gpu_memory_utilization": "GPU memory utilization",
        "chunked_prefill_size": "Prefill chunk (tokens)",
        "max_prefill_tokens": "Max prefill (tokens)",
        "schedule_policy": "Schedule policy",
        "attention_backend": "Attention backend",
        "speculative_algorithm": "Speculative decoding",
        "speculative_num_steps": "Speculative steps",
        "speculative_eagle_topk": "Speculative top-k",
        "speculative_num_draft_tokens": "Speculative draft tokens",
        "enable_hierarchical_cache": "Hierarchical cache",
        "hicache_ratio": "Hierarchical cache ratio",
        "hicache_write_policy": "Hierarchical cache write policy",
        "disable_cuda_graph": "CUDA graph disabled",
        "cuda_graph_max_bs_decode": "CUDA graph largest decode batch",
    },
    launch="Launched as ({arm}):",
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
    protocol_open="Open loop: requests go out at times set beforehand, whatever became of those before them.",
    protocol_of="Run {run_id}",
    rejected="Attempts that do not count:",
    interrupted="interrupted before its verdict",
    attempt_columns=("Point", "Attempt", "Verdict", "Hit rates", "Windows", "Why"),
    hit_sources={"requests": "requests", "counters": "counters", "log": "log"},
    active_limits="Active limits",
    active_limits_note="How many requests of a shape can run at once: min(max running requests, KV pool //"
    " (input + output)). A higher concurrency queues inside the engine.",
    workload="Workload",
    limit_by_running="max running requests",
    limit_by_pool="KV pool",
    results="Results",
    result_columns=("C", "Arm", "Input TPS", "Output TPS", "TTFT P95", "TPOT P95", "n", "Verdict"),
    results_note="n: requests that gave a TTFT. For n < 20 the P95 is the maximum of n.",
    level_column="Level",
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
    " window (window_start, window_end).",
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
    invalid_columns=("Point", "Verdict", "Why"),
    warnings="Warnings",
    gpu_incomplete="{point}: GPU samples are missing for a part of the load",
    notes="Notes",
    percentile_note="Percentiles by nearest rank: the ceil(p*n/100)-th smallest of n. P95 is the maximum for"
    " n < 20. Failed requests give no latency sample and are never dropped from ok/n.",
    queueing_note="† queueing point: C exceeds the active limit, so TTFT contains the wait in the engine's queue.",
    struck_note="Struck-through numbers belong to void points: they are kept, and count nowhere.",
    strong_note="Bold: ahead of every other arm at that level by more than the noise floor of {floor:g} %.",
    throughput_note="Input and output TPS: tokens of successful requests / wall, wall = first send to last end.",
    inputs="Ledger (sha256)",
    inputs_note="Inputs as the run recorded them, and the files of the run as they are now.",
    input_columns=("Input", "sha256"),
    reproduce="Reproduce",
    reproduce_measure="Measure again (scenario sha256 {sha256}):",
    reproduce_report="Make the tables and this report again from the kept parts, without Ray and without the"
    " server:",
    reproduce_query="The records behind a number, as one point for example:",
    verdicts={
        "accepted": "accepted",
        "imported": "imported",
        "void": "void",
        "skipped": "skipped",
        None: "not measured",
    },
    yes="yes",
    no="no",
    plots=Plots(
        level="concurrency",
        rate="requests per second",
        output_throughput="Output throughput (tok/s)",
        ttft="TTFT",
        tpot="TPOT",
        pareto="Throughput against latency",
        pareto_x="E2E latency P95",
        pareto_front="not beaten in both",
        queueing="queueing point",
        hit_rates="Prefix hit rate of every attempt",
        hit_rate_x="attempts in the order of the report",
        hit_limit="limit {limit:g}",
        not_told="not told",
        does_not_count="attempt that does not count",
        waterfall="Requests of {point}",
        thinned="{shown} of {total} requests",
        phases={
            "queue": "queue (engine)",
            "prefill": "prefill",
            "first": "queue and prefill",
            "decode": "decode",
            "failed": "failed",
        },
        seconds="seconds since the first send",
        in_flight="In flight",
        in_flight_client="in flight (client)",
        running="running (engine)",
        queued="queued (engine)",
        gpu_memory="GPU memory in use",
        highest_gpu="highest GPU",
        lowest_gpu="lowest GPU",
        chunk_gaps="Gaps between chunks",
        chunk_gap_x="gap (not a TPOT: a chunk carries {tokens} tokens in the mean)",
        chunk_gap_y="chunks",
    ),
    page=Page(
        contents="Contents",
        points="Points in detail",
        pick="Point",
        previous="Previous point",
        next="Next point",
        requests_shown="{shown} of {total} requests of the counted attempt",
        request_columns=(
            "Ticket",
            "Sent (s)",
            "Queue (ms)",
            "TTFT (ms)",
            "TPOT (ms)",
            "E2E (ms)",
            "Input",
            "Output",
            "Cached",
            "Outcome",
            "Stands for",
            "Worker",
        ),
        no_records="This point has no records of requests.",
        ok="Requests ok / planned",
        hit_rates="Prefix hit rate",
        attempts="Attempts",
        accept_length="Accept length",
        headroom="Least GPU headroom",
        query="All its records:",
        file="File",
        sort="Sort by this column",
    ),
)
