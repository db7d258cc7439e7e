"""Parses the assembly text of a warp into structured code: instruction blocks, loops, jumps.

Besides what `hw.assembly` reads, a text may have two pseudo-instructions: `op LABEL` executes an instruction
of the tile program, and `arg rd, NAME` puts one of its parameters into a register.
"""

from __future__ import annotations

import bisect
import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from hw import isa
from hw.errors import InputError

#: Deepest nesting of loops: what a machine can have at most, and what Python can handle.
DEEPEST = 16
_LABEL = re.compile(r"([A-Za-z_]\w*):$")
_LINE = re.compile(r"(?:@(?P<unless>!)?r(?P<predicate>\d+)\s+)?(?P<name>\w+)(?:\s+(?P<rest>.*))?$")
_NUMBER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)$")
_NAME = re.compile(r"[^\W\d]\w*$")


@dataclass(frozen=True)
class Line:
    """One instruction.

    `fields` are its field values by name, with registers as numbers; `text` is the label of `op` or the
    parameter of `arg`. It executes if `(predicate != 0) == sense`. `target` is the item of its own block that
    a jump goes to, or the end of the block.
    """

    number: int
    name: str
    fields: dict[str, int]
    text: str = ""
    predicate: int = 0
    sense: bool = False
    target: int | None = None


@dataclass(frozen=True)
class Loop:
    """A loop instruction and its body."""

    line: Line
    body: Block


@dataclass(frozen=True)
class Block:
    """Instructions and loops one after the other."""

    nodes: tuple[Line | Loop, ...]

    def lines(self) -> Iterator[Line]:
        """All instructions, those of loops included, in the order of the text."""
        for node in self.nodes:
            if isinstance(node, Loop):
                yield node.line
                yield from node.body.lines()
            else:
                yield node


def parse(text: str, warp: int, registers: int = 32, channels: int | None = None) -> Block:
    """The code of a warp; raises `InputError` with warp and line.

    A loop or jump names a label or, as in the machine's own assembly, a number of instructions. A label
    directly after a loop makes an empty body.
    """
    return _Parser(warp, registers, channels).parse(text)


