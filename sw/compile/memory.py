"""Allocation of a network's tensors in memory: tensors share memory if their live ranges do not overlap.

Constants, inputs, outputs and intermediate tensors have an area each, so a few windows suffice:
constants and inputs are read-only, the others read-write.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from sw.graph.network import Network, Operator, Tensor
from sw.layout import MEMORY, PAGE, Placement, clear_of_middle, round_up

#: Alignment of tensors, at least a word of every port.
ALIGNMENT = 128


class Kind(enum.Enum):
    """The role of a tensor in the program; areas of memory are in this order."""

    CONSTANT = "constant"
    INPUT = "input"
    ACTIVATION = "activation"
    OUTPUT = "output"


@dataclass(frozen=True, kw_only=True)
class Allocation(Placement):
    """A tensor in memory; a row is its last axis, or several of its last axes.

    The tensor is live from operator `first` (-1: from the start) to operator `last` of the program; later
    contents overwrite it.
    """

    tensor: Tensor
    kind: Kind
    first: int
    last: int

    @property
    def end(self) -> int:
        """The first address for the next tensor."""
        return round_up(self.address + self.size, ALIGNMENT)

    @classmethod
    def of(
        cls, tensor: Tensor, kind: Kind, address: int, pitch: int, first: int, last: int, row: int
    ) -> Allocation:
        """A tensor at an address, with rows of this many elements."""
        return cls(
            name=tensor.name,
            address=address,
            shape=tensor.shape,
            dtype=np.dtype(tensor.element),
            pitch=pitch,
            row=row,
            tensor=tensor,
            kind=kind,
            first=first,
            last=last,
        )


@dataclass(frozen=True)
class Lines:
    """The row layout of a tensor: rows `pitch` bytes apart, the first one `start` bytes into a word.

    A row has `row` elements; 0 means those of the last axis.
    """

    pitch: int
    start: int = 0
    row: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Allocations of all tensors by name, and windows: first byte, last byte, read, write."""

    homes: Mapping[str, Allocation]
    windows: tuple[tuple[int, int, bool, bool], ...]
    end: int

    def overwritten(self, name: str) -> tuple[str, ...]:
        """The tensors whose memory this one overwrites."""
        own = self.homes[name]
        return tuple(
            other.tensor.name
            for other in self.homes.values()
            if other.last < own.first
            and other.address < own.address + own.size
            and own.address < other.address + other.size
        )


def plan_memory(
    network: Network,
    operators: Sequence[Operator],
    lines: Mapping[str, Lines],
    config: MachineConfig,
    memory: range = MEMORY,
    further: Sequence[Tensor] = (),
) -> MemoryPlan:
    """Allocates every tensor that the operators touch, and the `further` constants.

    `lines` holds the row layout of tensors that are not dense or not aligned. Tensors that later parts of a
    network need live to the end. Everything lies in `memory`. Raises `InputError` if memory or windows are
    too small.
    """
    wanted = _lives(network, operators, lines)
    wanted += [_unplaced(t, Kind.CONSTANT, -1, len(operators), lines) for t in further]
    homes: dict[str, Allocation] = {}
    address = memory.start
    areas: dict[Kind, tuple[int, int]] = {}
    for kind in Kind:
        start = address
        own = [home for home in wanted if home.kind is kind]
        if kind is Kind.ACTIVATION:
            placed = _place_activations(own, address)
        else:
            placed = []
            for home in own:
                placed.append(_placed(home, address))
                address = placed[-1].end
        homes |= {home.name: home for home in placed}
        address = max((home.end for home in placed), default=start)
        areas[kind] = (start, address)
        # The end of an area stays unused, so an access beyond it hits no tensor.
        address = round_up(address, PAGE) + (PAGE if address > start else 0)
    if address > memory.stop:
        sizes = ", ".join(f"{kind.value}s {end - start}" for kind, (start, end) in areas.items())
        raise InputError(
            f"the tensors of {network.name!r} must fit {memory.stop} bytes of memory, "
            f"{address} are needed ({sizes})"
        )
    return MemoryPlan(homes, _windows(areas, config), address)


def _unplaced(tensor: Tensor, kind: Kind, first: int, last: int, lines: Mapping[str, Lines]) -> Allocation:
    """A tensor without an address yet; until then, `address` holds its offset from a port word."""
    row = tensor.shape[-1] if tensor.shape else 1
    own = lines.get(tensor.name, Lines(row * np.dtype(tensor.element).itemsize))
    return Allocation.of(tensor, kind, own.start, own.pitch, first, last, own.row or row)


def _lives(network: Network, operators: Sequence[Operator], lines: Mapping[str, Lines]) -> list[Allocation]:
    """Tensors in the order of their first use, not yet placed."""
    end = len(operators)
    own = {id(o) for o in operators}
    others = [o for o in network.operators if id(o) not in own]
    wanted = {*network.outputs, *(v.tensor for o in others for v in o.inputs)}
    # Tensors that several programs write in part are live throughout.
    shared = {o.output.tensor for o in others}
    written: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, operator in enumerate(operators):
        for view in operator.inputs:
            last[view.tensor] = number
        written.setdefault(operator.output.tensor, number)
        last[operator.output.tensor] = number
    made = []
    for name in last:
        tensor = network.tensors[name]
        kind, since, until = Kind.ACTIVATION, written.get(name, -1), last[name]
        if tensor.constant is not None:
            kind, since, until = Kind.CONSTANT, -1, end
        elif name not in written:
            kind, until = Kind.INPUT, end
        elif name in shared:
            kind, since, until = Kind.OUTPUT, -1, end
        elif name in wanted:
            kind, until = Kind.OUTPUT, end
        made.append(_unplaced(tensor, kind, since, until, lines))
    return made


def _place_activations(wanted: Sequence[Allocation], base: int) -> list[Allocation]:
    """Places the largest first, each at the lowest address free during its live range."""
    placed: list[Allocation] = []
    for home in sorted(wanted, key=lambda h: (-h.size, h.first, h.name)):
        found = _placed(home, base)
        # An operator's inputs and outputs are live at the same time.
        for other in sorted(placed, key=lambda h: h.address):
            if other.last < home.first or home.last < other.first:
                continue
            if found.address + home.size <= other.address:
                break
            if found.address < other.end + home.address:
                found = _placed(home, other.end)
        placed.append(found)
    return placed


def _placed(home: Allocation, address: int) -> Allocation:
    """A tensor placed at the first suitable address at or above a given word address."""
    start = clear_of_middle(address, home.address + home.size)
    return dataclasses.replace(home, address=start + home.address)


def _windows(
    areas: Mapping[Kind, tuple[int, int]], config: MachineConfig
) -> tuple[tuple[int, int, bool, bool], ...]:
    """A read-only window for constants and inputs, and a read-write window for the rest."""
    found = []
    for kinds, write in (((Kind.CONSTANT, Kind.INPUT), False), ((Kind.ACTIVATION, Kind.OUTPUT), True)):
        used = [areas[k] for k in kinds if areas[k][1] > areas[k][0]]
        if used:
            found.append((used[0][0], used[-1][1] - 1, True, write))
    if len(found) > config.windows:
        raise InputError(f"windows must be at least {len(found)}, not {config.windows}")
    return tuple(found)
