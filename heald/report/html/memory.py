"""The memory map: tensors by address, and by the operators that need them."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import Counter

from rich.filesize import decimal

from heald.report.html.data import RunReport, TensorRow
from heald.report.html.svg import CHARACTER, Drawing, shortened

_WIDTH, _LEFT, _STRIP, _TOP, _BOTTOM = 860.0, 128.0, 16.0, 30.0, 14.0
#: Styles of kinds, in order of appearance; each has a colour and a pattern.
_STYLES = 5


def kinds(report: RunReport) -> dict[str, int]:
    """The kinds of tensors with the number of their style."""
    found = dict.fromkeys(tensor.kind for tensor in report.tensors)
    return {kind: i % _STYLES for i, kind in enumerate(found)}


class Heights:
    """Maps addresses to pixels: pieces between borders grow with the logarithm of their size."""

    def __init__(self, tensors: tuple[TensorRow, ...], top: float):
        changes: Counter[int] = Counter()
        for t in tensors:
            changes[t.address] += 1
            changes[t.address + max(1, t.size)] -= 1
        self.borders = sorted(changes)
        held = itertools.accumulate(changes[border] for border in self.borders)
        heights = [
            3 + 3.5 * math.log2(1 + (b - a) / 64) if count else 5.0
            for (a, b), count in zip(itertools.pairwise(self.borders), held, strict=False)
        ]
        total = sum(heights) or 1.0
        scale = min(max(1.0, 200 / total), max(1400 / total, 0.4))
        self.places = list(itertools.accumulate((h * scale for h in heights), initial=top))

    def at(self, address: int) -> float:
        """The pixel of a border."""
        return self.places[bisect_right(self.borders, address) - 1]


def memory_map(report: RunReport) -> str:
    """The picture as SVG; empty without tensors."""
    tensors = report.tensors
    if not tensors:
        return ""
    heights = Heights(tensors, _TOP)
    bottom = heights.places[-1]
    d = Drawing(_WIDTH, bottom + _BOTTOM, f"Memory map of {len(tensors)} tensors")
    styles = kinds(report)
    first = min(t.first for t in tensors)
    count = max(t.last for t in tensors) - first + 1
    left = _LEFT + _STRIP
    step = (_WIDTH - left - 8) / count
    every = max(1, math.ceil(count / 24))
    for i in range(0, count, every):
        x = left + i * step
        d.line([(x, _TOP), (x, bottom)], "pale")
        d.text(x + step * min(every, count - i) / 2, _TOP - 8, str(first + i + 1), "middle small")
    d.text(left - 6, _TOP - 8, "operator", "end small")
    _strip(d, tensors, bottom, styles)
    last = -math.inf
    for border in heights.borders:
        y = heights.at(border)
        if y - last > 12:
            d.text(_LEFT - 8, y + 4, f"{border:#010x}", "end small mono")
            d.line([(_LEFT - 5, y), (_LEFT, y)], "pale")
            last = y
    for t in tensors:
        x, y = left + (t.first - first) * step, heights.at(t.address)
        width, height = (t.last - t.first + 1) * step, heights.at(t.address + max(1, t.size)) - y
        title = (
            f"{t.name}: {t.kind}, {decimal(t.size)} from {t.address:#x} on, "
            f"operators {t.first + 1} to {t.last + 1}"
        )
        d.box(x + 0.5, y + 0.5, max(1.5, width - 1), max(1.5, height - 1), f"tensor k{styles[t.kind]}", title)
        room = int((width - 8) / CHARACTER)
        if height >= 17 and room >= 3:
            text = f"{t.name}  {decimal(t.size)}"
            shown = shortened(t.name if len(text) > room else text, room)
            d.text(x + 5, y + min(height / 2 + 4, 14), shown, "small halo")
    return str(d)


def _strip(d: Drawing, tensors: tuple[TensorRow, ...], bottom: float, styles: dict[str, int]) -> None:
    low = min(t.address for t in tensors)
    high = max(t.address + max(1, t.size) for t in tensors)
    scale = (bottom - _TOP) / (high - low)
    d.box(_LEFT, _TOP, _STRIP - 4, bottom - _TOP, "frame", "the same addresses to scale")
    for t in tensors:
        y = _TOP + (t.address - low) * scale
        d.box(_LEFT, y, _STRIP - 4, max(0.5, t.size * scale), f"tensor strip k{styles[t.kind]}", t.name)
