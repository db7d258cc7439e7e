"""The event stream of a warp: its operations, waits and signals in order, from its assembly text.

Nothing that a warp computes depends on data, so for given parameters it is one sequence of events. Scalar
instructions are executed exactly. The structured code becomes one Python function, which takes about 0.1 µs
per instruction.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from hw import isa
from hw.errors import InputError
from hw.semantics import MASK
from sw.check.affine import Number
from sw.check.dependences import TooLargeError
from sw.check.text import Block, Line, Loop
from sw.check.trace import columns_of

#: Most instructions of one warp before it counts as endless.
STEPS = 100_000_000
OP, WAIT, SIGNAL = 0, 1, 2
#: Returns that many unknown numbers.
Forget = Callable[[int], Sequence[Number]]
_KINDS = {"wait": WAIT, "signal": SIGNAL}

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class EventSite:
    """A line of a text that produces events.

    `name` is the machine's operation, or, if `generic`, the label that `op` executes; `channel` is that of a
    wait or signal, and -1 for operations.
    """

    line: int
    kind: int
    name: str
    channel: int = -1
    generic: bool = False


@dataclass(frozen=True)
class Stream:
    """The events of a warp: for each, the number of its site, in order.

    `values` holds, by site of a machine operation, one row per execution: its operands, then the parameter
    registers that it reads, unsigned.
    """

    sites: tuple[EventSite, ...]
    events: npt.NDArray[np.int32]
    values: Mapping[int, Ints] = field(default_factory=dict)

    @cached_property
    def kinds(self) -> npt.NDArray[np.int8]:
        """OP, WAIT or SIGNAL of every event."""
        return np.array([*(s.kind for s in self.sites), 0], np.int8)[self.events]

    @cached_property
    def channels(self) -> npt.NDArray[np.int32]:
        """The channel of every event, -1 for operations."""
        return np.array([*(s.channel for s in self.sites), 0], np.int32)[self.events]

    @cached_property
    def operations(self) -> Ints:
        """The events that are operations."""
        return np.flatnonzero(self.kinds == OP)

    def site(self, event: int) -> EventSite:
        """The line of an event."""
        return self.sites[int(self.events[event])]


class EndlessError(InputError):
    """A warp that executes more instructions than allowed."""


@dataclass(frozen=True)
class Compiled:
    """A warp's text, ready to be executed for values of the parameters."""

    warp: int
    code: Block
    sites: tuple[EventSite, ...]
    parameters: frozenset[str]
    function: Callable[..., int]

    @cached_property
    def symbolic(self) -> Callable[..., int]:
        """The function for numbers that track the parameters; it asks its runtime for rounds of loops."""
        return _function(_PythonWriter(symbolic=True), self.code)


def compile_warp(code: Block, warp: int) -> Compiled:
    """Prepares a warp's code for `run`."""
    writer = _PythonWriter()
    function = _function(writer, code)
    return Compiled(warp, code, tuple(writer.sites), frozenset(writer.arguments), function)


def _function(writer: _PythonWriter, code: Block) -> Callable[..., int]:
    writer.function(code)
    names: dict[str, Any] = {}
    # The text is generated here from numbers alone.
    exec("\n".join(writer.lines), names)
    function: Callable[..., int] = names["run"]
    return function


def run(code: Compiled, values: Mapping[str, int], steps: int = STEPS) -> Stream:
    """The events of a warp for given parameter values.

    Raises `InputError` with warp and line for a division by zero, a value too wide for a parameter register
    or an operand, a program that runs past its end, and more than `steps` instructions.
    """
    runtime, events = Runtime(code, steps), array("i")
    runtime.see_parameters(values)
    columns: dict[int, array[int]] = {n: array("q") for n, s in enumerate(code.sites) if _machine(s)}
    code.function(values, steps, events, columns, runtime)
    made = {}
    for n, column in columns.items():
        site = code.sites[n]
        made[n] = rows = np.frombuffer(column, np.int64).reshape(-1, len(columns_of(site.name)))
        runtime.see_operands(site, rows.max(axis=0, initial=0).tolist())
    return Stream(code.sites, np.frombuffer(events, np.int32), made)


def follow(runtime: Runtime, values: Mapping[str, Number]) -> tuple[list[tuple[Number, ...]], int]:
    """The operands of a warp's operations, in order, for numbers that track the parameters; the steps left.

    A generic operation has none. Every decision is recorded. Raises `TooLargeError` after the runtime's
    steps.
    """
    runtime.see_parameters(values)
    rows: list[tuple[Number, ...]] = []
    try:
        left = runtime.code.symbolic(values, runtime.steps, runtime.events, rows, runtime)
    except EndlessError:
        raise TooLargeError("too many steps to find values that behave alike") from None
    sites = [runtime.code.sites[n] for n in runtime.events]
    for site, row in zip([s for s in sites if s.kind == OP], rows, strict=True):
        if row:
            runtime.see_operands(site, row)
    return rows, left


