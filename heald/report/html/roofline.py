"""The roofline of a machine: peaks of array and CGRA, bandwidth of the ports, operators as points."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from rich.filesize import decimal

from cosim.session.results import RESOURCES
from heald.report.html.data import OperatorRow, RunReport
from heald.report.html.svg import Drawing, Labels, LogAxis, shortened
from heald.report.numbers import number_text
from hw.config import PORTS

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 430.0, 82.0, 16.0, 22.0, 46.0


@dataclass(frozen=True)
class Point:
    """An operator: its number in the table, operations per byte and per cycle, and bound per cycle."""

    number: int
    operator: OperatorRow
    x: float
    y: float
    most: float

    @property
    def shape(self) -> str:
        """Circles for the array, diamonds for the CGRA."""
        return "circle" if self.operator.macs else "diamond"


def points(report: RunReport) -> list[Point]:
    """The operators that compute and move something."""
    found = []
    for number, o in enumerate(report.operators, 1):
        work, moved = o.macs or o.operations, sum(o.moved.values())
        if work and moved and o.span:
            most = work / o.bound_cycles if o.bound_cycles else 0.0
            found.append(Point(number, o, work / moved, work / o.span, most))
    return found


def roofline(report: RunReport) -> str:
    """The picture as SVG, with a legend of its lines below."""
    found, lines = points(report), _lines(report)
    rates, peaks = ([line.value for line in lines if line.slope is slope] for slope in (True, False))
    ridge = max(peaks) / max(rates)
    across = [p.x for p in found] + [ridge / 4, ridge * 8]
    up = [p.y for p in found] + [p.most for p in found if p.most] + [*peaks, min(peaks) / 4]
    x = LogAxis.around(across, _LEFT, _WIDTH - _RIGHT)
    y = LogAxis.around(up, _HEIGHT - _BOTTOM, _TOP)
    label = f"Roofline: array's peak {peaks[0]:g} per cycle, {len(found)} operators"
    d = Drawing(_WIDTH, _HEIGHT + 18 * len(lines) + 6, label)
    d.axes(x, y, "operations per byte moved", "operations per cycle")
    for number, line in enumerate(lines):
        d.line(line.ends(x, y, max(peaks)), line.style)
        at = _HEIGHT + 18 * number
        d.line([(_LEFT, at), (_LEFT + 40, at)], line.style)
        d.text(_LEFT + 48, at + 4, line.text, "small")
    for p in found:
        if p.most:
            at = x.at(p.x)
            d.line([(at, y.at(p.y)), (at, y.at(p.most))], "pale dashed")
            d.line([(at - 7, y.at(p.most)), (at + 7, y.at(p.most))], "limit")
    labels = Labels((x.start, _TOP, x.end, y.start))
    labels.taken += [(x.start, y.at(peak) - 2, x.end, y.at(peak) + 2) for peak in peaks]
    labels.taken += [_around(x.at(p.x), y.at(p.most)) for p in found if p.most]
    for p in found:
        d.mark(x.at(p.x), y.at(p.y), p.shape, _title(p))
        labels.taken.append(_around(x.at(p.x), y.at(p.y)))
    groups: dict[tuple[int, int], list[Point]] = defaultdict(list)
    for p in sorted(found, key=lambda p: -p.operator.cycles):
        groups[round(x.at(p.x) / 14), round(y.at(p.y) / 14)].append(p)
    # Points at the same place share a text; those with most cycles are placed first.
    for group in groups.values():
        first, numbers = group[0], _numbers(sorted(group, key=lambda p: p.number))
        for text in (f"{numbers} {shortened(first.operator.name, 24)}", numbers):
            if (place := labels.place(x.at(first.x), y.at(first.y), text)) is not None:
                left, base, style = place
                if not -13 < base - y.at(first.y) < 23:
                    d.line([(x.at(first.x), y.at(first.y)), (left, base - 4)], "pale")
                d.text(left, base, text, f"small halo {style}")
                break
    return str(d)


@dataclass(frozen=True)
class _Line:
    """A line of the picture: a peak, or bytes per cycle (`slope`); its text and style."""

    value: float
    slope: bool
    text: str
    style: str

    def ends(self, x: LogAxis, y: LogAxis, peak: float) -> list[tuple[float, float]]:
        """Its end points; a slope ends at the highest peak."""
        if not self.slope:
            return [(x.start, y.at(self.value)), (x.end, y.at(self.value))]
        low = min(max(x.low, y.low / self.value), x.high)
        high = max(low, min(x.high, peak / self.value))
        return [(x.at(low), y.at(low * self.value)), (x.at(high), y.at(high * self.value))]


def _lines(report: RunReport) -> list[_Line]:
    """Peaks of array and CGRA, bandwidth of all ports together and of each; equal ones share a line."""
    config, each = report.config, report.settings.bandwidth
    lines = [
        _Line(config.macs_per_cycle, False, f"array: {config.macs_per_cycle:,} MACs per cycle", "roof array")
    ]
    if config.cgra is not None:
        peak = sum(kind.lanes for kind in config.cgra.kinds)
        lines.append(_Line(peak, False, f"CGRA: {peak:,} operations per cycle", "roof grid"))
    total = sum(each[port] for port in PORTS)
    lines.append(_Line(total, True, f"all ports together: {total} bytes per cycle", "roof"))
    rates: dict[int, list[str]] = defaultdict(list)
    for port in PORTS:
        rates[each[port]].append(RESOURCES[port])
    for rate, names in rates.items():
        text = f"{' or '.join(names)} alone: {rate} bytes per cycle"
        lines.append(_Line(rate, True, text, "roof dashed"))
    return lines


def _numbers(group: list[Point]) -> str:
    """The numbers of operators, with consecutive ones as a range."""
    parts: list[list[int]] = []
    for p in group:
        if parts and parts[-1][1] == p.number - 1:
            parts[-1][1] = p.number
        else:
            parts.append([p.number, p.number])
    texts = [f"{a}" if a == b else f"{a}–{b}" for a, b in parts]
    return ", ".join(texts[:4]) + (" …" if len(texts) > 4 else "")


def _around(x: float, y: float) -> tuple[float, float, float, float]:
    """The box around a point."""
    return x - 8, y - 8, x + 8, y + 8


def _title(p: Point) -> str:
    o = p.operator
    bound = f", at most {number_text(p.most)} by {RESOURCES.get(o.bound, o.bound)}" if p.most else ""
    moved = decimal(sum(o.moved.values()))
    return (
        f"{p.number} {o.name}: {number_text(p.y)} operations per cycle{bound}; "
        f"{number_text(p.x)} per byte, {moved} moved"
    )
