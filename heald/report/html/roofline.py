"""The roofline of a machine: peaks of array and grid, what the memory ports deliver, operators as points."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

from cosim.session.results import RESOURCES
from heald.report.html.data import OperatorRow, RunReport
from heald.report.html.svg import Drawing, LogAxis
from heald.report.numbers import bytes_text, number_text
from hw.config import PORTS

_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 860.0, 430.0, 62.0, 16.0, 22.0, 46.0


@dataclass(frozen=True)
class Point:
    """An operator: its number in the table, what it does per byte and per cycle, and could do per cycle."""

    number: int
    operator: OperatorRow
    x: float
    y: float
    most: float

    @property
    def shape(self) -> str:
        """Circles are the array's, diamonds the grid's."""
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
    """The picture as SVG."""
    config, rates = report.config, [report.settings.bandwidth[port] for port in PORTS]
    found = points(report)
    peaks = {"array": float(config.macs_per_cycle)}
    if config.cgra is not None:
        peaks["grid"] = float(config.cgra.size)
    ridge = max(peaks.values()) / sum(rates)
    across = [p.x for p in found] + [ridge / 4, ridge * 8]
    up = [p.y for p in found] + [*peaks.values(), min(peaks.values()) / 16]
    x = LogAxis.around(across, _LEFT, _WIDTH - _RIGHT)
    y = LogAxis.around(up, _HEIGHT - _BOTTOM, _TOP)
    label = f"Roofline: array's peak {peaks['array']:g} per cycle, {len(found)} operators"
    d = Drawing(_WIDTH, _HEIGHT, label)
    d.axes(x, y, "operations per byte moved", "operations per cycle")
    _peaks(d, x, y, peaks)
    _slopes(d, x, y, report, max(peaks.values()))
    for p in found:
        if p.most:
            at = x.at(p.x)
            d.line([(at, y.at(p.y)), (at, y.at(p.most))], "pale dashed")
            d.line([(at - 7, y.at(p.most)), (at + 7, y.at(p.most))], "limit")
    groups: dict[tuple[int, int], list[Point]] = defaultdict(list)
    for p in found:
        d.mark(x.at(p.x), y.at(p.y), p.shape, _title(p))
        groups[round(x.at(p.x) / 48), round(y.at(p.y) / 16)].append(p)
    # Points side by side have one text.
    for group in groups.values():
        right = max(x.at(p.x) for p in group)
        beyond = right > x.end - 60
        at = min(x.at(p.x) for p in group) - 10 if beyond else right + 10
        d.text(at, max(y.at(p.y) for p in group) + 14, _numbers(group), "end" if beyond else "")
    return str(d)


def _peaks(d: Drawing, x: LogAxis, y: LogAxis, peaks: dict[str, float]) -> None:
    """A line for each peak, the higher named on the left; where both nearly are one, their names are too."""
    names = {"array": "MACs per cycle", "grid": "operations per cycle"}
    (first, high), *rest = sorted(peaks.items(), key=lambda item: -item[1])
    text = f"{first}: {number_text(high)} {names[first]}"
    for name, peak in rest:
        told = f"{name}: {number_text(peak)} {names[name]}"
        d.line([(x.start, y.at(peak)), (x.end, y.at(peak))], f"roof {name}")
        if y.at(peak) - y.at(high) < 24:
            text += f"; {told}"
        else:
            d.text(x.end - 4, y.at(peak) + 15, told, "small halo end")
    d.line([(x.start, y.at(high)), (x.end, y.at(high))], f"roof {first}")
    d.text(x.start + 8, y.at(high) - 7, text, "small halo")


def _slopes(d: Drawing, x: LogAxis, y: LogAxis, report: RunReport, peak: float) -> None:
    """What all ports together deliver, and each alone; ports of one rate share a line."""
    rates: dict[int, list[str]] = defaultdict(list)
    for port in PORTS:
        rates[report.settings.bandwidth[port]].append(RESOURCES[port])
    total = sum(report.settings.bandwidth[port] for port in PORTS)
    slopes = [(total, "all ports together", "roof")]
    slopes += [(rate, " or ".join(names) + " alone", "roof dashed") for rate, names in rates.items()]
    for rate, name, style in slopes:
        low = max(x.low, y.low / rate)
        high = min(x.high, peak / rate)
        if low >= high:
            continue
        d.line([(x.at(low), y.at(low * rate)), (x.at(high), y.at(high * rate))], style)
        # The text stands along the line, above it.
        (x0, y0), (x1, y1) = (x.at(low), y.at(low * rate)), (x.at(high), y.at(high * rate))
        turn = math.degrees(math.atan2(y1 - y0, x1 - x0))
        d.text(x0 + 0.06 * (x1 - x0), y0 + 0.06 * (y1 - y0) - 6, f"{name}: {rate} bytes per cycle",
               "small", turn)  # fmt: skip


def _numbers(group: list[Point]) -> str:
    """The numbers of operators, runs of them as one."""
    parts: list[list[int]] = []
    for p in group:
        if parts and parts[-1][1] == p.number - 1:
            parts[-1][1] = p.number
        else:
            parts.append([p.number, p.number])
    texts = [f"{a}" if a == b else f"{a}–{b}" for a, b in parts]
    return ", ".join(texts[:4]) + (" …" if len(texts) > 4 else "")


def _title(p: Point) -> str:
    o = p.operator
    bound = f", at most {number_text(p.most)} by {RESOURCES.get(o.bound, o.bound)}" if p.most else ""
    moved = bytes_text(sum(o.moved.values()))
    return (
        f"{p.number} {o.name}: {number_text(p.y)} operations per cycle{bound}; "
        f"{number_text(p.x)} per byte, {moved} moved"
    )