def _machine(site: EventSite) -> bool:
    return site.kind == OP and not site.generic


@dataclass
class Runtime:
    """The functions that compiled text calls: they end a run that is too long or fails, and repeat loops."""

    code: Compiled
    steps: int
    #: In a run that tracks the parameters, the sites of its events.
    events: list[int] = field(init=False, default_factory=list)

    def __call__(self) -> NoReturn:
        """Report too many steps."""
        raise EndlessError(f"warp {self.code.warp} executes more than {self.steps:,} instructions")

    def fail(self, line: int, text: str) -> NoReturn:
        """Reports an error in a line."""
        raise InputError(f"warp {self.code.warp}, line {line}: {text}")

    def end(self) -> NoReturn:
        """Reports a missing halt."""
        raise InputError(f"warp {self.code.warp} runs past its end: a halt must end it")

    def wide(self, line: int, what: str, bits: int, value: Number) -> NoReturn:
        """Reports a value too wide for a parameter register or an operand."""
        self.fail(line, f"{what} must fit {bits} bits, not {value}")

    def see_operands(self, site: EventSite, row: Iterable[Number]) -> None:
        """Checks that the operands of a machine operation fit."""
        for operand, a in zip(isa.INSTRUCTIONS[site.name].operands, row, strict=False):
            if not a < 1 << operand.bits:
                self.wide(site.line, f"{site.name}: {operand.name}", operand.bits, a)

    def see_parameters(self, values: Mapping[str, Number]) -> None:
        """Checks that the program has the parameters that the text uses."""
        missing = sorted(self.code.parameters - values.keys())
        if missing:
            raise InputError(f"warp {self.code.warp}: the program has no parameter {missing[0]}")

    def rounds(self, count: Number) -> Iterable[Forget | None]:
        """The rounds of a loop, for numbers that track the parameters; counts below 1 are equivalent.

        With a function, one round stands for many: the function gives a number for every register that the
        body writes.
        """
        return itertools.repeat(None, int(count)) if count > 0 else ()


def _register(number: int) -> str:
    return f"r{number}" if number else "0"


