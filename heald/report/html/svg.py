"""SVG diagrams inside a page: they use the page's colours, so they follow light and dark mode."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape, quoteattr

from heald.report.numbers import number_text

#: Pixels per character of small text; most fonts need less.
CHARACTER = 7.2
#: Offsets of a text from its point, in order of preference.
_NEAR = ((10, 4), (10, -8), (10, 16), (-10, 4), (-10, -8), (-10, 16), (0, -12), (0, 22))
_FAR = [(dx, dy) for dy in (34, 50, 66, 82, -26, -42) for dx in (14, -14)]
Box = tuple[float, float, float, float]


def shortened(text: str, most: int) -> str:
    """A text of at most `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


@dataclass
class Labels:
    """Places small texts beside their points, inside a box and without overlap."""

    inside: Box
    taken: list[Box] = field(default_factory=list)

    def place(self, x: float, y: float, text: str) -> tuple[float, float, str] | None:
        """The text's baseline position and style; None if there is no room around the point."""
        width, height = len(text) * CHARACTER, 15.0
        for dx, dy in itertools.chain(_NEAR, _FAR):
            left = x + dx if dx > 0 else x + dx - width if dx else x - width / 2
            box = (left, y + dy - 11, left + width, y + dy - 11 + height)
            if self._free(box):
                self.taken.append(box)
                return x + dx, y + dy, "end" if dx < 0 else "" if dx else "middle"
        return None

    def _free(self, box: Box) -> bool:
        left, top, right, bottom = self.inside
        fits = left <= box[0] and top <= box[1] and box[2] <= right and box[3] <= bottom
        apart = (box[2] <= b[0] or b[2] <= box[0] or box[3] <= b[1] or b[3] <= box[1] for b in self.taken)
        return fits and all(apart)


@dataclass
class Drawing:
    """Elements of a picture of a given size in pixels."""

    width: float
    height: float
    label: str
    parts: list[str] = field(default_factory=list)

    def line(self, points: Sequence[tuple[float, float]], style: str) -> None:
        """Draw a line through points."""
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        self.parts.append(f'<path d="M{path}" class="{style}"/>')

    def box(self, x: float, y: float, width: float, height: float, style: str, title: str = "") -> None:
        """Draw a rectangle; its title appears under the pointer."""
        inner = f"<title>{escape(title)}</title>" if title else ""
        place = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
        self.parts.append(f'<rect {place} class="{style}">{inner}</rect>')

    def text(self, x: float, y: float, text: str, style: str = "", turn: float = 0) -> None:
        """Draw a line of text, given its baseline."""
        where = f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{style}"{where}>{escape(text)}</text>')

    def mark(self, x: float, y: float, shape: str, title: str) -> None:
        """Draw a point: `circle` or `diamond`."""
        inner = f"<title>{escape(title)}</title>"
        if shape == "circle":
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="6" class="mark array">{inner}</circle>')
        else:
            path = f"M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7-7z"
            self.parts.append(f'<path d="{path}" class="mark grid">{inner}</path>')

    def axes(self, x: LogAxis, y: LogAxis, across: str, up: str) -> None:
        """Draw ticks with numbers on two axes, and the axes' titles."""
        for value, text in x.ticks:
            self.line([(x.at(value), y.start), (x.at(value), y.end)], "pale")
            self.text(x.at(value), y.start + 16, text, "middle small")
        for value, text in y.ticks:
            self.line([(x.start, y.at(value)), (x.end, y.at(value))], "pale")
            self.text(x.start - 6, y.at(value) + 4, text, "end small")
        self.text((x.start + x.end) / 2, y.start + 36, across, "middle")
        self.text(x.start - 64, (y.start + y.end) / 2, up, "middle", -90)

    def __str__(self) -> str:
        size = f'viewBox="0 0 {self.width:g} {self.height:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" '
        return f"{head}aria-label={quoteattr(self.label)}>{''.join(self.parts)}</svg>"


@dataclass(frozen=True)
class LogAxis:
    """Maps values from `low` to `high` to pixels from `start` to `end`, logarithmically."""

    low: float
    high: float
    start: float
    end: float

    @staticmethod
    def around(values: Sequence[float], start: float, end: float, room: float = 1.6) -> LogAxis:
        """An axis with room beyond the smallest and the largest value."""
        return LogAxis(min(values) / room, max(values) * room, start, end)

    def at(self, value: float) -> float:
        """The pixel of a value, clipped to the ends."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Values with their texts: powers of ten, or powers of two if there would be few."""
        decades = math.log10(self.high / self.low)
        base = 10 if decades > 3 else 2
        first = math.ceil(math.log(self.low, base) - 1e-9)
        last = math.floor(math.log(self.high, base) + 1e-9)
        step = max(1, (last - first + 1) // 9)
        values = [float(base) ** i for i in range(first, last + 1, step)]
        return [(value, number_text(value)) for value in values]
