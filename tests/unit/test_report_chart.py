"""Scales, ticks and marks of the figures."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raybench.report.chart import WIDTH, Axis, Box, Figure, Key, Panel, Scale, covering, text_px

POSITIVE = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)
SVG = "{http://www.w3.org/2000/svg}"


@given(st.lists(POSITIVE, min_size=1), st.booleans())
def test_an_axis_covers_all_its_values_and_has_ticks_inside(values: list[float], log: bool) -> None:
    low, high = covering(values, log=log)
    assert low <= min(values)
    assert high >= max(values)
    scale = Scale(low, high, 0, 100, log)
    assert 0 <= scale(min(values)) <= scale(max(values)) <= 100.0001
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 16
    assert ticks == sorted(ticks)
    assert all(low * 0.999 <= tick <= high * 1.001 for tick in ticks)


@given(st.floats(min_value=-1e6, max_value=1e6), st.floats(min_value=1e-3, max_value=1e6))
def test_linear_ticks_are_even(low: float, span: float) -> None:
    ticks = Scale(low, low + span, 0, 1).ticks(5)
    steps = [b - a for a, b in pairwise(ticks)]
    assert all(math.isclose(step, steps[0], rel_tol=1e-3) for step in steps)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10_530, [0, 5_000, 10_000]),
        (0, 64, [0, 20, 40, 60]),
    ],
)
def test_ticks_are_round(low: float, high: float, expected: list[float]) -> None:
    assert Scale(low, high, 0, 1).ticks(4) == expected


def test_logarithmic_ticks_are_decades_with_what_fits_between() -> None:
    assert Scale(80, 7_000, 0, 1, log=True).ticks(4) == [100, 300, 1000, 3000]
    assert Scale(0.2, 9, 0, 1, log=True).ticks(5) == [0.2, 0.5, 1.0, 2.0, 5.0]


@pytest.mark.parametrize("values", [[], [0.0], [5.0], [5.0, 5.0]])
@pytest.mark.parametrize("log", [False, True])
def test_an_axis_of_one_value_or_none_is_not_empty(values: list[float], log: bool) -> None:
    low, high = covering(values, log=log)
    assert low < high


def panel() -> Panel:
    return Panel(Axis("x", 0, 10, "{:g}".format), Axis("y", 0, 10, "{:g}".format), title="t")


def drawn(*panels: Panel, legend: tuple[Key, ...] = ()) -> ElementTree.Element:
    return ElementTree.fromstring(Figure("name", "caption <&>", panels, legend).svg)


def test_a_figure_is_well_formed_whatever_its_texts_hold() -> None:
    plot = panel()
    plot.dot((1, 1), "#000", "circle", '<script>alert("&")</script>', link='#point-1"x')
    plot.note((1, 1), "<b>")
    plot.level(5, "#000", "a < b & c")
    root = drawn(plot, legend=(Key("<arm>&", "#000", "square"),))
    assert root.find(f"{SVG}title").text == "caption <&>"  # type: ignore[union-attr]
    assert not list(root.iter(f"{SVG}script"))
    assert {"<b>", "a < b & c", "<arm>&"} <= {element.text for element in root.iter(f"{SVG}text")}


@pytest.mark.parametrize("shape", ["circle", "square", "triangle", "diamond", "down", "cross"])
def test_every_marker_can_be_drawn_and_told_by_its_hollow(shape: str) -> None:
    full, hollow = panel(), panel()
    full.dot((5, 5), "#123456", shape, "tip")
    hollow.dot((5, 5), "#123456", shape, "tip", hollow=True)
    assert full.marks != hollow.marks


def test_steps_hold_their_value_until_the_next() -> None:
    plot = panel()
    plot.steps([(0, 0), (5, 10)], "#000")
    points = drawn(plot).find(f".//{SVG}polyline").get("points").split()  # type: ignore[union-attr]
    assert len(points) == 3
    assert points[0].split(",")[1] == points[1].split(",")[1]
    assert points[1].split(",")[0] == points[2].split(",")[0]


def test_a_box_is_seen_even_where_it_lasts_no_time() -> None:
    plot = panel()
    plot.boxes([Box(5, 5, 0, 1, "#000")], "tip")
    (box,) = [rect for rect in drawn(plot).iter(f"{SVG}rect") if rect.get("fill") == "#000"]
    assert float(box.get("width") or 0) == 0.5


def test_a_legend_breaks_its_lines_before_it_leaves_the_figure() -> None:
    keys = tuple(Key(f"a long name of an arm {k}", "#000", "square") for k in range(6))
    texts = [
        element for element in drawn(panel(), legend=keys).iter(f"{SVG}text") if "arm" in (element.text or "")
    ]
    assert all(float(t.get("x") or 0) + text_px(t.text or "", 11) <= WIDTH for t in texts)
    assert len({t.get("y") for t in texts}) > 1


def test_labels_of_an_axis_do_not_run_into_each_other() -> None:
    levels = [1, 2, 3, 60, 61, 62, 63, 64]
    plot = Panel(Axis("x", 0.9, 80, "{:g}".format, log=True, ticks=levels), Axis("y", 0, 1, "{:g}".format))
    ends = [
        (
            float(t.get("x") or 0) - text_px(t.text or "", 11) / 2,
            float(t.get("x") or 0) + text_px(t.text or "", 11) / 2,
        )
        for t in drawn(plot).iter(f"{SVG}text")
        if t.get("text-anchor") == "middle" and (t.text or "").isdigit()
    ]
    assert all(one[1] < next_one[0] for one, next_one in pairwise(ends))
    assert 1 < len(ends) < len(levels)


def test_chinese_is_as_wide_as_it_is_high() -> None:
    assert text_px("并发", 10) == 20
