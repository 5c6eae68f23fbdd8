"""Every word that a report says, in English. Numbers, names and reasons come from the run itself.

Placeholders in braces are filled by `str.format`. Chinese (`text_zh`) says every name again in a subclass, so that
mypy compares the kinds and the numbers of columns; a test compares names and placeholders.
"""

from __future__ import annotations

from collections.abc import Mapping

from raybench.report.section_text import AgreementText, ArtifactText, SearchText


class DeploymentText:
    """The words of processes on the target's host, and of what arms are made of. reasons: why one ended."""

    heading = "Deployments"
    process_columns = ("Arm", "Load", "Process", "End")
    reasons: Mapping[str, str] = {
        "stopped": "stopped by raybench",
        "not_ready": "not ready in time",
        "out_of_memory": "out of memory",
        "out_of_host_memory": "out of host memory",
        "killed": "killed by somebody else",
        "failed": "failed",
        "ended": "ended by itself",
    }
    ledger = "What the arms are made of"
    ledger_columns = ("Arm", "What", "sha256 or version")


class Plots:
    """Words of the figures."""

    level = "concurrency"
    rate = "requests per second"
    trace_speed = "times the trace's own speed"
    output_throughput = "Output throughput (tok/s)"
    pareto = "Throughput against latency"
    pareto_x: Mapping[str, str] = {"e2e_ms_p95": "E2E latency P95", "ttft_ms_p95": "TTFT P95"}
    pareto_front = "not beaten in both"
    queueing = "queueing point"
    hit_rates = "Prefix hit rate of every attempt"
    hit_rate_x = "attempts in the order of the report"
    hit_limit = "limit {limit:g}"
    not_told = "not told"
    does_not_count = "attempt that does not count"
    waterfall = "Requests of {point}"
    thinned = "{shown} of {total} requests"
    phases: Mapping[str, str] = {
        "queue": "queue (engine)",
        "prefill": "prefill",
        "first": "queue and prefill",
        "decode": "decode",
        "failed": "failed",
    }
    seconds = "seconds since the first send"
    in_flight = "In flight"
    in_flight_client = "in flight (client)"
    running = "running (engine)"
    queued = "queued (engine)"
    gpu_memory = "GPU memory in use"
    highest_gpu = "highest GPU"
    lowest_gpu = "lowest GPU"
    chunk_gaps = "Gaps between chunks"
    chunk_gap_x = "gap (not a TPOT: a chunk carries {tokens} tokens in the mean)"
    chunk_gap_y = "chunks"


class Page:
    """Words that only the HTML page needs."""

    contents = "Contents"
    points = "Points in detail"
    pick = "Point"
    previous = "Previous point"
    next = "Next point"
    requests_shown = "{shown} of {total} requests of the counted attempt"
    request_columns = (
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
    )
    no_records = "This point has no records of requests."
    ok = "Requests ok / planned"
    hit_rates = "Prefix hit rate"
    attempts = "Attempts"
    accept_length = "Accept length"
    headroom = "Least GPU headroom"
    query = "All its records:"
    file = "File"
    sort = "Sort by this column"


