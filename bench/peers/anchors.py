"""Published cycles and utilizations of whole networks, and ours on an array of the same size."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from bench.peers import ours
from bench.peers.layers import Layer, layers
from hw.config import MachineConfig, load
from hw.errors import InputError

DATA = Path(__file__).with_name("anchors.toml")


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A published figure: of which machine, from where, and for which layers."""

    machine: str
    source: str
    network: str
    layers: str
    images: int
    set: Mapping[str, Any]
    not_comparable: Sequence[str]
    cycles: int | None = None
    utilization: float | None = None

    @property
    def config(self) -> MachineConfig:
        """Our machine: `default` with the fields of theirs."""
        return load("default", self.set)

    @property
    def workload(self) -> Sequence[Layer]:
        """The layers of one image."""
        found = [one for one in layers() if one.network == self.network]
        return [one for one in found if re.fullmatch(self.layers, one.name)]

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all images."""
        return self.images * sum(one.count * one.problem.macs for one in self.workload)

    def busy(self, cycles: float) -> float:
        """Utilization in this many cycles: the fraction that an array at its peak would need."""
        return self.macs / self.config.macs_per_cycle / cycles


@dataclass(frozen=True)
class Rerun:
    """An anchor beside our cycles for the same layers, by the cycle model."""

    anchor: Anchor
    cycles: int

    @property
    def published(self) -> float:
        """Their utilization: as published, or computed from their cycles."""
        about = self.anchor
        return about.utilization or about.busy(about.cycles or 0)

    def as_dict(self) -> dict[str, Any]:
        """As JSON."""
        about = self.anchor
        return vars(about) | {
            "hw": about.config.hash,
            "macs": about.macs,
            "published_utilization": self.published,
            "our_cycles": self.cycles,
            "our_utilization": about.busy(self.cycles),
        }


def anchors() -> Sequence[Anchor]:
    """All anchors, in the order of the file."""
    return [Anchor(**values) for values in tomllib.loads(DATA.read_text("utf-8"))["anchor"]]


def rerun(chosen: Sequence[Anchor], progress: Callable[[str], None]) -> Sequence[Rerun]:
    """Predict every layer once for each machine."""
    known = dict[tuple[str, str], int]()
    found = []
    for anchor in chosen:
        config, total = anchor.config, 0
        for layer in anchor.workload:
            key = (config.hash, layer.shape)
            if key not in known:
                progress(f"{anchor.machine}: {layer.title}")
                answer = ours.predicted(config, layer)
                if answer.cycles is None:
                    raise InputError(f"{anchor.source}: {layer.title}: {answer.failed}")
                known[key] = int(answer.cycles)
            total += layer.count * known[key]
        found.append(Rerun(anchor, anchor.images * total))
    return found


def table(found: Sequence[Rerun]) -> Table:
    """A line for each anchor."""
    made = Table(box=None, header_style="dim", title="published, and ours on 16 x 16 (cycle model)")
    for name in ("machine", "workload", "cycles", "array busy", "our cycles", "array busy", "theirs by ours"):
        made.add_column(name, justify="left" if name in ("machine", "workload") else "right", no_wrap=True)
    for one in found:
        about = one.anchor
        workload = f"{about.network} {about.layers}, {about.images} image{'s' * (about.images > 1)}"
        made.add_row(
            about.machine,
            workload,
            "" if about.cycles is None else f"{about.cycles:,}",
            f"{one.published:.0%}",
            f"{one.cycles:,}",
            f"{about.busy(one.cycles):.0%}",
            "" if about.cycles is None else f"{about.cycles / one.cycles:.2f}",
        )
    return made


def notes(found: Sequence[Rerun]) -> Sequence[str]:
    """Sources of the figures, and known differences."""
    return [
        line
        for one in found
        for line in (
            f"{one.anchor.machine}: {one.anchor.source}",
            *(f"  {text}" for text in one.anchor.not_comparable),
        )
    ]