@dataclass
class _PythonWriter:
    """Writes Python for structured code; with `symbolic`, for numbers that track the parameters."""

    symbolic: bool = False
    lines: list[str] = field(default_factory=list)
    sites: list[EventSite] = field(default_factory=list)
    arguments: set[str] = field(default_factory=set)
    #: Number of blocks with jumps; each has a variable that selects the part to run next.
    blocks: int = 0

    def function(self, code: Block) -> None:
        """The function `run`: events go to arrays, and it returns the steps left."""
        self.put(0, "def run(values, n, events, columns, over):")
        self.put(1, "e = events.append")
        body = len(self.lines)
        self.block(code, 1)
        self.put(1, "return n" if not code.nodes else "over.end()")
        start = [f"    {name} = 0" for name in sorted(_used(code))]
        if self.symbolic:
            start.append("    row = columns.append")
        else:
            start += [f"    v{n} = columns[{n}].extend" for n, s in enumerate(self.sites) if _machine(s)]
        self.lines[body:body] = start

    def put(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def block(self, block: Block, depth: int) -> None:
        """A block of instructions; with jumps, in parts that are skipped or repeated."""
        jumps = {
            n: x.target for n, x in enumerate(block.nodes) if isinstance(x, Line) and x.target is not None
        }
        if not jumps:
            self.part(block.nodes, depth)
            return
        starts = sorted({0, len(block.nodes), *jumps.values(), *(n + 1 for n in jumps)})
        number = {node: k for k, node in enumerate(starts)}
        self.blocks += 1
        state = f"s{self.blocks}"
        again = any(target <= n for n, target in jumps.items())
        self.put(depth, f"{state} = 0")
        if again:
            self.put(depth, "while True:")
            depth += 1
        for k, start in enumerate(starts[:-1]):
            nodes = block.nodes[start : starts[k + 1]]
            self.put(depth, f"if {state} <= {k}:")
            last = nodes[-1]
            if isinstance(last, Line) and last.name == "jump":
                self.part(nodes[:-1], depth + 1, more=1)
                assert last.target is not None
                inner = self.guard(last, depth + 1)
                self.put(inner, f"{state} = {number[last.target]}")
                if last.target <= start + len(nodes) - 1:
                    self.put(inner, "continue")
            else:
                self.part(nodes, depth + 1)
        if again:
            self.put(depth, "break")

    def part(self, nodes: Sequence[Line | Loop], depth: int, more: int = 0) -> None:
        """Instructions without jumps; `more` is added to the count of steps."""
        if nodes or more:
            self.put(depth, f"n -= {len(nodes) + more}")
            self.put(depth, "if n < 0: over()")
        else:
            self.put(depth, "pass")
        for node in nodes:
            if isinstance(node, Loop):
                count = _register(node.line.fields["rs1"])
                holds = _condition(node.line)
                times = count if holds is None else f"{count} if {holds} else 1"
                rounds = "over.rounds" if self.symbolic else "range"
                self.put(depth, f"for forget in {rounds}({times}):")
                # An empty body also costs its iteration, so that the loop terminates.
                self.put(depth + 1, "n -= 1")
                self.put(depth + 1, "if n < 0: over()")
                written = sorted(_written(node.body))
                if self.symbolic and written:
                    self.put(depth + 1, f"if forget: {', '.join(written)}, = forget({len(written)})")
                self.block(node.body, depth + 1)
            elif node.name != "nop":
                self.instruction(node, self.guard(node, depth))

    def guard(self, line: Line, depth: int) -> int:
        """The predicate; returns the indentation of the instruction."""
        holds = _condition(line)
        if holds is None:
            return depth
        self.put(depth, f"if {holds}:")
        return depth + 1

    def instruction(self, line: Line, depth: int) -> None:
        f, name = line.fields, line.name
        spec = isa.INSTRUCTIONS.get(name)
        if name == "halt":
            self.put(depth, "return n")
        elif name in _KINDS:
            self.event(EventSite(line.number, _KINDS[name], name, f["channel"]), depth)
        elif name == "op":
            self.event(EventSite(line.number, OP, line.text, generic=True), depth)
            if self.symbolic:
                self.put(depth, "row(())")
        elif spec is not None and spec.engine:
            site = self.event(EventSite(line.number, OP, name), depth)
            operands = [f"{_register(f[x.name])} & {MASK}" for x in spec.fields]
            operands += [f"p{isa.PARAMETERS[p].index}" for p in spec.parameters]
            self.put(depth, f"{'row' if self.symbolic else f'v{site}'}(({', '.join(operands)},))")
        elif name in ("param", "parami"):
            value = str(f["imm"] & MASK) if name == "parami" else f"{_register(f['rs1'])} & {MASK}"
            p = isa.BY_PARAMETER[f["parameter"]]
            self.put(depth, f"p{p.index} = {value}")
            if p.bits < 32:
                wide = f"over.wide({line.number}, '{p.name}', {p.bits}, p{p.index})"
                self.put(depth, f"if p{p.index} >= {1 << p.bits}: {wide}")
        else:
            self.scalar(line, depth)

    def event(self, site: EventSite, depth: int) -> int:
        """Records that a line executes; returns the number of the site."""
        self.sites.append(site)
        number = len(self.sites) - 1
        self.put(depth, f"e({number})")
        return number

    def scalar(self, line: Line, depth: int) -> None:
        """An instruction that writes a register."""
        f, name = line.fields, line.name
        if name == "arg":
            self.arguments.add(line.text)
            text = f"values[{line.text!r}]"
        else:
            spec = isa.INSTRUCTIONS[name]
            assert spec.semantics is not None
            sources = [f"({f[s]})" if s == "imm" else _register(f[s]) for s in spec.sources]
            if name.startswith(("div", "rem")):
                self.put(depth, f"if not {sources[1]}: over.fail({line.number}, 'division by zero')")
            text = spec.semantics.text(*sources)
        # r0 is always 0.
        self.put(depth, f"r{f['rd']} = {text}" if f["rd"] else "pass")


def _written(code: Block) -> set[str]:
    """The registers, and parameter registers, that a code writes."""
    found = {_register(line.fields["rd"]) for line in code.lines() if "rd" in line.fields}
    found |= {f"p{line.fields['parameter']}" for line in code.lines() if "parameter" in line.fields}
    return found - {"0"}


def _used(code: Block) -> set[str]:
    """The registers, and parameter registers, that a code reads or writes."""
    found = _written(code)
    for line in code.lines():
        read = [line.predicate, *(r for f, r in line.fields.items() if f.startswith("rs"))]
        found |= {_register(r) for r in read}
        spec = isa.INSTRUCTIONS.get(line.name)
        found |= {f"p{isa.PARAMETERS[p].index}" for p in (spec.parameters if spec else ())}
    return found - {"0"}


def _condition(line: Line) -> str | None:
    """When an instruction executes, or None for always."""
    if line.predicate == 0:
        return None if not line.sense else "False"
    return f"r{line.predicate}" if line.sense else f"not r{line.predicate}"
