"""The page of a picture: positions in pixels from the upper left, text that is measured and wrapped."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patches import FancyArrowPatch, PathPatch, Rectangle
from matplotlib.path import Path as Curve
from matplotlib.textpath import text_to_path

#: Width of the page, its margin, where the matrices end and where the roofline and the reason begin.
WIDTH, MARGIN, LEFT_END, RIGHT = 1200.0, 24.0, 640.0, 690.0
BODY, SMALL, LINE = 12.0, 11.0, 17.0
INK, GREY, PALE = "#1f2937", "#6b7280", "#d1d5db"
#: Light and strong colour of each matrix.
COLOURS = {"A": ("#dbeafe", "#2563eb"), "B": ("#d1fae5", "#047857"), "C": ("#fef3c7", "#b45309")}
_FAMILY, POINT = "DejaVu Sans", 0.75
STYLE: dict[Any, Any] = {
    "font.family": [_FAMILY],
    "svg.fonttype": "path",
    "svg.hashsalt": "heald",
    "hatch.linewidth": 0.5,
}


class Sheet:
    """A page to draw on; its height is known only at the end."""

    def __init__(self) -> None:
        self.figure = Figure(facecolor="white")
        self.page = self.figure.add_axes((0, 0, 1, 1), frameon=False)
        self.page.set_axis_off()
        self._plots: list[tuple[Axes, float, float, float, float]] = []

    def text(self, x: float, y: float, text: str, size: float = BODY, **how: Any) -> None:
        """One line of text, `y` its baseline unless told otherwise."""
        how.setdefault("color", INK)
        self.page.text(x, y, text, fontsize=size * POINT, parse_math=False, **how)

    def lines(self, x: float, y: float, lines: Sequence[str], size: float = BODY, **how: Any) -> float:
        """Lines of text from baseline `y` down; returns the last baseline."""
        for i, line in enumerate(lines):
            self.text(x, y + i * LINE, line, size, **how)
        return y + max(len(lines) - 1, 0) * LINE

    def box(self, x: float, y: float, width: float, height: float, **how: Any) -> None:
        """A rectangle from its upper left corner."""
        self.page.add_patch(Rectangle((x, y), width, height, **{"linewidth": 0, "clip_on": False, **how}))

    def strokes(
        self, strokes: Sequence[Sequence[tuple[float, float]]], color: str, width: float = 0.8, **how: Any
    ) -> None:
        """Lines through points, as one element of the picture."""
        if strokes:
            codes = [Curve.LINETO if i else Curve.MOVETO for stroke in strokes for i in range(len(stroke))]
            curve = Curve([point for stroke in strokes for point in stroke], codes)
            how = {"fill": False, "edgecolor": color, "linewidth": width, "clip_on": False, **how}
            self.page.add_patch(PathPatch(curve, **how))

    def arrow(self, start: tuple[float, float], end: tuple[float, float], color: str, **how: Any) -> None:
        """A straight arrow."""
        how = {"arrowstyle": "-|>", "mutation_scale": 7, "linewidth": 0.9, "clip_on": False, **how}
        self.page.add_patch(FancyArrowPatch(start, end, color=color, shrinkA=0, shrinkB=0, **how))

    def plot(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes for a diagram in a rectangle of the page."""
        axes = self.figure.add_axes((0, 0, 1, 1))
        self._plots.append((axes, x, y, width, height))
        return axes

    def save(self, file: Path | IO[bytes], height: float, title: str) -> None:
        """Write the page, now that its height is known."""
        self.figure.set_size_inches(WIDTH / 96, height / 96)
        self.page.set(xlim=(0, WIDTH), ylim=(height, 0))
        for axes, x, y, w, h in self._plots:
            axes.set_position((x / WIDTH, 1 - (y + h) / height, w / WIDTH, h / height))
        metadata = {"Date": None, "Creator": "heald", "Title": title}
        FigureCanvasSVG(self.figure).print_figure(file, format="svg", metadata=metadata, facecolor="white")


def times_text(count: int) -> str:
    """A count as words: once, 2 times."""
    return "once" if count == 1 else f"{count:,} times"


def bytes_text(count: int) -> str:
    """Bytes in units of a thousand: `2.1 MB`."""
    if count < 1000:
        return f"{count} byte{'s' if count != 1 else ''}"
    value = float(count)
    for unit in ("kB", "MB", "GB", "TB"):
        value /= 1000
        if value < 999.95:
            return f"{value:.1f} {unit}"
    return f"{number_text(value / 1000)} PB"


def number_text(value: float) -> str:
    """A number of about four digits, or all before the point of one below 10^12."""
    size = abs(value)
    if 1000 <= size < 1e12:
        return f"{value:,.0f}"
    return f"{value:.4g}"


@functools.cache
def _glyphs() -> frozenset[int]:
    """The characters that the font has, bold and not."""
    fonts = [findfont(FontProperties(family=[_FAMILY], weight=weight)) for weight in ("normal", "bold")]
    return frozenset.intersection(*(frozenset(get_font(font).get_charmap()) for font in fonts))


def printable(text: str) -> str:
    """The text in one line of characters that the font has."""
    return "".join(c if c.isprintable() and ord(c) in _glyphs() else "?" for c in " ".join(text.split()))


@functools.lru_cache(maxsize=4096)
def text_width(text: str, size: float, weight: str = "normal") -> float:
    """Pixels that a text takes."""
    font = FontProperties(family=[_FAMILY], weight=weight, size=size * POINT)
    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0] / POINT


def wrap(text: str, width: float, size: float = BODY) -> list[str]:
    """The text in lines no wider than so many pixels, if its words let it."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width(longer, size) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def fitted(title: str) -> str:
    """The title, cut off where the page ends."""
    # Longer ones never fit, and are slow to measure.
    for length in range(min(len(title), 250), 0, -1):
        text = title if length == len(title) else f"{title[:length].rstrip()}…"
        if text_width(text, 18, "bold") <= WIDTH - 2 * MARGIN:
            return text
    return ""
