"""report.md and report.json of a merged run directory. Needs no Ray and no server."""

from __future__ import annotations

from pathlib import Path

from raybench.analysis.stats import PERCENTILE_METHOD
from raybench.records.files import write_file
from raybench.records.rundir import RunDirectory, write_json
from raybench.report.markdown import notes, render, summary
from raybench.report.source import Source, read_source
from raybench.report.text import TEXTS, Text


def write_report(run: RunDirectory, language: str = "en") -> Path:
    """Write both files, each atomically; the path of report.md.

    Raises RunDirectoryError when the run was not merged.
    """
    source, text = read_source(run), TEXTS[language]
    write_json(run.report_json, report_json(source, text))
    write_file(run.report_md, render(source, text).encode())
    return run.report_md


def report_json(source: Source, text: Text) -> dict[str, object]:
    """The report for programs: full precision, undefined numbers null, void points marked by `verdict`."""
    return {
        "run_id": source.manifest.get("run_id"),
        "raybench_version": source.manifest.get("raybench_version"),
        "scenario_sha256": source.manifest.get("scenario_sha256"),
        "status": source.status,
        "percentile_method": PERCENTILE_METHOD,
        "summary": summary(source, text)[0],
        "points": source.points,
        "searches": source.searches,
        "artifacts": source.artifacts,
        "gates": source.gates,
        "probes": source.probes,
        "facts": source.facts,
        "gpus": source.gpus,
        "limits": source.limits,
        "processes": source.processes,
        "inventories": source.inventories,
        "service": source.service,
        "warnings": source.warnings,
        "notes": notes(source, text),
    }
