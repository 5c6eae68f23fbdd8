"""Axes, marks and legends as SVG text: what plots are drawn with. Pure, and free of any run.

A panel is a rectangle with two axes; a figure stacks panels over one legend. Sizes are in pixels and made
for a column of a page: 460 wide is readable on a telephone and three stand side by side on a desk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from unicodedata import east_asian_width

WIDTH = 460
MARGIN_LEFT, MARGIN_RIGHT, MARGIN_TOP, MARGIN_BOTTOM = 62, 16, 26, 40
FONT_PX = 12

INK, FAINT, GRID, PAPER = "#24292f", "#57606a", "#e3e6ea", "#ffffff"

Point = tuple[float, float]
Label = Callable[[float], str]


@dataclass(frozen=True)
class Scale:
    """Values -> pixels, linear or logarithmic. `low < high`; on a logarithmic scale both are above zero."""

    low: float
    high: float
    from_px: float
    to_px: float
    log: bool = False

    def __post_init__(self) -> None:
        assert self.low < self.high, f"an empty scale: {self.low} .. {self.high}"
        assert self.low > 0 or not self.log, "a logarithm needs values above zero"

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, self.low))
        return self.from_px + (value - low) / (high - low) * (self.to_px - self.from_px)

    def ticks(self, count: int = 5) -> list[float]:
        """Round values inside the scale, about `count` of them."""
        return _log_ticks(self.low, self.high, count) if self.log else _linear_ticks(self.low, self.high, count)


def _linear_ticks(low: float, high: float, count: int) -> list[float]:
    rough = (high - low) / count
    size: float = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [k * step for k in range(first, math.floor(high / step + 1e-9) + 1)]


def _log_ticks(low: float, high: float, count: int) -> list[float]:
    """1, 10, 100; with 2 and 5 between them where there is room; linear ones within less than a decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1, 3), (1,)):
        ticks = [f * 10.0**d for d in decades for f in factors if low <= f * 10.0**d * (1 + 1e-9) <= high * 1.0001]
        if len(ticks) <= count + 1:
            break
    if len(ticks) >= 2:
        return ticks[:: -(-len(ticks) // (count + 1))]
    return [tick for tick in _linear_ticks(low, high, count) if tick > 0]


def covering(values: Sequence[float], *, log: bool = False, from_zero: bool = True) -> tuple[float, float]:
    """Low and high of an axis that shows all values with a little air; never empty."""
    known = [value for value in values if value > 0] if log else list(values)
    if not known:
        return (0.1, 1.0) if log else (0.0, 1.0)
    low, high = min(known), max(known)
    if log:
        return low / 1.25, high * 1.25
    low = min(low, 0.0) if from_zero else low
    return low, high + ((high - low) * 0.06 or abs(high) * 0.1 or 1.0)


@dataclass(frozen=True)
class Axis:
    """low, high: what is shown. ticks: where, instead of round values. label: a tick's text.

    falls: low values stand at the top (lists are read from there).
    """

    title: str
    low: float
    high: float
    label: Label
    log: bool = False
    ticks: Sequence[float] | None = None
    falls: bool = False


@dataclass(frozen=True)
class Box:
    """A rectangle between two values of each axis."""

    from_x: float
    to_x: float
    from_y: float
    to_y: float
    color: str


@dataclass
class Panel:
    """One plot. Marks are drawn in the order in which they are added, in the axes' own values."""

    x: Axis
    y: Axis
    height: int = 170
    title: str = ""
    marks: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        left, right = MARGIN_LEFT, WIDTH - MARGIN_RIGHT
        bottom = MARGIN_TOP + self.height
        self.to_x = Scale(self.x.low, self.x.high, left, right, self.x.log)
        from_px, to_px = (MARGIN_TOP, bottom) if self.y.falls else (bottom, MARGIN_TOP)
        self.to_y = Scale(self.y.low, self.y.high, from_px, to_px, self.y.log)

    @property
    def total_height(self) -> int:
        return MARGIN_TOP + self.height + MARGIN_BOTTOM

    def line(
        self, points: Sequence[Point], color: str, *, dash: str = "", width: float = 2, faint: float = 1
    ) -> None:
        """A line through the points."""
        path = " ".join(f"{_px(self.to_x(x))},{_px(self.to_y(y))}" for x, y in points)
        self.marks.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="{width}"'
            f' stroke-opacity="{faint}" stroke-linejoin="round"{_dashed(dash)}/>'
        )

    def steps(self, points: Sequence[Point], color: str, *, width: float = 1.5) -> None:
        """A value that holds until the next point."""
        held: list[Point] = []
        for x, y in points:
            if held:
                held.append((x, held[-1][1]))
            held.append((x, y))
        self.line(held, color, width=width)

    def band(self, low: Sequence[Point], high: Sequence[Point], color: str) -> None:
        """The area between two lines."""
        path = " ".join(f"{_px(self.to_x(x))},{_px(self.to_y(y))}" for x, y in [*low, *reversed(high)])
        self.marks.append(f'<polygon points="{path}" fill="{color}" fill-opacity="0.18"/>')

    def dot(self, at: Point, color: str, shape: str, tip: str, *, hollow: bool = False, link: str = "") -> None:
        """A marker that tells more under the pointer. link: an address inside the page."""
        x, y = self.to_x(at[0]), self.to_y(at[1])
        mark = f"<g>{_marker(x, y, color, shape, hollow=hollow)}<title>{escape(tip)}</title></g>"
        self.marks.append(f'<a href="{escape(link)}">{mark}</a>' if link else mark)

    def whisker(self, x: float, low: float, high: float, color: str) -> None:
        """An interval as an upright line with a foot and a head."""
        at, bottom, top = self.to_x(x), _px(self.to_y(low)), _px(self.to_y(high))
        path = f"M{_px(at - 4)},{top}h8m-4,0V{bottom}m-4,0h8"
        self.marks.append(f'<path d="{path}" stroke="{color}" stroke-opacity="0.6" fill="none"/>')

    def boxes(self, boxes: Sequence[Box], tip: str) -> None:
        """Filled rectangles of one thing, each at least half a pixel wide."""
        drawn = "".join(map(self._box, boxes))
        self.marks.append(f"<g>{drawn}<title>{escape(tip)}</title></g>")

    def _box(self, box: Box) -> str:
        left, right = self.to_x(box.from_x), self.to_x(box.to_x)
        top, bottom = sorted((self.to_y(box.from_y), self.to_y(box.to_y)))
        return (
            f'<rect x="{_px(left)}" y="{_px(top)}" width="{_px(max(right - left, 0.5))}"'
            f' height="{_px(bottom - top)}" fill="{box.color}"/>'
        )

    def level(self, value: float, color: str, text: str) -> None:
        """A horizontal line at a value, with its name above its right end."""
        y = _px(self.to_y(value))
        self.marks.append(_rule(y, color, dash="5 3"))
        self.marks.append(_text(WIDTH - MARGIN_RIGHT, float(y) - 4, text, anchor="end", color=color, size=11))

    def note(self, at: Point, text: str, *, dx: float = 6, dy: float = -6) -> None:
        """A word beside a point."""
        self.marks.append(_text(self.to_x(at[0]) + dx, self.to_y(at[1]) + dy, text, color=FAINT, size=10))

    def draw(self, top: float) -> str:
        """The panel as a group, moved down by `top`."""
        parts = [*self._y_axis(), *self._x_axis(), *self.marks]
        if self.title:
            parts.append(_text(0, 14, self.title, color=INK, weight=600))
        return f'<g transform="translate(0,{_px(top)})">{"".join(parts)}</g>'

    def _y_axis(self) -> list[str]:
        parts = []
        for tick in self.y.ticks if self.y.ticks is not None else self.to_y.ticks(4):
            y = _px(self.to_y(tick))
            name = _text(MARGIN_LEFT - 6, float(y) + 4, self.y.label(tick), anchor="end", color=FAINT, size=11)
            parts += [_rule(y, GRID), name]
        if self.y.title:
            parts.append(_text(WIDTH - MARGIN_RIGHT, 14, self.y.title, anchor="end", color=FAINT, size=11))
        return parts

    def _x_axis(self) -> list[str]:
        bottom = MARGIN_TOP + self.height
        parts = [_rule(str(bottom), FAINT)]
        taken = -math.inf
        for tick in self.x.ticks if self.x.ticks is not None else self.to_x.ticks(6):
            x, label = self.to_x(tick), self.x.label(tick)
            half = text_px(label, 11) / 2
            parts.append(f'<line x1="{_px(x)}" x2="{_px(x)}" y1="{bottom}" y2="{bottom + 4}" stroke="{FAINT}"/>')
            if x - half >= taken + 5:  # a label that would run into the one before it is left out
                parts.append(_text(x, bottom + 16, label, anchor="middle", color=FAINT, size=11))
                taken = x + half
        middle = (MARGIN_LEFT + WIDTH - MARGIN_RIGHT) / 2
        return [*parts, _text(middle, bottom + 32, self.x.title, anchor="middle", color=FAINT, size=11)]


@dataclass(frozen=True)
class Key:
    """One entry of a legend: a marker shape, or `line`, or `box`; dash: that of the line."""

    text: str
    color: str
    shape: str = "box"
    dash: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class Figure:
    """Panels one below the other, the legend at the top. `svg` is a whole file; `name` is its file's."""

    name: str
    caption: str
    panels: Sequence[Panel]
    legend: Sequence[Key] = ()

    @property
    def svg(self) -> str:
        legend, top = _legend(self.legend)
        parts = []
        for panel in self.panels:
            parts.append(panel.draw(top))
            top += panel.total_height
        height = _px(top)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}"'
            f' font-family="system-ui, sans-serif" font-size="{FONT_PX}" role="img">'
            f"<title>{escape(self.caption)}</title>"
            f'<rect width="100%" height="100%" fill="{PAPER}"/>{legend}{"".join(parts)}</svg>'
        )


