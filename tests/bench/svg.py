"""Line plots as SVG, which GitHub shows: a logarithmic axis below, a linear one from zero at the side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 440, 260
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 30, 45
_STYLE = "font-family:sans-serif;font-size:12px;fill:#444"
_TICKS = 4


Points = Sequence[tuple[float, float]]


def line_plot(points: Points, below: str, side: str, beside: Points = ()) -> str:
    """points: ascending, above zero; below, side: what the axes show; beside: of another line, at the same places."""
    top = _round_up(max(y for _, y in [*points, *beside]))
    places = _places(points, top)
    lines = [_grid(top * i / _TICKS, top) for i in range(_TICKS + 1)]
    lines += [
        _text(x, HEIGHT - BOTTOM + 18, _short(at), "middle") for (x, _), (at, _) in zip(places, points, strict=True)
    ]
    lines += [_line(_places(beside, top), "#999")] if beside else []
    lines.append(_line(places, "#1f6feb"))
    lines += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#1f6feb"/>' for x, y in places]
    lines += [_text(x, y - 9, _short(v), "middle") for (x, y), (_, v) in zip(places, points, strict=True)]
    lines += [_text(WIDTH / 2, HEIGHT - 8, below, "middle"), _text(8, 16, side, "start")]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def _places(points: Points, top: float) -> list[tuple[float, float]]:
    return [(_across(x, points[0][0], points[-1][0]), _up(y, top)) for x, y in points]


def _line(places: Points, color: str) -> str:
    return f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in places)}" fill="none" stroke="{color}"/>'


def _across(x: float, low: float, high: float) -> float:
    inner = 25
    share = math.log(x / low) / math.log(high / low) if high > low else 0.5
    return LEFT + inner + share * (WIDTH - LEFT - RIGHT - 2 * inner)


def _up(y: float, top: float) -> float:
    return HEIGHT - BOTTOM - y / top * (HEIGHT - TOP - BOTTOM)


def _grid(value: float, top: float) -> str:
    y = _up(value, top)
    line = f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
    return line + _text(LEFT - 6, y + 4, _short(value), "end")


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" style="{_STYLE}">{escape(words)}</text>'


def _round_up(value: float) -> float:
    """The next 1, 2, 4 or 8 with zeros, with room for a label above."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(size * step for step in (1, 2, 4, 8, 10, 20) if size * step >= value * 1.1)


def _short(value: float) -> str:
    """12k, 3.5M."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"