@dataclass
class _Parser:
    warp: int
    registers: int
    channels: int | None
    #: Instructions and names of labels, in text order.
    items: list[Line | str] = field(default_factory=list)
    #: By item, the end of a loop or the target of a jump, as written.
    places: dict[int, str] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    #: Item of each instruction.
    positions: list[int] = field(default_factory=list)

    def parse(self, text: str) -> Block:
        for number, raw in enumerate(text.splitlines(), 1):
            line = raw.strip()
            if not line:
                continue
            label = _LABEL.match(line)
            if label:
                if label[1] in self.labels:
                    self.fail(number, f"label {label[1]} is defined twice")
                self.labels[label[1]] = len(self.items)
                self.items.append(label[1])
            else:
                self.positions.append(len(self.items))
                self.items.append(self.instruction(number, line))
        return self.block(0, len(self.items), 0)

    def fail(self, number: int, text: str) -> NoReturn:
        raise InputError(f"warp {self.warp}, line {number}: {text}")

    def instruction(self, number: int, line: str) -> Line:
        """An instruction; ends of loops and targets of jumps are resolved later."""
        match = _LINE.match(line)
        if match is None:
            self.fail(number, f"unknown instruction {line!r}")
        name, rest = match["name"], match["rest"]
        given = [part.strip() for part in rest.split(",")] if rest else []
        guarded = match["predicate"] is not None
        predicate = self.register(number, match["predicate"]) if guarded else 0
        sense = guarded and not match["unless"]
        if name == "op":
            if len(given) != 1 or not _NAME.match(given[0]):
                self.fail(number, f"op takes a label, not {line!r}")
            return Line(number, name, {}, given[0], predicate, sense)
        if name == "arg":
            if len(given) != 2 or not re.match(r"r\d+$", given[0]) or not _NAME.match(given[1]):
                self.fail(number, f"arg takes a register and a parameter, not {line!r}")
            return Line(number, name, {"rd": self.register(number, given[0][1:])}, given[1], predicate, sense)
        spec = isa.INSTRUCTIONS.get(name)
        if spec is None:
            self.fail(number, f"unknown instruction {line!r}")
        if len(given) != len(spec.fields):
            names = ", ".join(f.name for f in spec.fields) or "no operand"
            self.fail(number, f"{name} takes {names}, not {line!r}")
        fields = {}
        for f, part in zip(spec.fields, given, strict=True):
            if f.name in ("length", "offset"):
                self.places[len(self.items)] = part
            else:
                fields[f.name] = self.operand(number, name, f, part)
        return Line(number, name, fields, "", predicate, sense)

    def operand(self, number: int, name: str, f: isa.Field, text: str) -> int:
        if f.kind is isa.FieldKind.REGISTER:
            if not re.match(r"r\d+$", text):
                self.fail(number, f"{name}: {f.name} must be a register, not {text!r}")
            return self.register(number, text[1:])
        if f.kind is isa.FieldKind.PARAMETER and text in isa.PARAMETERS:
            return isa.PARAMETERS[text].index
        value = self.integer(number, f"{name}: {f.name}", text)
        signed = f.kind is isa.FieldKind.IMMEDIATE
        low, high = (-(1 << f.width - 1), 1 << f.width - 1) if signed else (0, 1 << f.width)
        if not low <= value < high:
            self.fail(number, f"{name}: {f.name} must be {low} to {high - 1}, not {value}")
        if f.kind is isa.FieldKind.PARAMETER and value not in isa.BY_PARAMETER:
            self.fail(number, f"{name}: parameter {value} does not exist")
        if f.kind is isa.FieldKind.CHANNEL and self.channels is not None and value >= self.channels:
            self.fail(number, f"{name}: channel must be 0 to {self.channels - 1}, not {value}")
        return value

    def integer(self, number: int, what: str, text: str) -> int:
        if not _NUMBER.match(text) or len(text) > 20:
            self.fail(number, f"{what} must be a number, not {text!r}")
        return int(text, 16 if "x" in text.lower() else 10)

    def register(self, number: int, digits: str) -> int:
        """The number of a register that the machine has."""
        if len(digits) > 4 or int(digits) >= self.registers:
            self.fail(number, f"r{digits}: there are {self.registers} registers, r0 to r{self.registers - 1}")
        return int(digits)

    def block(self, low: int, high: int, depth: int) -> Block:
        """The items from `low` up to, but not including, `high`."""
        nodes: list[Line | Loop] = []
        #: The node at, or first after, each item of this block.
        at: dict[int, int] = {}
        jumps: list[tuple[int, int]] = []
        item = low
        while item < high:
            at[item] = len(nodes)
            line = self.items[item]
            item += 1
            if isinstance(line, str):
                continue
            if line.name == "loop":
                if depth >= DEEPEST:
                    self.fail(line.number, f"loops nest deeper than {DEEPEST}")
                end = self.place(item - 1, line, length=True)
                if not item <= end <= high:
                    self.fail(line.number, "loop must end after its start and inside the enclosing loop")
                nodes.append(Loop(line, self.block(item, end, depth + 1)))
                item = end
            else:
                if line.name == "jump":
                    jumps.append((len(nodes), self.place(item - 1, line, length=False)))
                nodes.append(line)
        for node, place in jumps:
            jump = nodes[node]
            assert isinstance(jump, Line)
            if place not in at:
                self.fail(jump.number, "jump must stay in its loop and not enter another")
            nodes[node] = dataclasses.replace(jump, target=at[place])
        return Block(tuple(nodes))

    def place(self, item: int, line: Line, *, length: bool) -> int:
        """The item at which a loop ends or to which a jump goes."""
        text = self.places[item]
        if text in self.labels:
            return self.labels[text]
        if _NAME.match(text):
            self.fail(line.number, f"no label {text}")
        value = self.integer(line.number, f"{line.name}: {'length' if length else 'offset'}", text)
        index = bisect.bisect_left(self.positions, item)
        last = index + value if length else index + 1 + value
        if not 0 <= last < len(self.positions):
            self.fail(
                line.number, f"{line.name} goes beyond the program of {len(self.positions)} instructions"
            )
        return self.positions[last] + 1 if length else self.positions[last]
