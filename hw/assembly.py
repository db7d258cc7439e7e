"""Assembler and disassembler, driven by the table in `hw.isa`.

One instruction per line: optional predicate (`@r3` when r3 is not 0, `@!r3` when it is), name,
operands in field order, separated by commas. Parameters are written by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hw import isa
from hw.config import MachineConfig
from hw.errors import InputError

_LINE = re.compile(r"(?:@(?P<unless>!)?r(?P<predicate>\d+)\s+)?(?P<name>\w+)(?:\s+(?P<rest>.*))?$")


@dataclass(frozen=True)
class Code:
    """One instruction with its field values; `sense` False and predicate 0 mean "always"."""

    name: str
    fields: Mapping[str, int] = field(default_factory=dict)
    predicate: int = 0
    sense: bool = False

    @property
    def spec(self) -> isa.Instruction:
        """The table entry of this instruction."""
        return isa.INSTRUCTIONS[self.name]

    def __str__(self) -> str:
        return disassemble(self)


def encode(code: Code) -> int:
    """The 32-bit word; raises `InputError` when a value does not fit its field."""
    spec = isa.INSTRUCTIONS.get(code.name)
    if spec is None:
        raise InputError(f"unknown instruction {code.name!r}")
    names = [f.name for f in spec.fields]
    if sorted(names) != sorted(code.fields):
        raise InputError(
            f"{code.name} takes {', '.join(names) or 'no operand'}, not {', '.join(code.fields)}"
        )
    word = spec.opcode << isa.OPCODE_LOW | int(code.sense) << isa.SENSE_LOW
    word |= _fit(code.name, "predicate", code.predicate, isa.PREDICATE_BITS, False) << isa.PREDICATE_LOW
    for f in spec.fields:
        signed = f.kind is isa.Kind.IMMEDIATE
        word |= _fit(code.name, f.name, code.fields[f.name], f.width, signed) << f.low
    return word


def _fit(name: str, what: str, value: int, bits: int, signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise InputError(f"{name}: {what} must be {low} to {high}, not {value}")
    return value & ((1 << bits) - 1)


def decode(word: int) -> Code | None:
    """The instruction that a word stands for, or None for an opcode that does not exist."""
    spec = isa.BY_OPCODE.get(word >> isa.OPCODE_LOW & (1 << isa.OPCODE_BITS) - 1)
    if spec is None:
        return None
    values = {}
    for f in spec.fields:
        value = word >> f.low & (1 << f.width) - 1
        if f.kind is isa.Kind.IMMEDIATE and value >> f.width - 1:
            value -= 1 << f.width
        values[f.name] = value
    predicate = word >> isa.PREDICATE_LOW & (1 << isa.PREDICATE_BITS) - 1
    return Code(spec.name, values, predicate, bool(word >> isa.SENSE_LOW & 1))


def illegal(code: Code | None, config: MachineConfig) -> str | None:
    """Why a machine of this configuration stops at the instruction, or None when it does not."""
    if code is None:
        return "no such opcode"
    if code.predicate >= config.registers:
        return f"predicate r{code.predicate}: the machine has {config.registers} registers"
    for f in code.spec.fields:
        value = code.fields[f.name]
        if f.kind is isa.Kind.REGISTER and value >= config.registers:
            return f"r{value}: the machine has {config.registers} registers"
        if f.kind is isa.Kind.CHANNEL and value >= config.channels:
            return f"channel {value}: the machine has {config.channels}"
        if f.kind is isa.Kind.PARAMETER and value not in isa.BY_PARAMETER:
            return f"parameter {value} does not exist"
    if code.name in isa.NEEDS_GRID:
        return "the machine has no CGRA grid"
    return None


def disassemble(code: Code) -> str:
    """The instruction as text that `assemble` reads back."""
    parts = []
    for f in code.spec.fields:
        value = code.fields[f.name]
        if f.kind is isa.Kind.REGISTER:
            parts.append(f"r{value}")
        elif f.kind is isa.Kind.PARAMETER and value in isa.BY_PARAMETER:
            parts.append(isa.BY_PARAMETER[value].name)
        else:
            parts.append(str(value))
    guard = ""
    if code.predicate or code.sense:
        guard = f"@{'' if code.sense else '!'}r{code.predicate} "
    return f"{guard}{code.name} {', '.join(parts)}".rstrip()


def disassemble_words(words: Iterable[int]) -> list[str]:
    """Text of a program, a line each; a word that is no instruction becomes `.word 0x...`."""
    lines = []
    for word in words:
        code = decode(word)
        lines.append(disassemble(code) if code and encode(code) == word else f".word {word:#010x}")
    return lines


def assemble(text: str, place: str = "assembly") -> list[int]:
    """Words of a program text; raises `InputError` with the line for what is wrong.

    Empty lines are skipped. `.word N` gives a word as it is.
    """
    words = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line:
            try:
                words.append(_assemble_line(line))
            except InputError as error:
                raise InputError(f"{place}:{number}: {error}") from None
    _check_loops(words, place)
    return words


def _assemble_line(line: str) -> int:
    if line.startswith(".word "):
        return _number(".word", line[6:]) & 0xFFFFFFFF
    match = _LINE.match(line)
    spec = isa.INSTRUCTIONS.get(match["name"]) if match else None
    if match is None or spec is None:
        raise InputError(f"unknown instruction {line!r}")
    given = [p.strip() for p in match["rest"].split(",")] if match["rest"] else []
    if len(given) != len(spec.fields):
        names = ", ".join(f.name for f in spec.fields) or "no operand"
        raise InputError(f"{spec.name} takes {names}, not {line!r}")
    values = {f.name: _operand(spec.name, f, text) for f, text in zip(spec.fields, given, strict=True)}
    guarded = match["predicate"] is not None
    predicate = int(match["predicate"]) if guarded else 0
    return encode(Code(spec.name, values, predicate, guarded and not match["unless"]))


def _operand(name: str, f: isa.Field, text: str) -> int:
    if f.kind is isa.Kind.REGISTER:
        if not re.fullmatch(r"r\d+", text):
            raise InputError(f"{name}: {f.name} must be a register, not {text!r}")
        return int(text[1:])
    if f.kind is isa.Kind.PARAMETER and text in isa.PARAMETERS:
        return isa.PARAMETERS[text].index
    return _number(f"{name}: {f.name}", text)


def _number(what: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{what} must be a number, not {text!r}") from None


def _check_loops(words: list[int], place: str) -> None:
    """Refuse what the loop hardware cannot do: shared ends, bodies past the end, jumps across borders."""
    open_loops: list[tuple[int, int]] = []
    for pc, word in enumerate(words):
        code = decode(word)
        while open_loops and open_loops[-1][1] < pc:
            open_loops.pop()
        if code is None:
            continue
        first, last = open_loops[-1] if open_loops else (0, len(words) - 1)
        if code.name == "loop":
            end = pc + code.fields["length"]
            if code.fields["length"] == 0 or end >= len(words):
                raise InputError(
                    f"{place}: pc {pc}: loop body must hold 1 to {len(words) - 1 - pc} instructions"
                )
            if open_loops and end >= last:
                raise InputError(
                    f"{place}: pc {pc}: loop must end before the loop around it ends, at pc {last}"
                )
            open_loops.append((pc + 1, end))
        elif code.name == "jump" and not first <= pc + 1 + code.fields["offset"] <= last:
            raise InputError(f"{place}: pc {pc}: jump must stay in its loop, pc {first} to {last}")