def _legend(keys: Sequence[Key]) -> tuple[str, float]:
    """The entries in as many lines as they need, and the height that they take."""
    parts, x, y = [], 2.0, 12.0
    for key in keys:
        width = 26 + text_px(key.text, 11) + 12
        if x > 2 and x + width > WIDTH:
            x, y = 2.0, y + 18
        parts.append(_sample(x, y, key) + _text(x + 26, y + 4, key.text, color=INK, size=11))
        x += width
    return "".join(parts), y + 12 if keys else 0.0


def _sample(x: float, y: float, key: Key) -> str:
    if key.shape == "box":
        return f'<rect x="{_px(x + 4)}" y="{_px(y - 5)}" width="16" height="10" fill="{key.color}"/>'
    ends = f'x1="{_px(x)}" x2="{_px(x + 22)}" y1="{_px(y)}" y2="{_px(y)}"'
    line = f'<line {ends} stroke="{key.color}" stroke-width="2"{_dashed(key.dash)}/>'
    if key.shape == "line":
        return line
    return line + _marker(x + 11, y, key.color, key.shape, hollow=key.hollow)


def _marker(x: float, y: float, color: str, shape: str, *, hollow: bool = False) -> str:
    fill = PAPER if hollow else color
    style = f'fill="{fill}" stroke="{color}" stroke-width="1.6"'
    if shape == "circle":
        return f'<circle cx="{_px(x)}" cy="{_px(y)}" r="4.2" {style}/>'
    corners = [(x + dx, y + dy) for dx, dy in _CORNERS[shape]]
    return f'<polygon points="{" ".join(f"{_px(a)},{_px(b)}" for a, b in corners)}" {style}/>'


