"""Builds one sequential tile program for consecutive operators, one after the other."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np

from hw import isa
from hw.config import MachineConfig
from hw.errors import InputError, UnwritableError
from sw.cgra.launcher import UNIT
from sw.compile.array_tiles import Choices, LoweredProduct
from sw.compile.forms import Loop, index
from sw.compile.launches import LaunchWriter
from sw.compile.legal import layouts, stores_sums
from sw.compile.memory import Allocation, MemoryPlan, plan_memory
from sw.compile.refused import OperatorsError
from sw.compile.repeat import Repeated, repeats
from sw.compile.writer import ChipSpace, Writer, loop
from sw.graph.network import Network, Operator, Tensor
from sw.ir.expression import Expr
from sw.ir.program import Instruction, Program, Statement
from sw.ir.ranges import bounds
from sw.ir.walk import instructions, statements
from sw.kernels import mappings
from sw.kernels.configuration import Configured
from sw.operators.columns import LoweredColumns
from sw.operators.registry import LoweredOperator, LoweringContext, lower
from sw.operators.rows import LoweredRows
from sw.tiling.machine import array_sets_pace

#: Name of the loop over the steps of repeated operators.
STEPS = "step"


@dataclass(frozen=True)
class Group:
    """Consecutive operators of a network that run on the machine."""

    network: Network
    operators: tuple[Operator, ...]
    config: MachineConfig

    def parts(self, count: int) -> list[Group]:
        """The operators in at most this many groups of about equal size; loops stay whole if possible."""
        items = [
            (len(item.body), item.count) if isinstance(item, Repeated) else (1, 1)
            for item in repeats(self.operators, self.network.tensors)
        ]
        found = self._cut(items, count)
        return found if len(found) > 1 else self._cut([(1, 1)] * len(self.operators), count)

    def _cut(self, items: Sequence[tuple[int, int]], count: int) -> list[Group]:
        """Groups of items, each of which is a number of operators executed a number of times."""
        groups: list[list[Operator]] = [[] for _ in range(count)]
        left, done, total = list(self.operators), 0, sum(size for size, _ in items)
        for size, times in items:
            groups[(2 * done + size) * count // (2 * total)] += left[: size * times]
            del left[: size * times]
            done += size
        return [dataclasses.replace(self, operators=tuple(own)) for own in groups if own]


@dataclass(frozen=True)
class LoweredLoop:
    """Repeated operators, each with its tiles."""

    operator: Repeated
    parts: tuple[LoweredOperator, ...]

    @property
    def configured(self) -> tuple[Configured, ...]:
        """Configurations of all launches."""
        return tuple(c for part in self.parts for c in part.configured)

    @property
    def blobs(self) -> tuple[Tensor, ...]:
        """The constants that they add."""
        return tuple(b for part in self.parts for b in part.blobs)


Part = LoweredOperator | LoweredLoop


@dataclass(frozen=True)
class Tiled:
    """Operators with their tiles, and the allocation of all tensors.

    `configurations` names the tensors that hold configurations, by their words. `early`: the array is busier
    than the storer (`sw.warps.convert`).
    """

    group: Group
    parts: tuple[Part, ...]
    memory: MemoryPlan
    configurations: Mapping[tuple[int, ...], str]
    early: bool


def tile(group: Group, space: range, allowed: Choices) -> Tiled:
    """Chooses memory in a range of addresses, tiles, and configurations for consecutive operators."""
    network, operators, config = group.network, group.operators, group.config
    lines = layouts(network, config)
    memory = plan_memory(network, operators, lines, config, space)
    # Half is left to the next operator, which loads its configuration and operands while this one runs.
    half = config.scratch_bytes // 2
    taken = set(network.tensors)
    parts, refused = list[Part](), list[tuple[Operator, str]]()
    items = repeats(operators, network.tensors) if allowed.loops else operators
    bodies = [item.body if isinstance(item, Repeated) else (item,) for item in items]
    numbers, count = itertools.count(1), sum(map(len, bodies))
    for item, body in zip(items, bodies, strict=True):
        lowered = list[LoweredOperator]()
        for operator in body:
            try:
                with mappings.heard_of(f"operator {next(numbers)} of {count}"):
                    lowered.append(_part(operator, memory.homes, config, half, taken, allowed))
            except UnwritableError:
                raise
            except InputError as error:
                text, about = str(error), f"{operator.name} ({operator.op})"
                refused.append((operator, text if operator.name in text else f"{about}: {text}"))
        parts += [LoweredLoop(item, tuple(lowered))] if isinstance(item, Repeated) else lowered
    if refused:
        raise OperatorsError(refused)
    configurations = _configurations(parts, taken)
    blobs = [*configurations.values(), *(b for p in parts for b in p.blobs)]
    memory = plan_memory(network, operators, lines, config, space, blobs)
    early = all(
        holds_sums(p) and array_sets_pace(p.nest.extent, config, p.nest.blocking, allowed.bandwidth)
        for p in parts
    )
    return Tiled(group, tuple(parts), memory, {words: t.name for words, t in configurations.items()}, early)


def holds_sums(own: Part) -> TypeGuard[LoweredProduct]:
    """Whether a part is a product whose sums are stored."""
    return isinstance(own, LoweredProduct) and own.chosen is None


def emit(tiled: Tiled) -> tuple[Program, dict[str, int]]:
    """The statements of all operators, and the number of each instruction's operator by label."""
    writer = Writer(tiled.group.config, tiled.memory)
    launcher = LaunchWriter(writer, tiled.configurations)
    body: list[Statement] = []
    for number, own in enumerate(tiled.parts):
        writer.number = number
        body += _loop(own, launcher) if isinstance(own, LoweredLoop) else _statements(own, launcher, number)
    return writer.program("model", body), writer.labels


