"""report.md: the report as Markdown that pastes into a chat document. Pure: source in, text out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raybench.report import artifacts, deployments, numbers, probes, searches, tables
from raybench.report.service import service_line
from raybench.report.source import Source
from raybench.report.tables import Row, Table
from raybench.report.text import Text
from raybench.scenario.levels import Level

#: Keys of the manifest that end so hold digests of inputs.
_SHA256 = "sha256"


def render(source: Source, text: Text) -> str:
    """The whole report."""
    title = text.title.format(run_id=source.manifest.get("run_id", numbers.UNKNOWN))
    blocks = [
        f"# {title}",
        *_section(text.summary, summary(source, text)),
        *_section(text.environment, _environment(source, text)),
        *_section(text.deployments.heading, _deployments(source, text)),
        *_section(text.protocol, _protocol(source, text)),
        *_section(text.active_limits, [text.active_limits_note, draw(tables.active_limit_table(source, text))]),
        *_section(text.results, _results(source, text)),
        *_section(text.open_loop, _open_loop(source, text)),
        *_section(text.searches.heading, _searches(source, text)),
        *_section(text.artifacts.gate, [draw(artifacts.gate_table(source.gates, text.artifacts))]),
        *_section(text.artifacts.heading, [*_artifacts(source, text), *_probes(source, text)]),
        *_section(text.boundary, _boundary(source, text)),
        *_section(text.vram, _vram(source, text)),
        *_section(text.invalid, _invalid(source, text)),
        *_section(text.warnings, _warnings(source, text)),
        *_section(text.notes, _bullets(notes(source, text))),
        *_section(text.inputs, [draw(_inputs(source.manifest, text))]),
        *_section(
            text.appendix_windows,
            [text.appendix_windows_note, draw(tables.window_table(source, text))],
        ),
        *_section(text.appendix_points, [draw(tables.appendix_table(source, text))]),
        *_section(text.appendix_steady, _steady(source, text)),
    ]
    return "\n\n".join(blocks) + "\n"


def _section(heading: str, blocks: list[str]) -> list[str]:
    """A heading and its blocks; nothing when there are none."""
    blocks = [block for block in blocks if block]
    return [f"## {heading}", *blocks] if blocks else []


def _bullets(lines: list[str]) -> list[str]:
    return ["\n".join(f"- {line}" for line in lines)] if lines else []


def draw(table: Table) -> str:
    """A Markdown table; empty when it has no rows."""
    if not table.rows:
        return ""
    rules = ["---:" if k in table.right else "---" for k in range(len(table.columns))]
    lines = [table.columns, tuple(rules), *(_cells(row) for row in table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cells(row: Row) -> tuple[str, ...]:
    plain = [cell.replace("|", "\\|").replace("\n", " ") for cell in row.cells]
    return tuple(f"~~{cell}~~" if k in row.struck else cell for k, cell in enumerate(plain))


def summary(source: Source, text: Text) -> list[str]:
    """Counts of verdicts, and the best valid throughput of each workload. Void points are not read."""
    verdicts = [point["verdict"] for point in source.points]
    counts = {name: verdicts.count(name) for name in ("accepted", "void", "skipped")}
    lines = [text.counts.format(total=len(verdicts), **counts, missing=verdicts.count(None))]
    if source.status not in (None, "complete"):
        lines[0] += " " + text.ended.format(status=source.status)
    if not counts["accepted"]:
        return [*lines, text.nothing_valid]
    return [*lines, *_bullets(list(_best(source, text)))]


def _best(source: Source, text: Text) -> Iterator[str]:
    for workload, points in source.workloads.items():
        valid = [
            point
            for point in points
            if point["verdict"] == "accepted"
            and not tables.is_boundary(point)
            and point["output_tokens_per_s"] is not None
        ]
        if valid:
            best = max(valid, key=lambda point: point["output_tokens_per_s"])
            yield text.best.format(
                workload=f"{workload} ({tables.shape(best)})",
                rate=numbers.rate(best["output_tokens_per_s"]),
                arm=best["arm"],
                level=Level.of_row(best).label,
            )


def _environment(source: Source, text: Text) -> list[str]:
    manifest = source.manifest
    client = text.client.format(
        raybench=manifest.get("raybench_version", numbers.UNKNOWN),
        python=manifest.get("python_version", numbers.UNKNOWN),
        ray=manifest.get("ray_version", numbers.UNKNOWN),
    )
    return [draw(tables.fact_table(source, text)), client]


def _deployments(source: Source, text: Text) -> list[str]:
    """Processes, their command lines, what arms are made of; how the service in use is."""
    service = [f"**{service_line(source.service)}**"] if source.service else []
    processes = draw(deployments.process_table(source, text))
    commands = _bullets(deployments.command_lines(source))
    ledger = draw(deployments.ledger_table(source, text))
    return [*service, processes, *commands, *([f"**{text.deployments.ledger}**", ledger] if ledger else [])]


def _protocol(source: Source, text: Text) -> list[str]:
    """What was really done, with the attempts that were rejected."""
    guards = source.guards
    measured = [point for point in source.points if point["attempts"]]
    rejected = tables.attempt_table(source, text)
    attempts = sum(point["attempts"] for point in measured)
    lines = _kinds_of_load(source, text)
    if "hit_rate_max" in guards:
        lines.append(text.protocol_cold.format(limit=guards["hit_rate_max"], highest=_highest_hit_rate(source)))
    if guards.get("prewarm_requests"):
        lines.append(text.protocol_prewarm.format(count=guards["prewarm_requests"]))
    if "flush" in guards:
        lines.append(text.protocol_flush if guards["flush"] else text.protocol_no_flush)
    lines.append(
        text.protocol_attempts.format(attempts=attempts, points=len(measured), rejected=len(rejected.rows))
    )
    blocks = _bullets(lines)
    return [*blocks, f"**{text.rejected}**", draw(rejected)] if rejected.rows else blocks


def _kinds_of_load(source: Source, text: Text) -> list[str]:
    closed = {Level.of_row(point).closed_loop for point in source.points}
    told = {True: text.protocol_load, False: text.protocol_open_loop}
    return [line for kind, line in told.items() if kind in closed]


def _highest_hit_rate(source: Source) -> str:
    rates = [
        rate
        for point in source.points
        if point["verdict"] == "accepted"
        for rate in point["hit_rates"].values()
        if rate is not None
    ]
    return numbers.share(max(rates, default=None))


def _results(source: Source, text: Text) -> list[str]:
    blocks = []
    for workload, points in source.workloads.items():
        if not all(tables.is_boundary(point) for point in points):
            blocks.append(f"### {workload} ({tables.shape(points[0])})")
            blocks.append(draw(tables.result_table(points, source.arms, text)))
    return blocks


def _open_loop(source: Source, text: Text) -> list[str]:
    table = tables.open_loop_table(source, text)
    return [text.open_loop_note, draw(table)] if table.rows else []


def _searches(source: Source, text: Text) -> list[str]:
    blocks = [text.searches.note] if source.searches else []
    for entry in source.searches:
        blocks.append(f"### {searches.title(entry, text)}")
        blocks += _bullets(searches.answer(entry, text))
        blocks.append(draw(searches.probe_table(entry, text)))
    return blocks


def _artifacts(source: Source, text: Text) -> list[str]:
    free = {
        point["point_id"]: min(gpu["memory_total_bytes"] - gpu["idle_bytes"] for gpu in known)
        for point in source.points
        if (known := [gpu for gpu in point["gpus"] if gpu["idle_bytes"] is not None and gpu["memory_total_bytes"]])
    }
    blocks = []
    for titled in artifacts.comparisons(source.artifacts, free, text.artifacts):
        blocks += [f"### {titled.title}", titled.note, draw(titled.table)]
    return [text.artifacts.note, *blocks] if blocks else []


def _probes(source: Source, text: Text) -> list[str]:
    words, blocks = text.artifacts, []
    for probe in source.probes:
        blocks.append(f"### {words.probes.format(arm=probe['arm'], parameter=probe['parameter'])}")
        blocks += [words.probes_note.format(folder=probe["folder"]), draw(probes.probe_table(probe))]
    return blocks


def _boundary(source: Source, text: Text) -> list[str]:
    table = tables.boundary_table(source, text)
    return [text.boundary_note, draw(table)] if table.rows else []


def _steady(source: Source, text: Text) -> list[str]:
    table = tables.steady_table(source, text)
    return [text.steady_note, draw(table)] if table.rows else []


def _vram(source: Source, text: Text) -> list[str]:
    table = tables.vram_table(source, text)
    return [text.vram_note, draw(table)] if table.rows else [text.vram_unavailable]


def _invalid(source: Source, text: Text) -> list[str]:
    invalid = [point for point in source.points if point["verdict"] != "accepted"]
    return _bullets([f"{point['point_id']}: {tables.verdict(point, text)}" for point in invalid])


def _warnings(source: Source, text: Text) -> list[str]:
    """Findings that do not void an accepted point, then what merge found in the files."""
    lines = [
        f"{point['point_id']}: {found['message']}"
        for point in source.points
        if point["verdict"] == "accepted"
        for found in point["findings"]
        if found["severity"] == "warning"
    ]
    lines += [
        f"{point['point_id']}: GPU data incomplete" for point in source.points if point["gpu_data"] == "incomplete"
    ]
    return _bullets([*lines, *source.warnings])


def notes(source: Source, text: Text) -> list[str]:
    """How to read the numbers; marks are explained where they occur."""
    lines = [text.percentile_note, text.throughput_note]
    if any(point["queueing"] for point in source.points):
        lines.append(text.queueing_note)
    if any(point["verdict"] == "void" and point["requests"] is not None for point in source.points):
        lines.append(text.struck_note)
    return lines


def _inputs(manifest: Mapping[str, object], text: Text) -> Table:
    rows = [Row((name, digest)) for name, digest in sorted(_digests(manifest, ""))]
    return Table(text.input_columns, rows)


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