_CORNERS: dict[str, tuple[Point, ...]] = {
    "square": ((-3.8, -3.8), (3.8, -3.8), (3.8, 3.8), (-3.8, 3.8)),
    "triangle": ((0, -5), (4.8, 3.8), (-4.8, 3.8)),
    "diamond": ((0, -5.4), (5.4, 0), (0, 5.4), (-5.4, 0)),
    "down": ((0, 5), (4.8, -3.8), (-4.8, -3.8)),
    "cross": (
        (-5, -3),
        (-3, -5),
        (0, -2),
        (3, -5),
        (5, -3),
        (2, 0),
        (5, 3),
        (3, 5),
        (0, 2),
        (-3, 5),
        (-5, 3),
        (-2, 0),
    ),
}


def _rule(y: str, color: str, dash: str = "") -> str:
    """A line across a panel. y: in pixels, as written."""
    return (
        f'<line x1="{MARGIN_LEFT}" x2="{WIDTH - MARGIN_RIGHT}" y1="{y}" y2="{y}" stroke="{color}"{_dashed(dash)}/>'
    )


def _dashed(dash: str) -> str:
    return f' stroke-dasharray="{dash}"' if dash else ""


def text_px(text: str, size: float) -> float:
    """About how wide a text is, rather too wide: fonts differ, and words must not run into each other."""
    return sum(size * (1.0 if east_asian_width(c) in "WF" else 0.74 if c.isupper() else 0.6) for c in text)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    color: str = INK,
    size: float = FONT_PX,
    weight: int = 400,
) -> str:
    bold = f' font-weight="{weight}"' if weight != 400 else ""
    return (
        f'<text x="{_px(x)}" y="{_px(y)}" text-anchor="{anchor}" fill="{color}" font-size="{size:g}"{bold}>'
        f"{escape(text)}</text>"
    )


def _px(value: float) -> str:
    """Pixels with one decimal: small files, and the same bytes on every machine."""
    return f"{value:.1f}".removesuffix(".0")
