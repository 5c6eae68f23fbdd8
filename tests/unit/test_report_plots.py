"""Which figures there are, what they leave out, and that an arm looks the same in all of them."""

import math
import re
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import pytest
from synthetic_run import whole_run

from raybench.analysis.merge import merge
from raybench.records.rundir import RunDirectory
from raybench.report import plots, point_plots
from raybench.report.details import read_details
from raybench.report.source import Source, read_source
from raybench.report.text import ENGLISH


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    made = whole_run(tmp_path_factory.mktemp("plots") / "run")
    merge(made)
    return read_source(made)


def test_arms_differ_in_colour_and_in_marker() -> None:
    style = plots.styles([f"arm{k}" for k in range(30)])
    assert len(set(style.values())) == 30
    first = list(style.values())[:5]
    assert len({one.color for one in first}) == len({one.shape for one in first}) == 5


#: Linear RGB as those see it who lack one kind of cone (Vienot, Brettel and Mollon 1999).
LACKING = {
    "red": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
    "green": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_colours_of_the_first_four_arms_keep_apart_without_one_kind_of_cone(lacking: str) -> None:
    seen = {color: _seen(color, LACKING[lacking]) for color in plots.COLORS[:4]}
    for one, other in combinations(seen, 2):
        assert math.dist(seen[one], seen[other]) > 70, f"{one} and {other} look alike"


def _seen(color: str, matrix: tuple[tuple[float, ...], ...]) -> list[float]:
    linear = [(int(color[k : k + 2], 16) / 255) ** 2.2 for k in (1, 3, 5)]
    mixed = (sum(weight * part for weight, part in zip(row, linear, strict=True)) for row in matrix)
    return [255 * max(value, 0.0) ** (1 / 2.2) for value in mixed]


def test_void_points_and_points_without_numbers_are_in_no_figure_that_compares(source: Source) -> None:
    workload = source.workloads["1k (1k -> 11)"]
    figures = plots.workload_figures(workload, source, ENGLISH)
    assert [figure.name for figure in figures] == ["throughput_1k", "ttft_1k", "tpot_1k", "pareto_1k"]
    for figure in figures:
        assert "tp8" not in figure.svg
        assert set(re.findall(r'href="(#point-\d+)"', figure.svg)) == {"#point-0", "#point-1"}


def test_a_queueing_point_is_hollow_and_the_legend_says_so(source: Source) -> None:
    throughput, *_ = plots.workload_figures(source.workloads["1k (1k -> 11)"], source, ENGLISH)
    assert ENGLISH.plots.queueing in throughput.svg
    assert len(re.findall(r'<a href="#point-1"><g><circle [^>]*fill="#ffffff"', throughput.svg)) == 1
    assert len(re.findall(r'<a href="#point-0"><g><circle [^>]*fill="#0072B2"', throughput.svg)) == 1


def test_a_boundary_row_has_no_figure_over_the_level(source: Source) -> None:
    assert plots.workload_figures(source.workloads["512k (512k -> 1)"], source, ENGLISH) == []


def test_closed_and_open_loops_are_drawn_apart(source: Source) -> None:
    closed = source.points[0]
    rated = [closed | {"concurrency": None, "rate_per_s": rate, "queueing": None} for rate in (4.0, 12.5)]
    figures = plots.workload_figures([closed, source.points[1], *rated], source, ENGLISH)
    names = [figure.name for figure in figures]
    assert "throughput_1k" in names
    assert "throughput_1k_rate" in names
    assert ENGLISH.plots.rate in figures[names.index("throughput_1k_rate")].svg


def test_a_single_point_has_no_figure_over_its_level(source: Source) -> None:
    assert plots.workload_figures(source.points[:1], source, ENGLISH) == []


def test_the_proof_of_cold_caches_shows_every_attempt_with_what_was_not_told(source: Source) -> None:
    figure = plots.hit_rate_figure(source, ENGLISH)
    assert figure is not None
    tips = re.findall(r"<title>([^<]*)</title></g>", figure.svg)
    assert "tp2pp4/1k/c4, 1: requests 0.9998" in tips
    assert "tp2pp4/1k/c2, 1: counters not told" in tips
    assert ENGLISH.plots.does_not_count in figure.svg


def test_zero_has_a_place_of_its_own_below_every_rate_and_above_the_unknown() -> None:
    places = [plots._hit_place(rate) for rate in (None, 0.0, 1e-9, 1e-4, 0.01, 1.0)]
    assert places == sorted(places)
    assert len(set(places[:3])) == 3


def _row(**changes: object) -> dict[str, object]:
    row = {"outcome": "ok", "sent_s": 0.0, "queue_s": 0.5, "first_s": 1.0, "last_s": 3.0, "end_s": 3.1}
    return row | changes


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("queue", 0.0, 0.5), ("prefill", 0.5, 1.0), ("decode", 1.0, 3.0)]),
        ({"queue_s": None}, [("first", 0.0, 1.0), ("decode", 1.0, 3.0)]),
        ({"queue_s": -0.1}, [("first", 0.0, 1.0), ("decode", 1.0, 3.0)]),  # a wait below zero is none
        ({"queue_s": 1.5}, [("first", 0.0, 1.0), ("decode", 1.0, 3.0)]),
        ({"outcome": "timeout"}, [("failed", 0.0, 3.1)]),
    ],
)
def test_phases_of_a_request(changes: Mapping[str, object], expected: list[tuple[str, float, float]]) -> None:
    assert point_plots.phases(_row(**changes)) == expected


def test_the_front_is_what_no_other_point_beats_in_both() -> None:
    assert plots._front([(3, 30), (1, 10), (2, 5), (4, 30), (1, 8)]) == [(1, 10), (3, 30)]


def test_a_point_has_its_requests_over_its_memory_and_its_chunk_gaps(source: Source) -> None:
    run = source.runs[0].directory
    detail = read_details(run, source.points)["tp2pp4/1k/c2"]
    requests, *_ = point_plots.point_figures(source.points[0], detail, source.arms, ENGLISH)
    assert [panel.title for panel in requests.panels] == [
        "Requests of tp2pp4/1k/c2",
        ENGLISH.plots.in_flight,
        ENGLISH.plots.gpu_memory,
    ]
    assert requests.svg.count(ENGLISH.plots.seconds) == 1
    assert requests.svg.count("TTFT 400 ms") == 4


@pytest.mark.parametrize("name", ["a/b", "a b<c>", "../x", "TP8+EAGLE3"])
def test_a_figure_s_file_name_is_safe(name: str) -> None:
    assert re.fullmatch(r"throughput_[\w.+-]+", plots.file_name("throughput", name))
    assert "/" not in plots.file_name(name)


def test_images_are_written_beside_the_markdown_that_shows_them(tmp_path: Path) -> None:
    from raybench.report.write import write_report

    made: RunDirectory = whole_run(tmp_path / "run")
    merge(made)
    report = write_report(read_source(made), made.path, images="svg").markdown.read_text(encoding="utf-8")
    shown = re.findall(r"!\[[^\]]*\]\((plots/[^)]+\.svg)\)", report)
    assert "plots/throughput_1k.svg" in shown
    assert all((made.path / path).is_file() for path in shown)
    assert (made.path / "plots" / "tp2pp4-1k-c2_requests.svg").is_file()
