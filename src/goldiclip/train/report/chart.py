"""Line charts as inline SVG, readable without a script; one small script adds the crosshair."""

from __future__ import annotations

import html
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 440, 220
LEFT, RIGHT, TOP, BOTTOM = 46, 10, 10, 24
POINTS = 240  # drawn per line
RAW_FROM = 40  # records from which on a smoothed line is drawn over the raw one


@dataclass(frozen=True, slots=True)
class Series:
    """One line: its name, the place of its colour in the palette, and points (step, value)."""

    name: str
    colour: int
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """From values to pixels along y."""

    low: float
    high: float
    is_log: bool

    def place(self, value: float) -> float:
        value, low, high = (math.log10(v) if self.is_log else v for v in (value, self.low, self.high))
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))

    def ticks(self) -> list[float]:
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            decades = [10.0**power for power in range(first, last + 1)]
            finer = [m * d for d in decades for m in ((1, 2, 5) if last - first <= 2 else (1,))]
            inside = [tick for tick in finer if self.low <= tick <= self.high]
            return inside[:: max(1, len(inside) // 5)]
        return nice_ticks(self.low, self.high)


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    is_log: bool = False,
    show: Callable[[float], str] | None = None,
    note: str = "",
) -> str:
    """A figure with its legend; an empty string when there is nothing to draw."""
    series = [line for line in (_finite(line, is_log) for line in series) if line.points]
    if not series:
        return ""
    show = show or short
    drawn = [Series(line.name, line.colour, thinned(smoothed(line.points))) for line in series]
    axis = _axis(drawn, is_log)
    low, high = _span(drawn)

    def across(step: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * ((step - low) / (high - low) if high > low else 0.5)

    body = [_grid(axis, show), _steps(low, high, across)]
    for line, smooth in zip(series, drawn, strict=True):
        if len(line.points) >= RAW_FROM:
            body.append(_path(thinned(line.points), axis, across, line.colour, "raw"))
        body.append(_path(smooth.points, axis, across, line.colour, "line"))
    return _figure(title, drawn, "".join(body), (low, high), axis, show, note)


def _figure(
    title: str,
    drawn: Sequence[Series],
    body: str,
    span: tuple[float, float],
    axis: Axis,
    show: Callable[[float], str],
    note: str,
) -> str:
    legend = "".join(
        f'<span class="key"><i class="c{line.colour}"></i>{html.escape(line.name)} '
        f"<b>{html.escape(show(line.points[-1][1]))}</b></span>"
        for line in drawn
    )
    data = {
        "span": span,
        "axis": [axis.low, axis.high, axis.is_log],
        "lines": [
            {"name": line.name, "colour": line.colour, "points": [[x, float(f"{y:.4g}")] for x, y in line.points]}
            for line in drawn
        ],
    }
    told = f'<p class="note">{html.escape(note)}</p>' if note else ""
    return (
        f'<figure class="card chart"><figcaption>{html.escape(title)}</figcaption><div class="legend">{legend}</div>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">{body}'
        f'<g class="cross" hidden></g></svg>{told}'
        f'<script type="application/json">{json.dumps(data)}</script></figure>'
    )


def _finite(line: Series, is_log: bool) -> Series:
    """JSON's words for NaN and infinity are no points; neither is what a log axis cannot show."""
    kept = [
        (x, y) for x, y in line.points if isinstance(y, (int, float)) and math.isfinite(y) and (y > 0 or not is_log)
    ]
    return Series(line.name, line.colour, kept)


def smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """A centred mean over about a fortieth of the run, which shifts nothing; short runs stay as they are."""
    if len(points) < RAW_FROM:
        return list(points)
    half = max(1, len(points) // 80)
    sums = [0.0, *itertools.accumulate(y for _, y in points)]
    found = []
    for i, (x, _) in enumerate(points):
        reach = min(half, i, len(points) - 1 - i)
        found.append((x, (sums[i + reach + 1] - sums[i - reach]) / (2 * reach + 1)))
    return found


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS) -> list[tuple[float, float]]:
    """At most `most` points: the first, the last, and of every stretch between its lowest and highest in turn."""
    if len(points) <= most:
        return list(points)
    stretch = 2 * (len(points) - 2) / (most - 2)
    found = [points[0]]
    for number in range((most - 2) // 2):
        piece = points[1 + int(number * stretch) : max(2 + int(number * stretch), 1 + int((number + 1) * stretch))]
        ends = {min(piece, key=lambda point: point[1]), max(piece, key=lambda point: point[1])}
        found += sorted(ends)
    return [*found, points[-1]]


def _axis(drawn: Sequence[Series], is_log: bool) -> Axis:
    values = [y for line in drawn for _, y in line.points]
    low, high = min(values), max(values)
    if is_log:
        return Axis(low / 1.15, high * 1.15, True)
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    floor = 0.0 if 0 <= low < 0.25 * high else low - room
    return Axis(floor, high + room, False)


def _span(drawn: Sequence[Series]) -> tuple[float, float]:
    steps = [x for line in drawn for x, _ in line.points]
    return min(steps), max(steps)


def nice_ticks(low: float, high: float, wanted: int = 4) -> list[float]:
    """Round numbers between low and high, about as many as wanted."""
    rough = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(rough))
    stride = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough)
    first = math.ceil(low / stride - 1e-9)
    return [number * stride for number in range(first, math.floor(high / stride + 1e-9) + 1)]


def _grid(axis: Axis, show: Callable[[float], str]) -> str:
    rows = []
    for tick in axis.ticks():
        y = axis.place(tick)
        rows.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        rows.append(f'<text x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{html.escape(show(tick))}</text>')
    return "".join(rows)


def _steps(low: float, high: float, across: Callable[[float], float]) -> str:
    ticks = nice_ticks(low, high) if high > low else [low]
    y = HEIGHT - 7
    marks = [f'<text x="{across(tick):.1f}" y="{y}" text-anchor="middle">{short(tick)}</text>' for tick in ticks]
    return "".join(marks)


def _path(
    points: Sequence[tuple[float, float]], axis: Axis, across: Callable[[float], float], colour: int, kind: str
) -> str:
    inside = [(across(x), min(HEIGHT - BOTTOM, max(TOP, axis.place(y)))) for x, y in points]
    if len(inside) == 1:
        return f'<circle class="dot c{colour}" cx="{inside[0][0]:.1f}" cy="{inside[0][1]:.1f}" r="3"/>'
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in inside)
    return f'<polyline class="{kind} c{colour}" points="{places}"/>'


def short(value: float) -> str:
    """12.3k, 0.0451, 3e-05."""
    size = abs(value)
    if size >= 1e6:
        return f"{value / 1e6:.4g}M"
    if size >= 1e4:
        return f"{value / 1e3:.4g}k"
    return f"{value:.3g}" if size < 100 else f"{value:.0f}"


def percent(value: float) -> str:
    return f"{100 * value:.3g}%"