def _loop(own: LoweredLoop, launcher: LaunchWriter) -> list[Statement]:
    """The statements of repeated operators, in a loop over their steps."""
    writer, level = launcher.writer, Loop(STEPS, own.operator.count)
    writer.step, writer.moves = index([level], STEPS), own.operator.moves

    def body() -> list[Statement]:
        return [s for number, part in enumerate(own.parts) for s in _statements(part, launcher, number)]

    labels, held = dict(writer.labels), launcher.current
    launcher.forget()
    before, made = list[Statement](), body()
    first = next(iter(own.configured), None)
    if first is not None and launcher.current == first.words:
        # A step starts with the configuration that the previous one ends with, so it is loaded once.
        writer.labels, launcher.current = labels, held
        before = launcher.load(first, ChipSpace("scratchpad", 0, writer.config.scratch_bytes, UNIT))
        before += launcher.bring(first)
        made = body()
    writer.step, writer.moves = None, {}
    return [*before, loop(level, made)]


def _part(
    operator: Operator,
    homes: Mapping[str, Allocation],
    config: MachineConfig,
    room: int,
    taken: set[str],
    allowed: Choices,
) -> LoweredOperator:
    """Tiles that leave half of the scratchpad to the next operator, if such tiles exist.

    Names of the part's own constants are added to `taken`: operators may have equal names.
    """
    if config.cgra is None and not stores_sums(operator):
        raise InputError(
            f"{operator.name} ({operator.op}): machine {config.name!r} must have a CGRA, it has none"
        )
    reserved = room // 4
    try:
        made = lower(operator, LoweringContext(config, homes, room - reserved, allowed))
    except UnwritableError:
        raise
    except InputError:
        made = lower(operator, LoweringContext(config, homes, config.scratch_bytes - reserved, allowed))
    names = {blob.name for blob in made.blobs}
    if names & taken:
        other = dataclasses.replace(operator, name=operator.name + "'")
        return _part(other, homes, config, room, taken, allowed)
    taken |= names
    return made


def _configurations(parts: Sequence[Part], taken: set[str]) -> dict[tuple[int, ...], Tensor]:
    """The configurations of all operators as tensors; equal ones are shared."""
    made: dict[tuple[int, ...], Tensor] = {}
    for own in parts:
        for configured in own.configured:
            words = tuple(configured.words)
            if words not in made:
                array = np.array(words, np.uint32).view(np.int32)
                name = f"configuration {len(made)}"
                while name in taken:
                    name += "'"
                taken.add(name)
                made[words] = Tensor(name, array.shape, "int32", array)
    return made


def _statements(own: LoweredOperator, launcher: LaunchWriter, number: int) -> list[Statement]:
    """The statements of an operator, in its half of the scratchpad, or in all of it."""
    writer, c = launcher.writer, launcher.writer.config
    half = c.scratch_bytes // 2
    # What lanes access together must be aligned to all their words.
    least = max(16, 4 * c.cgra.lanes if c.cgra is not None else 0)
    labels, current = dict(writer.labels), launcher.current
    for base, size in ((number % 2 * half, half), (0, c.scratch_bytes)):
        writer.labels, launcher.current = dict(labels), current
        scratch = ChipSpace("scratchpad", base, size, max(least, c.load_c_bytes))
        out = ChipSpace("output buffer", 0, c.out_bytes, max(least, c.store_bytes))
        body: list[Statement] = []
        try:
            alone = isinstance(own, LoweredColumns) or (isinstance(own, LoweredRows) and own.slots)
            for configured in () if alone else own.configured:
                body += launcher.load(configured, scratch)
            if len(own.configured) == 1:
                body += launcher.bring(own.configured[0])
            body += own.emit(launcher, scratch, out)
            check_operands(own.operator.name, body)
            return body
        except InputError as error:
            last = error
    name = f"{own.operator.name}: "
    raise OperatorsError([(own.operator, name + str(last).removeprefix(name))])


def most_operands(program: Program) -> int:
    """Number of operands of all operations of the warp that has the most."""
    counts: Counter[int | None] = Counter()
    for instruction in instructions(program):
        counts[instruction.warp] += len(instruction.operands)
    return max(counts.values(), default=0)


def check_operands(name: str, body: Sequence[Statement]) -> None:
    """Raises `InputError`, naming the operator, if an operand may be too wide for its field."""
    for s in statements(tuple(body)):
        if not isinstance(s, Instruction):
            continue
        widths = _widths(s)
        for operand, value in s.operands:
            bits = widths.get(operand, 32)
            if bits == 32 or not isinstance(value, Expr):
                continue
            high = bounds(value)[1]
            if high >> bits > 0:
                raise InputError(
                    f"{name}: {operand} of {s.name} must be at most {(1 << bits) - 1}, it can be {high}"
                )


def _widths(s: Instruction) -> dict[str, int]:
    """Bits of an operation's operands and parameters, by name."""
    spec = isa.INSTRUCTIONS[s.name]
    return {o.name: o.bits for o in spec.operands} | {p: isa.PARAMETERS[p].bits for p in spec.parameters}
