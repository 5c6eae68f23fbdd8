"""Every word that a report says, by language. Numbers, names and reasons come from the run itself.

English is in `text_en`, Chinese in `text_zh`. A test compares the placeholders of both.
"""

from __future__ import annotations

from dataclasses import dataclass

from raybench.report.artifact_text import ArtifactText


@dataclass(frozen=True)
class Text:
    """The words of one language. Placeholders in braces are filled by `str.format`."""

    language: str
    title: str
    summary: str
    counts: str
    counts_imported: str
    imported: str
    not_stated: str
    nothing_valid: str
    sequential: str
    ended: str
    simulated: str
    separator: str
    ahead: str
    throughput: str
    peak: str
    place: str
    at: str
    lead_one: str
    lead_many: str
    lead_by: str
    lead_by_next: str
    tie: str
    tie_in_front: str
    within_floor: str
    within_spread: str
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
    settings_differ: str
    setting: str
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
    protocol_open_loop: str
    streamed: str
    not_streamed: str
    partly_streamed: str
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
    repeats: str
    repeats_note: str
    repeats_columns: tuple[str, ...]
    pooled_note: str
    strong_repeats_note: str
    open_loop: str
    open_loop_note: str
    open_loop_columns: tuple[str, ...]
    searches: SearchText
    artifacts: ArtifactText
    deployments: DeploymentText
    boundary: str
    boundary_note: str
    boundary_columns: tuple[str, ...]
    retest: str
    retest_note: str
    retest_drifted: str
    retest_unclear: str
    retest_anchor: str
    retest_final: dict[str, str]
    retest_columns: tuple[str, ...]
    vram: str
    vram_note: str
    vram_columns: tuple[str, ...]
    vram_unavailable: str
    agreement: AgreementText
    appendix_windows: str
    appendix_windows_note: str
    window_columns: tuple[str, ...]
    appendix_points: str
    appendix_columns: tuple[str, ...]
    appendix_steady: str
    steady_note: str
    steady_columns: tuple[str, ...]
    appendix_intervals: str
    intervals_note: str
    interval_columns: tuple[str, ...]
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
    """The words of processes on the target's host, and of what arms are made of. reasons: why one ended."""

    heading: str
    process_columns: tuple[str, ...]
    reasons: dict[str, str]
    ledger: str
    ledger_columns: tuple[str, ...]


@dataclass(frozen=True)
class AgreementText:
    """The words of the engine's books beside the records; `names` are those of `analysis.agreement`."""

    heading: str
    note: str
    verdict: str
    nothing: str
    columns: tuple[str, ...]
    names: dict[str, str]
    mean: str
    paired: str
    judgements: dict[str, str]


@dataclass(frozen=True)
class Plots:
    """Words of the figures."""

    level: str
    rate: str
    trace_speed: str
    output_throughput: str
    pareto: str
    pareto_x: dict[str, str]
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
