"""The table of all answers, and each tool's distance from our cycles and where it is largest."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from bench.peers.asking import Answer
from bench.peers.layers import Layer
from bench.peers.tools import TOOLS

#: A class of layers is off if its median ratio differs from 1 by more than this.
OFF = 0.05


@dataclass(frozen=True)
class Row:
    """A layer: our answer, and each tool's by its name."""

    layer: Layer
    ours: Answer
    theirs: Mapping[str, Answer]

    def ratio(self, tool: str) -> float | None:
        """A tool's cycles divided by ours."""
        theirs = self.theirs[tool].cycles
        return None if theirs is None or not self.ours.cycles else theirs / self.ours.cycles

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        given = {"network": self.layer.network, "layer": self.layer.name, "count": self.layer.count}
        given |= {"shape": self.layer.shape, "class": self.layer.kind, "ours": vars(self.ours)}
        return given | {name: vars(a) | {"ratio": self.ratio(name)} for name, a in self.theirs.items()}


@dataclass(frozen=True)
class Summary:
    """A tool over all layers; ratios are its cycles divided by ours."""

    tool: str
    layers: int
    answered: int
    median: float | None
    worst: float | None
    worst_layer: str | None
    seconds: float
    #: Median ratio and number of layers of each class that is off, largest distance first.
    off: Mapping[str, tuple[float, int]]
    #: Reasons for missing cycles, with their number of layers.
    failed: Mapping[str, int]

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        return vars(self) | {"off": dict(self.off), "failed": dict(self.failed)}


def distance(ratio: float) -> float:
    """Distance of a ratio from 1, the same for twice and half."""
    return max(ratio, 1 / ratio) if ratio > 0 else float("inf")


def summary(tool: str, rows: Sequence[Row]) -> Summary:
    """Summarise a tool."""
    ratios = [(ratio, row) for row in rows if (ratio := row.ratio(tool)) is not None]
    classes, failed = defaultdict[str, list[float]](list), defaultdict[str, int](int)
    for ratio, row in ratios:
        classes[row.layer.kind].append(ratio)
    for row in rows:
        if row.theirs[tool].failed:
            failed[str(row.theirs[tool].failed)] += 1
    medians = {kind: (statistics.median(found), len(found)) for kind, found in classes.items()}
    off = {k: v for k, v in medians.items() if distance(v[0]) > 1 + OFF}
    worst = max(ratios, key=lambda r: distance(r[0]), default=None)
    return Summary(
        tool,
        len(rows),
        len(ratios),
        statistics.median(r for r, _ in ratios) if ratios else None,
        worst[0] if worst else None,
        worst[1].layer.title if worst else None,
        sum(row.theirs[tool].seconds for row in rows),
        dict(sorted(off.items(), key=lambda item: -distance(item[1][0]))),
        dict(failed),
    )


def seconds(value: float) -> str:
    """A time with two significant digits."""
    return f"{value:,.0f} s" if value >= 10 else f"{value:.1f} s"


def cells(row: Row, tools: Sequence[str]) -> list[str]:
    """The texts of a row."""
    ours = row.ours
    found = [row.layer.network, row.layer.name, str(row.layer.count), row.layer.shape]
    found.append("-" if ours.cycles is None else f"{ours.cycles:,.0f}")
    found.append(seconds(ours.seconds))
    for tool in tools:
        answer, ratio = row.theirs[tool], row.ratio(tool)
        found.append("failed" if answer.cycles is None else f"{answer.cycles:,.0f}")
        found.append("" if ratio is None else f"{ratio:.3f}")
        found.append(seconds(answer.seconds))
    return found


def header(tools: Sequence[str]) -> list[str]:
    """The columns."""
    names = ["network", "layer", "count", "shape", "our cycles", "time"]
    return names + [text for tool in tools for text in (TOOLS[tool].title, "ratio", "time")]


def table(rows: Sequence[Row], tools: Sequence[str]) -> Table:
    """A line for each layer."""
    made = Table(box=None, header_style="dim", title="predicted cycles; ratio: a tool's by ours")
    for number, name in enumerate(header(tools)):
        made.add_column(name, justify="left" if number in (0, 1, 3) else "right", no_wrap=True)
    for row in rows:
        made.add_row(*cells(row, tools))
    return made


def markdown(rows: Sequence[Row], tools: Sequence[str]) -> str:
    """The same table as Markdown."""
    head = header(tools)
    lines = [head, ["---"] * len(head), *(cells(row, tools) for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def sentences(found: Summary) -> list[str]:
    """A summary in lines."""
    title = TOOLS[found.tool].title
    if found.median is None or found.worst is None:
        lines = [f"{title}: no layer of {found.layers}."]
    else:
        lines = [
            f"{title}: {found.answered} of {found.layers} layers in {seconds(found.seconds)}; median ratio "
            f"{found.median:.3f}, worst {found.worst:.3f} ({found.worst_layer})."
        ]
        off = ", ".join(f"{kind} {ratio:.2f} ({count})" for kind, (ratio, count) in found.off.items())
        lines.append(
            f"  Off by more than {OFF:.0%}, median ratio of the class (layers): {off}."
            if off
            else f"  No class of layers is off by more than {OFF:.0%}."
        )
    return lines + [f"  {count} failed: {why}" for why, count in found.failed.items()]
