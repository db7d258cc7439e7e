"""Where the tensors of a network lie in memory, and how long: those that are done with make room for others.

Constants, inputs, outputs and what lies in between have an area each, so that a few windows suffice:
constants and inputs may be read, the rest read and written.
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
from sw.layout import GARBAGE, MEMORY_BYTES, PAGE, round_up

#: Tensors start at multiples of this, which is at least a word of every port.
ALIGNMENT = 128


class Kind(enum.Enum):
    """What a tensor is to the program; areas lie in memory in this order."""

    CONSTANT = "constant"
    INPUT = "input"
    ACTIVATION = "activation"
    OUTPUT = "output"


@dataclass(frozen=True)
class Allocation:
    """A tensor in memory: rows start `pitch` bytes apart from `address` on.

    A row has `row` elements: the last axis, or several of the last axes. The tensor holds something from
    operator `first` (-1: from the start) to operator `last` of the program; what lies there later overwrites
    it.
    """

    tensor: Tensor
    kind: Kind
    address: int
    pitch: int
    first: int
    last: int
    row: int

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return np.dtype(self.tensor.element).itemsize

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.tensor.elements // self.row

    @property
    def dense(self) -> bool:
        """Whether rows follow each other without padding."""
        return self.pitch == self.row * self.itemsize

    @property
    def size(self) -> int:
        """Bytes, padding behind the last row included."""
        return self.rows * self.pitch

    def offset(self, element: int) -> int:
        """Bytes from the start of the tensor to an element, or those that such a step moves on.

        A step across rows of a tensor with padding must be a whole number of rows.
        """
        rows, column = divmod(element, self.row)
        return rows * self.pitch + column * self.itemsize

    def image(self, array: np.ndarray) -> np.ndarray:
        """The bytes as they lie in memory (uint8)."""
        out = np.full((self.rows, self.pitch), GARBAGE, np.uint8)
        values = np.ascontiguousarray(array, dtype=self.tensor.element).reshape(self.rows, self.row)
        out[:, : self.row * self.itemsize] = values.view(np.uint8).reshape(self.rows, -1)
        return out.reshape(-1)

    def extract(self, data: np.ndarray) -> np.ndarray:
        """The tensor out of its bytes (inverse of `image`)."""
        rows = data.reshape(self.rows, self.pitch)[:, : self.row * self.itemsize]
        values = np.ascontiguousarray(rows).view(self.tensor.element)
        return values.reshape(self.tensor.shape)


@dataclass(frozen=True)
class Lines:
    """How a tensor lies in memory: rows `pitch` bytes apart, the first `start` bytes behind a word.

    A row has `row` elements, 0 being those of the last axis.
    """

    pitch: int
    start: int = 0
    row: int = 0


@dataclass(frozen=True)
class MemoryPlan:
    """Homes of all tensors by name, and windows: first byte, last byte, read, write."""

    homes: Mapping[str, Allocation]
    windows: tuple[tuple[int, int, bool, bool], ...]
    end: int

    def overwritten(self, name: str) -> tuple[str, ...]:
        """The tensors that lie, earlier in the program, where this one does."""
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
    memory_bytes: int = MEMORY_BYTES,
) -> MemoryPlan:
    """Give every tensor that the operators touch a home.

    `lines` holds how rows lie of tensors that are not dense or not aligned. What a network's later part needs
    stays to the end. Raises `InputError` where memory or windows do not suffice.
    """
    lives = _lives(network, operators)
    homes: dict[str, Allocation] = {}
    address = PAGE
    areas: dict[Kind, tuple[int, int]] = {}
    for kind in Kind:
        start = address
        tensors = [t for t, k, _, _ in lives.values() if k is kind]
        if kind is Kind.ACTIVATION:
            address = _place_activations([(t, *lives[t.name][2:]) for t in tensors], lines, address, homes)
        else:
            for tensor in tensors:
                first, last = lives[tensor.name][2:]
                own = _lines(tensor, lines)
                home = Allocation(tensor, kind, address + own.start, own.pitch, first, last, own.row)
                homes[tensor.name] = home
                address = round_up(home.address + home.size, ALIGNMENT)
        areas[kind] = (start, address)
        # Nothing lies at the end of an area, so that what runs across it meets no tensor.
        address = round_up(address, PAGE) + (PAGE if address > start else 0)
    if address > memory_bytes:
        sizes = ", ".join(f"{kind.value}s {end - start}" for kind, (start, end) in areas.items())
        raise InputError(
            f"the tensors of {network.name!r} must fit {memory_bytes} bytes of memory, "
            f"{address} are needed ({sizes})"
        )
    return MemoryPlan(homes, _windows(areas, config), address)


def _lines(tensor: Tensor, lines: Mapping[str, Lines]) -> Lines:
    row = last_axis(tensor)
    own = lines.get(tensor.name, Lines(row * np.dtype(tensor.element).itemsize))
    return own if own.row else dataclasses.replace(own, row=row)


def last_axis(tensor: Tensor) -> int:
    """Elements along the last axis."""
    return tensor.shape[-1] if tensor.shape else 1


def _lives(network: Network, operators: Sequence[Operator]) -> dict[str, tuple[Tensor, Kind, int, int]]:
    """Tensors in the order of their first use: kind, first operator that writes, last that touches."""
    end = len(operators)
    own = {id(o) for o in operators}
    others = [o for o in network.operators if id(o) not in own]
    wanted = {*network.outputs, *(v.tensor for o in others for v in o.inputs)}
    # What several programs write in part is there from the start to the end.
    shared = {o.output.tensor for o in others}
    written: dict[str, int] = {}
    last: dict[str, int] = {}
    for number, operator in enumerate(operators):
        for view in operator.inputs:
            last[view.tensor] = number
        written.setdefault(operator.output.tensor, number)
        last[operator.output.tensor] = number
    made: dict[str, tuple[Tensor, Kind, int, int]] = {}
    for name in last:
        tensor = network.tensors[name]
        if tensor.constant is not None:
            made[name] = (tensor, Kind.CONSTANT, -1, end)
        elif name not in written:
            made[name] = (tensor, Kind.INPUT, -1, end)
        elif name in shared:
            made[name] = (tensor, Kind.OUTPUT, -1, end)
        elif name in wanted:
            made[name] = (tensor, Kind.OUTPUT, written[name], end)
        else:
            made[name] = (tensor, Kind.ACTIVATION, written[name], last[name])
    return made


def _place_activations(
    lives: Sequence[tuple[Tensor, int, int]],
    lines: Mapping[str, Lines],
    base: int,
    homes: dict[str, Allocation],
) -> int:
    """Largest first, each at the lowest address where nothing lies that lives at the same time."""
    end = base
    placed: list[Allocation] = []
    rows = {t.name: _lines(t, lines) for t, _, _ in lives}
    wanted = [
        Allocation(t, Kind.ACTIVATION, 0, rows[t.name].pitch, first, last, rows[t.name].row)
        for t, first, last in lives
    ]
    for home in sorted(wanted, key=lambda h: (-h.size, h.first, h.tensor.name)):
        start = rows[home.tensor.name].start
        address = base + start
        # What an operator reads and what it writes live at the same time.
        for other in sorted(placed, key=lambda h: h.address):
            if other.last < home.first or home.last < other.first:
                continue
            if address + home.size <= other.address:
                break
            address = max(address, round_up(other.address + other.size, ALIGNMENT) + start)
        home = dataclasses.replace(home, address=address)
        placed.append(home)
        homes[home.tensor.name] = home
        end = max(end, round_up(address + home.size, ALIGNMENT))
    return end


def _windows(
    areas: Mapping[Kind, tuple[int, int]], config: MachineConfig
) -> tuple[tuple[int, int, bool, bool], ...]:
    """A window to read for constants and inputs, one to read and write for the rest."""
    found = []
    for kinds, write in (((Kind.CONSTANT, Kind.INPUT), False), ((Kind.ACTIVATION, Kind.OUTPUT), True)):
        used = [areas[k] for k in kinds if areas[k][1] > areas[k][0]]
        if used:
            found.append((used[0][0], used[-1][1] - 1, True, write))
    if len(found) > config.windows:
        raise InputError(f"windows must be at least {len(found)}, not {config.windows}")
    return tuple(found)
