"""The sections of a report in their order, from what was read. Pure: the same blocks for Markdown and the page."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from raybench.analysis.difference import NOISE_FLOOR_PERCENT
from raybench.analysis.points import free_idle_bytes, has_numbers, is_boundary
from raybench.deploy.digests import digest_file
from raybench.deploy.keeping import is_back
from raybench.report import artifacts, numbers, plots, searches
from raybench.report.agreement import agreement_section
from raybench.report.document import (
    Block,
    Bullets,
    Code,
    Figures,
    Heading,
    Paragraph,
    Row,
    Section,
    Table,
    bullets,
    noted,
)
from raybench.report.environment import (
    active_limit_table,
    differing_table,
    fact_table,
    launch_commands,
    made_of_table,
    process_table,
    vram_table,
)
from raybench.report.findings import summary
from raybench.report.points import Point, is_open_loop
from raybench.report.repeats import repeats_table
from raybench.report.retest import retest_section
from raybench.report.service import service_line
from raybench.report.source import Run, Source
from raybench.report.tables import (
    appendix_table,
    attempt_table,
    boundary_table,
    interval_table,
    invalid_table,
    open_loop_table,
    result_table,
    steady_table,
    window_table,
)
from raybench.report.text import Text

#: Keys of the manifest that end so hold digests of inputs.
_SHA256 = "sha256"


def sections(source: Source, text: Text, pooled: Source | None = None) -> list[Section]:
    """All of them but those without content.

    pooled: the same with repeats as one row, for what compares arms; what tells of runs tells of each.
    """
    arms = pooled or source
    made = [
        Section("summary", text.summary, (*_descriptions(source), *summary(arms, text))),
        Section("environment", text.environment, tuple(_environment(source, text))),
        Section("deployments", text.deployments.heading, tuple(_deployments(source, text))),
        Section("protocol", text.protocol, tuple(_protocol(source, text))),
        Section(
            "limits",
            text.active_limits,
            noted(text.active_limits_note, active_limit_table(arms, text)),
        ),
        Section("results", text.results, tuple(_results(arms, text))),
        Section("repeats", text.repeats, _repeats(pooled, text)),
        Section("open-loop", text.open_loop, noted(text.open_loop_note, open_loop_table(source, text))),
        Section("searches", text.searches.heading, tuple(_searches(source, text))),
        Section("gate", text.artifacts.gate, noted("", _gates(source, text))),
        Section("artifacts", text.artifacts.heading, (*_artifacts(source, text), *_probes(source, text))),
        Section("boundary", text.boundary, noted(text.boundary_note, boundary_table(arms, text))),
        Section("retest", text.retest, tuple(retest_section(source, text))),
        Section("memory", text.vram, _vram(source, text)),
        Section("agreement", text.agreement.heading, tuple(agreement_section(source.agreements, text))),
        Section("invalid", text.invalid, noted("", invalid_table(source, text))),
        Section("warnings", text.warnings, tuple(_warnings(source, text))),
        Section("notes", text.notes, (bullets(*notes(source, text)),)),
        Section("reproduce", text.reproduce, tuple(_reproduce(source, pooled, text))),
        Section("ledger", text.inputs, (Paragraph(text.inputs_note), ledger_table(source, text))),
        Section("windows", text.appendix_windows, noted(text.appendix_windows_note, window_table(source, text))),
        Section("points", text.appendix_points, noted("", appendix_table(source, text))),
        Section("steady", text.appendix_steady, noted(text.steady_note, steady_table(source, text))),
        Section("intervals", text.appendix_intervals, noted(text.intervals_note, interval_table(source, text))),
    ]
    return [section for section in made if section.blocks]


def _descriptions(source: Source) -> Iterator[Block]:
    """What the scenarios say of themselves, each sentence once."""
    scenarios = (run.manifest.get("scenario") or {} for run in source.runs)
    for description in dict.fromkeys(scenario.get("description") for scenario in scenarios):
        if description:
            yield Paragraph(description)


def _environment(source: Source, text: Text) -> Iterator[Block]:
    yield fact_table(source, text)
    differing = differing_table(source, text)
    if differing.rows:
        yield Paragraph(text.settings_differ)
        yield differing
    for run in source.runs:
        yield bullets(*(_origin(run, text) if run.imported else _client(run, text)))
    for arm, command in launch_commands(source):
        yield Paragraph(text.launch.format(arm=arm))
        yield Code(command)


def _client(run: Run, text: Text) -> Iterator[str]:
    """With what a run was measured, and from where."""
    manifest = run.manifest
    yield text.client.format(
        run_id=run.run_id,
        created=numbers.moment(manifest.get("created_unix_ns")),
        raybench=manifest.get("raybench_version", numbers.UNKNOWN),
        python=manifest.get("python_version", numbers.UNKNOWN),
        ray=manifest.get("ray_version", numbers.UNKNOWN),
    )
    for host, facts in (manifest.get("hosts") or {}).items():
        yield text.client_host.format(
            host=host,
            cpus=facts.get("cpus_usable") or numbers.UNKNOWN,
            cpu=facts.get("cpu_model") or numbers.UNKNOWN,
            memory=numbers.memory(facts.get("memory_total_bytes")),
            system=facts.get("system") or numbers.UNKNOWN,
            kernel=facts.get("kernel") or "",
        )


def _origin(run: Run, text: Text) -> Iterator[str]:
    """Where imported numbers come from, under which conditions, and what their source leaves open."""
    imported = run.imported
    yield text.imported.format(run_id=run.run_id, source=imported.get("source"))
    yield from (f"{name}: {value}" for name, value in (imported.get("conditions") or {}).items())
    if imported.get("not_stated"):
        yield text.not_stated.format(names=", ".join(imported["not_stated"]))


def _deployments(source: Source, text: Text) -> Iterator[Block]:
    """How the service in use is, the processes that were started, and what arms are made of."""
    for service in (run.service for run in source.runs if run.service):
        yield Paragraph(service_line(service), tone="" if is_back(service) else "bad")
    processes = process_table(source, text)
    if processes.rows:
        yield processes
    made_of = made_of_table(source, text)
    if made_of.rows:
        yield Heading(text.deployments.ledger)
        yield made_of


def _protocol(source: Source, text: Text) -> Iterator[Block]:
    """What was really done, run by run, with the attempts that were rejected."""
    for index, run in enumerate(source.runs):
        points = [point for point in source.points if point["run"] == index]
        measured = [point for point in points if point["attempts"]]
        if len(source.runs) > 1:
            yield Heading(text.protocol_of.format(run_id=run.run_id))
        rejected = attempt_table(points, text)
        if measured:
            attempts = sum(point["attempts"] for point in measured)
            told = text.protocol_attempts.format(
                attempts=attempts, points=len(measured), rejected=len(rejected.rows)
            )
            yield bullets(*_steps(run, measured, text), told)
        if rejected.rows:
            yield Paragraph(text.rejected)
            yield rejected
    figure = plots.hit_rate_figure(source, text)
    if figure is not None:
        yield Figures((figure,))


def _steps(run: Run, measured: Sequence[Point], text: Text) -> Iterator[str]:
    guards = run.guards
    closed = [point for point in measured if not is_open_loop(point)]
    opened = [point for point in measured if is_open_loop(point)]
    if closed:
        yield text.protocol_load.format(streaming=_streaming(run, closed, text))
    if opened:
        yield text.protocol_open_loop.format(streaming=_streaming(run, opened, text))
    if "hit_rate_max" in guards:
        yield text.protocol_cold.format(limit=guards["hit_rate_max"], highest=_highest_hit_rate(measured))
    if guards.get("prewarm_requests") and any(_was_prewarmed(point) for point in measured):
        yield text.protocol_prewarm.format(count=guards["prewarm_requests"])
    if "flush" in guards:
        yield text.protocol_flush if guards["flush"] else text.protocol_no_flush


def _streaming(run: Run, points: Sequence[Point], text: Text) -> str:
    """Whether answers came as streams, and of which workloads they did not."""
    workloads = list(dict.fromkeys(point["workload"] for point in points))
    whole = [name for name in workloads if name in run.not_streamed]
    if not whole:
        return text.streamed
    return text.not_streamed if whole == workloads else text.partly_streamed.format(workloads=", ".join(whole))


def _was_prewarmed(point: Point) -> bool:
    """Prompts of a set are sent without: there is no other text of their shape."""
    return any(attempt["windows"].get("prewarm") for attempt in point["attempt_history"])


def _highest_hit_rate(points: Sequence[Point]) -> str:
    rates = [
        rate for point in points if has_numbers(point) for rate in point["hit_rates"].values() if rate is not None
    ]
    return numbers.share(max(rates, default=None))


def _results(source: Source, text: Text) -> Iterator[Block]:
    shown = {
        workload: points
        for workload, points in source.workloads.items()
        if not all(is_boundary(point) for point in points)
    }
    if shown:
        yield Paragraph(" ".join(_result_notes(source, text)))
    for workload, points in shown.items():
        yield Heading(workload)
        yield result_table(points, source.arms, text)
        if figures := plots.workload_figures(points, source, text):
            yield Figures(tuple(figures))


def _searches(source: Source, text: Text) -> Iterator[Block]:
    if source.searches:
        yield Paragraph(text.searches.note)
    for entry in source.searches:
        yield Heading(searches.title(entry, text))
        yield bullets(*searches.answer(entry, text))
        yield searches.probe_table(entry, text)


def _gates(source: Source, text: Text) -> Table:
    gates = {arm: known.gate for arm, known in source.by_arm.items() if known.gate}
    return artifacts.gate_table(gates, text.artifacts)


def _artifacts(source: Source, text: Text) -> Iterator[Block]:
    free = {point["name"]: free_idle_bytes(point) for point in source.points}
    return artifacts.comparisons(source.artifacts, free, text.artifacts)


def _probes(source: Source, text: Text) -> Iterator[Block]:
    for probe in (probe for run in source.runs for probe in run.probes):
        yield Heading(text.artifacts.probes.format(arm=probe["arm"], parameter=probe["parameter"]))
        yield from noted(text.artifacts.probes_note.format(folder=probe["folder"]), artifacts.probe_table(probe))


def _repeats(pooled: Source | None, text: Text) -> tuple[Block, ...]:
    return () if pooled is None else noted(text.repeats_note, repeats_table(pooled, text))


def _result_notes(source: Source, text: Text) -> Iterator[str]:
    yield text.results_note
    repeated = any("pooled" in point for point in source.points)
    if repeated:
        yield text.pooled_note
    if len(source.arms) > 1:
        note = text.strong_repeats_note if repeated else text.strong_note
        yield note.format(floor=NOISE_FLOOR_PERCENT)


def _vram(source: Source, text: Text) -> tuple[Block, ...]:
    return noted(text.vram_note, vram_table(source, text)) or (Paragraph(text.vram_unavailable),)


def _warnings(source: Source, text: Text) -> Iterator[Bullets]:
    """Findings that do not void an accepted point, then what merge found in the files."""
    lines = [
        f"{point['name']}: {found['message']}"
        for point in source.points
        if has_numbers(point)
        for found in point["findings"]
        if found["severity"] == "warning"
    ]
    lines += [
        text.gpu_incomplete.format(point=point["name"])
        for point in source.points
        if point["gpu_data"] == "incomplete"
    ]
    lines += [warning for run in source.runs for warning in run.warnings]
    if lines:
        yield bullets(*lines)


def notes(source: Source, text: Text) -> list[str]:
    """How to read the numbers; marks are explained where they occur."""
    lines = [text.percentile_note, text.throughput_note]
    if any(point["queueing"] for point in source.points):
        lines.append(text.queueing_note)
    if any(point["verdict"] == "void" and point["requests"] is not None for point in source.points):
        lines.append(text.struck_note)
    return lines


def _reproduce(source: Source, pooled: Source | None, text: Text) -> Iterator[Block]:
    for run in source.runs:
        if run.manifest.get("scenario_source"):
            yield Paragraph(
                text.reproduce_measure.format(sha256=run.manifest.get("scenario_sha256", numbers.UNKNOWN))
            )
            yield Code(shlex.join(["raybench", "submit", str(run.manifest["scenario_source"])]))
    yield Paragraph(text.reproduce_report)
    names = [folder_name(run) for run in source.runs]
    several = [] if len(names) == 1 else ["--output", "REPORT_FOLDER"]
    pool = [] if pooled is None else ["--pool"]
    language = [] if text.language == "en" else ["--lang", text.language]
    merges = [shlex.join(["raybench", "merge", folder_name(run)]) for run in source.runs if run.measured_here]
    yield Code("\n".join([*merges, shlex.join(["raybench", "report", *names, *pool, *language, *several])]))
    measured = next((point for point in source.points if point["requests"]), None)
    if measured is not None:
        yield Paragraph(text.reproduce_query)
        yield Code(query_line(source, measured))


def query_line(source: Source, point: Mapping[str, object]) -> str:
    """The command that lists the records behind a point's numbers, or its row where there are none."""
    run = source.runs[int(str(point["run"]))]
    point_id = str(point["point_id"]).replace("'", "''")
    statement = f"select * from requests where point_id = '{point_id}' and phase = 'load' and final"
    if not run.measured_here:
        statement = f"select * from points where point_id = '{point_id}'"
    return f'raybench query {shlex.quote(folder_name(run))} "{statement}"'