class Text:
    """The words of one language; of another than English in a subclass."""

    language = "en"
    title = "Benchmark report: {run_id}"
    summary = "Summary"
    counts = "{total} points: {accepted} accepted, {void} void, {skipped} skipped, {missing} not measured."
    counts_imported = "{imported} imported."
    imported = (
        "Run {run_id} was not measured by raybench, which does not vouch for its numbers; imported from: {source}."
    )
    not_stated = "Not stated: {names}."
    nothing_valid = "No point is valid, so there is nothing to sum up."
    sequential = "All points are sequential: one request at a time (C=1)."
    ended = "The run ended as: {status}."
    simulated = "Simulated, no statement about any hardware: {arms}."
    separator = "; "
    ahead = "Clearly ahead"
    throughput = "Throughput"
    peak = "highest {metric} {value} tok/s ({point})"
    place = "{name}, {level}"
    at = " at C={levels}"
    lead_one = "{arm} ahead{at}{by}"
    lead_many = "{arm} ahead{at}, most at C={most_at}{by}"
    lead_by = " by {advantage} ({ahead} against {behind})"
    lead_by_next = " by {advantage} ({ahead} against {behind} of {other})"
    tie = "no clear difference ({within}){at}"
    tie_in_front = "{arms} ahead together ({within}){at}"
    within_floor = "within {floor:g} %"
    within_spread = "within the spread of repeats, or intervals overlap"
    crossover = "{to_arm} overtakes {from_arm} above C={above}, at C={at} at the latest"
    growth: Mapping[str, str] = {
        "climbing": "{arm} still climbing: {step} from C={before_at} to C={last_at}",
        "plateau": "{arm} on a plateau from C={plateau_from} on ({last} tok/s)",
        "falling": "{arm} falling: {last} at C={last_at} after {best} at C={best_at}",
    }
    queueing_points = "Queueing points, whose TTFT holds the wait inside the engine: {points}."
    queueing_point = "{workload} {arm} C={concurrency} ({waiting} wait)"
    tightest = "Tightest GPU of {arm}: {host} {gpu}, {headroom} free at least ({point})."
    reach = "valid numbers from {arm} only, none from {others}"
    steadiness = "{requests} requests counted, {failed} failed; {preemptions} retractions or preemptions."
    environment = "Environment and configuration"
    fact = "Fact"
    client = "Run {run_id} ({created}): raybench {raybench}, Python {python}, Ray {ray}"
    engine_facts: Mapping[str, str] = {
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
    }
    client_host = "Client host {host}: {cpus} usable CPUs ({cpu}), {memory} memory, {system} {kernel}"
    simulated_fact = "Simulated"
    simulated_value = "profile {profile}, time compressed {compression:g} times"
    engine_settings: Mapping[str, str] = {
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
    }
    settings_differ = "Further settings that differ, as the engines name them:"
    setting = "Setting"
    launch = "Launched as ({arm}):"
    gpus = "GPUs"
    gpu_unavailable = "not available ({reason})"
    protocol = "Protocol as executed"
    protocol_attempts = "{attempts} attempts for {points} measured points; {rejected} rejected."
    protocol_cold = (
        "Cold: prefix hit rate at most {limit:g} by every source that tells; highest of an accepted point:"
        " {highest}."
    )
    protocol_prewarm = "Prewarm: {count} requests of the same shape with other text before each attempt."
    protocol_flush = "Prefix cache flushed before each load, its reply read; idle before and after the prewarm."
    protocol_no_flush = "The prefix cache was not flushed: cold rests on fresh text and the hit check."
    protocol_load = (
        "Closed loop: concurrency C is held until no request is unsent; {streaming}; token counts as the server"
        " gives them."
    )
    protocol_open_loop = (
        "Open loop: each request is sent at its time by a schedule made from a seed or a trace, whatever became"
        " of the others; {streaming}; token counts as the server gives them."
    )
    streamed = "streaming"
    not_streamed = "not streamed"
    partly_streamed = "streaming, but for {workloads}"
    protocol_of = "Run {run_id}"
    rejected = "Attempts that do not count:"
    interrupted = "interrupted before its verdict"
    attempt_columns = ("Point", "Attempt", "Verdict", "Hit rates", "Windows", "Why")
    hit_sources: Mapping[str, str] = {"requests": "requests", "counters": "counters", "log": "log"}
    active_limits = "Active limits"
    active_limits_note = (
        "How many requests of a shape can run at once: min(max running requests, KV pool // (input + output)). A"
        " higher concurrency queues inside the engine."
    )
    workload = "Workload"
    limit_by_running = "max running requests"
    limit_by_pool = "KV pool"
    results = "Results"
    result_columns = ("C", "Arm", "Input TPS", "Output TPS", "TTFT P95", "TPOT P95", "n", "Verdict")
    results_note = "n: requests that gave a TTFT. For n < 20 the P95 is the maximum of n."
    level_column = "Level"
    repeats = "Repeats"
    repeats_note = (
        "Runs of one scenario. Every run's own value (its rate, its own percentile) is one observation: mean"
        " (lowest .. highest run; spread = (highest - lowest) / mean). Runs: valid / all; a run whose point is"
        " not valid is no observation."
    )
    repeats_columns = ("Workload", "C", "Arm", "Runs", "Input TPS", "Output TPS", "TTFT P95", "TPOT P95")
    pooled_note = (
        "Repeats (valid / all runs behind the verdict): each value is the mean of the runs' own values, a P95"
        " that of each run's own requests; n is the sum over the runs."
    )
    strong_repeats_note = (
        "Bold: ahead of every other arm at that level by more than the noise floor and without overlapping"
        " intervals. The floor is the repeats' spread from three on, at least {floor:g} % below."
    )
    open_loop = "Open loop"
    open_loop_note = (
        "Rates in requests per second: as scheduled, as sent, as completed. Latencies P95 from when a request was"
        " sent / from when it was scheduled; the difference is what waited in the client."
    )
    open_loop_columns = (
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
    )
    searches = SearchText()
    artifacts = ArtifactText()
    deployments = DeploymentText()
    boundary = "Context boundary"
    boundary_note = "One output token: these rows prove capacity and prefill only."
    boundary_columns = (
        "Input",
        "Arm",
        "Completed C",
        "Input TPS (lowest C)",
        "TTFT P95 (highest C)",
        "Not completed",
    )
    retest = "Retest"
    retest_note = (
        "Points that were measured in {before} and again in {after}. The value that counts in this report stands"
        " plain, the other is kept and struck."
    )
    retest_drifted = (
        "The environment drifted between the two runs of {arms}: nothing is claimed of any difference."
    )
    retest_unclear = "not clear"
    retest_anchor = "anchor"
    retest_final: Mapping[str, str] = {"before": "before", "after": "after"}
    retest_columns = ("Point", "Metric", "Before", "After", "Change", "Counts")
    vram = "GPU memory"
    vram_note = (
        "In use = total - free, over the loads of the accepted points. Idle: the least between ready and the"
        " first load."
    )
    vram_columns = ("Arm", "GPU", "Total", "Idle", "Mean", "Peak", "Least headroom", "Peak at")
    vram_unavailable = "No GPU samples of accepted points."
    agreement = AgreementText()
    appendix_windows = "Appendix A: corpus windows"
    appendix_windows_note = (
        "First and last token at which a request's text begins; each record names its own window (window_start,"
        " window_end)."
    )
    window_columns = ("Point", "Attempt", "Verdict", "Load windows", "Prewarm windows")
    appendix_points = "Appendix B: all points"
    appendix_columns = (
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
    )
    appendix_steady = "Appendix C: steady state and client"
    steady_note = (
        "Steady state: from the first to the last moment with at least 95 % of C in flight; its latencies are"
        " those of requests that ended in it. Shares are of the wall. Hand-over: from the end of a request to the"
        " send that fills its place. Waits are the client's own."
    )
    steady_columns = (
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
    )
    appendix_intervals = "Appendix D: confidence intervals"
    intervals_note = (
        "95 %, in brackets. Percentiles: between the two order statistics that enclose them, refused (—) where n"
        " is too small: below 6 for P50, below 72 for P95. Steady output rate: ten slices of the steady state,"
        " refused where a slice would be shorter than a request. Points without any are left out."
    )
    interval_columns = (
        "Workload",
        "C",
        "Arm",
        "n",
        "TTFT P50",
        "TTFT P95",
        "TPOT P50",
        "TPOT P95",
        "Output TPS steady",
    )
    invalid = "Points without a valid number"
    invalid_columns = ("Point", "Verdict", "Why")
    warnings = "Warnings"
    gpu_incomplete = "{point}: GPU samples are missing for a part of the load"
    notes = "Notes"
    percentile_note = (
        "Percentiles by nearest rank: the ceil(p*n/100)-th smallest of n. P95 is the maximum for n < 20. Failed"
        " requests give no latency sample and are never dropped from ok/n."
    )
    queueing_note = (
        "† queueing point: C exceeds the active limit, so TTFT contains the wait in the engine's queue."
    )
    struck_note = "Struck-through numbers belong to void points: they are kept, and count nowhere."
    strong_note = "Bold: ahead of every other arm at that level by more than the noise floor of {floor:g} %."
    throughput_note = "Input and output TPS: tokens of successful requests / wall, wall = first send to last end."
    inputs = "Ledger (sha256)"
    inputs_note = "Inputs as the run recorded them, and the files of the run as they are now."
    input_columns = ("Input", "sha256")
    reproduce = "Reproduce"
    reproduce_measure = "Measure again (scenario sha256 {sha256}):"
    reproduce_report = (
        "Make the tables and this report again from the kept parts, without Ray and without the server:"
    )
    reproduce_query = "The records behind a number, as one point for example:"
    verdicts: Mapping[str | None, str] = {
        "accepted": "accepted",
        "imported": "imported",
        "void": "void",
        "skipped": "skipped",
        None: "not measured",
    }
    yes = "yes"
    no = "no"
    plots = Plots()
    page = Page()


ENGLISH = Text()
