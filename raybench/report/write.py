"""The files of a report: Markdown, page, JSON, figures. Needs no Ray and no server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib import import_module
from itertools import chain
from pathlib import Path

from raybench.analysis.stats import PERCENTILE_METHOD
from raybench.errors import ConfigError, ConfigProblem
from raybench.records.files import write_file
from raybench.records.strict_json import write_json
from raybench.report import html, markdown
from raybench.report.chart import Figure
from raybench.report.details import PointDetail, read_details
from raybench.report.document import Figures
from raybench.report.findings import counts_line
from raybench.report.point_plots import point_figures
from raybench.report.points import Point
from raybench.report.sections import notes, sections
from raybench.report.source import Source
from raybench.report.text import ENGLISH, Text

#: Pixels of a PNG for one of an SVG: sharp in a document and on a screen of high resolution.
PNG_SCALE = 2.0


@dataclass(frozen=True)
class Written:
    """Where the files of one report are."""

    markdown: Path
    page: Path
    json: Path


def write_report(
    source: Source,
    folder: Path,
    text: Text = ENGLISH,
    *,
    images: str | None = None,
    pooled: Source | None = None,
) -> Written:
    """Write the report of one run, or of several side by side; each file is old or new, never half.

    text: another language than English stands in the names: `report.zh.md`. images: `svg` or `png` files of every
    figure as well, in `plots/`. pooled: the source with repeats as one row (`repeats.pool_repeats`), where that
    is asked for. Raises RunDirectoryError for records that cannot be read.
    """
    shown = sections(source, text, pooled)
    details = _details(source)
    of_points = {
        index: point_figures(source.points[index], detail, source.arms, text) for index, detail in details.items()
    }
    title = text.title.format(run_id=source.title)
    suffix = "" if text.language == "en" else f".{text.language}"
    written = Written(
        markdown=folder / f"report{suffix}.md", page=folder / f"report{suffix}.html", json=folder / "report.json"
    )
    if images is not None:
        of_sections = [block.figures for one in shown for block in one.blocks if isinstance(block, Figures)]
        _write_images(folder / "plots", images, chain(*of_sections, *of_points.values()))
    write_json(written.json, report_json(source, text, pooled))
    write_file(written.markdown, markdown.render(title, shown, images).encode())
    write_file(written.page, html.render(title, source, shown, details, of_points, text).encode())
    return written


def _details(source: Source) -> dict[int, PointDetail]:
    """By the index of the point."""
    found: dict[int, PointDetail] = {}
    for index, run in enumerate(source.runs):
        own = [point for point in source.points if point["run"] == index]
        details = read_details(run.directory, own)
        found |= {point["index"]: details[point["point_id"]] for point in own if point["point_id"] in details}
    return found


def _write_images(folder: Path, kind: str, figures: Iterable[Figure]) -> None:
    encode = _png if kind == "png" else str.encode
    for name, data in {figure.name: encode(figure.svg) for figure in figures}.items():
        write_file(folder / f"{name}.{kind}", data)


def _png(svg: str) -> bytes:
    """Needs vl-convert's renderer, which is loaded for this alone."""
    try:
        renderer = import_module("vl_convert")
    except ImportError:
        problem = ConfigProblem("needs vl-convert-python", way_out="pip install 'raybench[png]', or --images svg")
        raise ConfigError("--images png", problem) from None
    picture: bytes = renderer.svg_to_png(svg, scale=PNG_SCALE)
    return picture


def report_json(source: Source, text: Text, pooled: Source | None = None) -> dict[str, object]:
    """The report for programs: full precision, undefined numbers null, void points marked by `verdict`.

    pooled: repeats as one row; `pooled` has each row with its observations, beside the points of every run.
    """
    return {
        "runs": [
            {
                "run_id": run.manifest.get("run_id"),
                "raybench_version": run.manifest.get("raybench_version"),
                "scenario_sha256": run.manifest.get("scenario_sha256"),
                "status": run.status,
                "warnings": list(run.warnings),
                "service": run.service,
                "probes": list(run.probes),
            }
            for run in source.runs
        ],
        "percentile_method": PERCENTILE_METHOD,
        "summary": counts_line(source, text),
        "points": source.points,
        "pooled": [] if pooled is None else [_plain(point) for point in pooled.points],
        "searches": list(source.searches),
        "artifacts": list(source.artifacts),
        "agreements": [asdict(one) for one in source.agreements],
        "facts": {arm: known.facts for arm, known in source.by_arm.items()},
        "gpus": {arm: known.gpus for arm, known in source.by_arm.items()},
        "limits": {arm: known.limits for arm, known in source.by_arm.items()},
        "processes": {arm: list(known.processes) for arm, known in source.by_arm.items()},
        "inventories": {arm: known.inventory for arm, known in source.by_arm.items()},
        "gates": {arm: known.gate for arm, known in source.by_arm.items()},
        "notes": notes(source, text),
    }


def _plain(point: Point) -> dict[str, object]:
    return point | {"pooled": {metric: asdict(one) for metric, one in point.get("pooled", {}).items()}}