def folder_name(run: Run) -> str:
    """The run directory as it lies where it was made; a report names no place of one machine."""
    return f"runs/{run.directory.path.name}"


def ledger_table(source: Source, text: Text) -> Table:
    """Digests that the runs recorded of their inputs, and those of the runs' own files as they are now."""
    rows = []
    for run in source.runs:
        before = f"{run.run_id}: " if len(source.runs) > 1 else ""
        recorded = sorted(_digests(run.manifest, ""))
        rows += [Row((before + name, digest)) for name, digest in [*recorded, *_files(run.directory.path)]]
    return Table(text.input_columns, rows)


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Manifest, journal, tables and what each arm's engine and devices said."""
    names = ["manifest.json", "journal.jsonl", *(path.name for path in sorted(folder.glob("*.parquet")))]
    for path in [*(folder / name for name in names), *sorted(folder.glob("arms/*/*.json"))]:
        if path.is_file():
            yield path.relative_to(folder).as_posix(), digest_file(path).sha256


def _digests(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Every sha256 of the manifest with its place: `scenario`, `corpus`, ..."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and key.endswith(_SHA256):
                own = key.removesuffix(_SHA256).rstrip("_")
                yield "/".join(part for part in (path, own) if part) or _SHA256, inner
            else:
                yield from _digests(inner, f"{path}/{key}".strip("/"))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            name = inner.get("name", str(index)) if isinstance(inner, Mapping) else str(index)
            yield from _digests(inner, f"{path}/{name}".strip("/"))
