"""Line charts as SVG: a few polylines, the same bytes for the same numbers, no plotting library."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 40, 48
COLOURS = (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999",
    "#7a5195", "#8c564b", "#5f9e2f", "#b22222", "#4682b4",
)  # fmt: skip
"""The first eight are told apart by colour-blind readers too (Okabe and Ito)."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class _Axis:
    """A scale from values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float, *, log: bool) -> _Axis:
        low, high = min(values), max(values)
        if log:
            return cls(low / 1.1, high * 1.1, start, end, log=True)
        margin = 0.05 * (high - low) or 1.0
        return cls(low - margin, high + margin, start, end)

    def at(self, value: float) -> float:
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round numbers inside the range."""
        if self.log:
            powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            every = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
            return [value for value in every if self.low <= value <= self.high]
        rough = (self.high - self.low) / 6.0
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [number * step for number in range(first, last + 1)]


def line_chart(
    title: str, x: str, y: str, lines: Mapping[str, Points], *, log: bool = False
) -> str:
    """Draw lines by name.

    Parameters
    ----------
    title, x, y
        Texts of the chart and its axes.
    lines
        Points in the order in which they are joined; a line without points is left out.
    log
        True: a logarithmic vertical axis; all values must be positive.
    """
    drawn = {name: points for name, points in lines.items() if points}
    across = _Axis.over(
        [px for points in drawn.values() for px, _ in points], LEFT, WIDTH - RIGHT, log=False
    )
    up = _Axis.over(
        [py for points in drawn.values() for _, py in points], HEIGHT - BOTTOM, TOP, log=log
    )
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"'
        f' width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 20, title, size=13),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x, anchor="middle"),
        f'<g transform="translate(14 {(TOP + HEIGHT - BOTTOM) / 2:.1f}) rotate(-90)">'
        f"{_text(0, 0, y, anchor='middle')}</g>",
    ]
    for value in across.ticks():
        at = across.at(value)
        out.append(_line(at, TOP, at, HEIGHT - BOTTOM, "#e5e5e5"))
        out.append(_text(at, HEIGHT - BOTTOM + 16, f"{value:g}", anchor="middle"))
    for value in up.ticks():
        at = up.at(value)
        out.append(_line(LEFT, at, WIDTH - RIGHT, at, "#e5e5e5"))
        out.append(_text(LEFT - 6, at + 4, f"{value:g}", anchor="end"))
    for number, (name, points) in enumerate(drawn.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{across.at(px):.1f},{up.at(py):.1f}" for px, py in points)
        out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        row = TOP + 8 + 18 * number
        out.append(_line(WIDTH - RIGHT + 12, row, WIDTH - RIGHT + 34, row, colour, width=2.0))
        out.append(_text(WIDTH - RIGHT + 40, row + 4, name))
    return "\n".join([*out, "</svg>"]) + "\n"


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0) -> str:
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"'
        f' stroke-width="{width:g}"/>'
    )


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )
