"""Numbers as people read them. Rounding happens here and nowhere else: files keep full precision."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

#: What stands in a cell whose number is not known or not defined.
UNKNOWN = "—"

KIB, MIB, GIB = 1024, 1024**2, 1024**3


def count(value: float | None) -> str:
    """6748 -> `6,748`; one decimal of a mean that is no whole number."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"


def rate(value: float | None) -> str:
    """Tokens per second: whole from 100 on, else one decimal; two below one."""
    if value is None:
        return UNKNOWN
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def latency(ms: float | None) -> str:
    """As TPOT, but whole milliseconds from 100 ms on: `5.36 s`, `386 ms`, `50.3 ms`, `0.25 ms`."""
    return f"{ms:.0f} ms" if ms is not None and 100 <= abs(ms) < 1000 else per_token(ms)


def per_token(ms: float | None) -> str:
    """TPOT: `50.3 ms`, two decimals below a millisecond, seconds from a second on."""
    if ms is None:
        return UNKNOWN
    if abs(ms) >= 1000:
        return f"{ms / 1000:,.2f} s"
    return f"{ms:.1f} ms" if abs(ms) >= 1 or not ms else f"{ms:.2f} ms"


def latencies(values_ms: Sequence[float | None], *, decimals_ms: int = 0) -> str:
    """Several latencies of one metric in one unit, that of the largest: `5.35 / 5.36 / 5.36 s`."""
    known = [value for value in values_ms if value is not None]
    if not known:
        return UNKNOWN
    seconds = max(known) >= 1000 and not decimals_ms
    texts = (
        UNKNOWN if value is None else f"{value / 1000:.2f}" if seconds else f"{value:.{decimals_ms}f}"
        for value in values_ms
    )
    return f"{' / '.join(texts)} {'s' if seconds else 'ms'}"


def seconds(value: float | None) -> str:
    """`71.9 s`: how long a process took."""
    return UNKNOWN if value is None else f"{value:,.1f} s"


def clock(seconds: float) -> str:
    """`2:10`, or `1:02:10` from an hour on."""
    minutes, second = divmod(int(seconds + 0.5), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


def mib(value: float | None) -> str:
    """Memory that is told in MiB, as engines do when they start: `5.1 MiB`."""
    return UNKNOWN if value is None else f"{value:,.1f} MiB"


def fixed(value: float | None, decimals: int) -> str:
    """A fixed number of decimals: the appendix lines up."""
    return UNKNOWN if value is None else f"{value:,.{decimals}f}"


def beside(value: float, limit: float) -> str:
    """A value with as many decimals as it takes to tell it from its limit: `150.3` beside 150."""
    decimals = 0 if abs(value) >= 100 else 2
    while decimals < 9 and value != limit and f"{value:.{decimals}f}" == f"{limit:.{decimals}f}":
        decimals += 1
    return f"{value:,.{decimals}f}"


def memory(bytes_: int | None) -> str:
    """`64.6 GiB`, or MiB below one GiB."""
    if bytes_ is None:
        return UNKNOWN
    return f"{bytes_ / GIB:.1f} GiB" if abs(bytes_) >= GIB else f"{bytes_ / MIB:.0f} MiB"


def share(value: float | None) -> str:
    """A share of one with four decimals, as hit rates are judged."""
    return UNKNOWN if value is None else f"{value:.4f}"


def percent(value: float | None, *, decimals: int = 0) -> str:
    """A share of one as a percentage."""
    return UNKNOWN if value is None else f"{value:.{decimals}%}"


def tokens(value: int | None) -> str:
    """Sizes as serving people write them: 16384 -> `16k`, 1048576 -> `1m`, else with separators."""
    if value is None:
        return UNKNOWN
    if value and value % MIB == 0:
        return f"{value // MIB}m"
    return f"{value // KIB}k" if value and value % KIB == 0 else f"{value:,}"


def times(value: float | None, *, decimals: int = 1) -> str:
    """How many times: `3.0×`, `1.04×` where one decimal would say nothing, one decimal less from ten on."""
    if value is None:
        return UNKNOWN
    if value < 1.095:
        decimals = max(decimals, 2)
    return f"{value:,.{decimals if value < 9.95 else decimals - 1}f}×"


def change(percent: float | None, *, decimals: int = 0) -> str:
    """A change with its sign: `+9 %`, `−9.1 %`."""
    return UNKNOWN if percent is None else f"{percent:+.{decimals}f} %".replace("-", "−")


def signed(value: float, decimals: int) -> str:
    """A difference with its sign: `+4.10`, `−1,024`; none where it is written as zero."""
    told = f"{value:+,.{decimals}f}".replace("-", "−")
    return told if any(digit in told for digit in "123456789") else told[1:]


def moment(unix_ns: int | None) -> str:
    """A date and time in UTC: `2026-11-30 21:06 UTC`."""
    if unix_ns is None:
        return UNKNOWN
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")


def shape(input_tokens: int | None, output_tokens: int | None, *, longest: bool) -> str:
    """`16k -> 512`; `≤ 16k -> 512` where these are the longest of several."""
    return f"{'≤ ' if longest else ''}{tokens(input_tokens)} -> {tokens(output_tokens)}"
