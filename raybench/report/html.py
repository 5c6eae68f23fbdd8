"""The page of a report: one HTML file that works offline, with figures, sortable tables and every point in detail.

The template, its style and its script lie in `page/`. The figures are SVG made ahead and the rest is plain HTML,
so that a page of 44 points and 2,000 requests is about a megabyte and opens at once; only the point that is
looked at is in the document.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

import raybench
from raybench.report import numbers
from raybench.report.chart import Figure
from raybench.report.details import OWN_VALUES, PointDetail
from raybench.report.document import Section
from raybench.report.metric_words import label
from raybench.report.points import Point, level_name, workload_label
from raybench.report.sections import folder_name, query_line
from raybench.report.source import Source
from raybench.report.tables import hit_rates_text, verdict
from raybench.report.text import Text

#: The last section that stands before the points in detail.
_LAST_BEFORE = "memory"


def render(
    title: str,
    source: Source,
    sections: Sequence[Section],
    details: Mapping[int, PointDetail],
    figures: Mapping[int, Sequence[Figure]],
    text: Text,
) -> str:
    """The whole page. details, figures: by the index of the point, of those that have records."""
    folder = files("raybench.report").joinpath("page")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters["kind"] = lambda block: type(block).__name__
    template = environment.from_string(folder.joinpath("page.html.j2").read_text("utf-8"))
    before = 1 + [section.key for section in sections].index(_LAST_BEFORE)
    return template.render(
        title=title,
        subtitle=f"raybench {raybench.__version__}",
        text=text,
        style=Markup(folder.joinpath("page.css").read_text("utf-8")),
        script=Markup(folder.joinpath("page.js").read_text("utf-8")),
        before=sections[:before],
        after=sections[before:],
        points=[
            _point(point, details.get(point["index"]), source, text) | {"figures": figures.get(point["index"], ())}
            for point in source.points
        ],
        requests={index: _requests(detail, source.points[index]) for index, detail in details.items()},
    )


def _point(point: Point, detail: PointDetail | None, source: Source, text: Text) -> dict[str, object]:
    run = source.runs[point["run"]]
    return {
        "index": point["index"],
        "name": f"{point['arm']} · {point['workload']} · {level_name(point)}",
        "workload": workload_label(point),
        "verdict": point["verdict"],
        "verdict_note": "" if point["verdict"] == "accepted" else text.verdicts[point["verdict"]],
        "verdict_text": verdict(point, text),
        "findings": [f"{found['severity']}: {found['message']}" for found in point["findings"]],
        "facts": _facts(point, text),
        "has_records": detail is not None,
        "requests_shown": ""
        if detail is None
        else text.page.requests_shown.format(
            shown=numbers.count(len(detail.requests)), total=numbers.count(detail.total)
        ),
        "query": query_line(source, point),
        "file": f"{folder_name(run)}/{run.directory.requests_parquet.name}",
    }


def _facts(point: Point, text: Text) -> list[tuple[str, str]]:
    """The headline numbers of a point, each with the name that tables give it."""
    return [
        (text.page.ok, f"{numbers.count(point['requests_ok'])} / {numbers.count(point['requests_planned'])}"),
        (label("input_tokens_per_s"), numbers.rate(point["input_tokens_per_s"])),
        (label("output_tokens_per_s"), numbers.rate(point["output_tokens_per_s"])),
        *(
            (f"{name} P50 / P95 / P99", numbers.latencies(_parts(point, column), decimals_ms=decimals))
            for name, column, decimals in (("TTFT", "ttft_ms", 0), ("TPOT", "tpot_ms", 1), ("E2E", "e2e_ms", 0))
        ),
        (text.page.hit_rates, hit_rates_text(point["hit_rates"], text)),
        (text.page.attempts, numbers.count(point["attempts"])),
        (text.page.accept_length, numbers.fixed(point["accept_length"], 3)),
        (text.page.headroom, numbers.memory(point["gpu_headroom_min_bytes"])),
    ]


def _parts(point: Point, column: str) -> list[float | None]:
    return [point[f"{column}_{part}"] for part in ("p50", "p95", "p99")]


def _requests(detail: PointDetail, point: Point) -> list[list[Any]]:
    """One array a request in the order of `Page.request_columns`."""
    return [
        [
            row["ticket"],
            _rounded(row["sent_s"], 4),
            None if row["queue_s"] is None else _rounded((row["queue_s"] - row["sent_s"]) * 1e3, 2),
            _rounded(row["ttft_ms"], 2),
            _rounded(row["tpot_ms"], 3),
            _rounded(row["e2e_ms"], 2),
            row["input_tokens"],
            row["output_tokens"],
            row["cached_tokens"],
            row["outcome"] if row["outcome"] == "ok" else row["error_class"] or row["outcome"],
            _stands_for(row, point),
            row["worker"],
        ]
        for row in detail.requests
    ]


def _stands_for(row: Mapping[str, Any], point: Point) -> str:
    """`TTFT P95, E2E max`: nearest rank makes a percentile one request's own value."""
    return ", ".join(
        label(name)
        for name, column in OWN_VALUES.items()
        if point[name] is not None and row[column] == point[name]
    )


def _rounded(value: float | None, decimals: int) -> float | None:
    return None if value is None else round(value, decimals)
