"""Assembler and disassembler, driven by the table in `hw.isa`.

One instruction per line: optional predicate (`@r3` if r3 is not 0, `@!r3` if it is), name, operands in field
order, separated by commas. Parameters are written by name. A label is on a line of its own (`L2:`) and names
the instruction after it: `loop r1, L2` repeats the instructions up to the label, and `jump L2` continues
there. A number in place of a label is the value of the field itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hw import isa
from hw.config import MachineConfig
from hw.errors import InputError

_LABEL = re.compile(r"[A-Za-z_]\w*")
#: Fields that hold the end of a loop or the target of a jump.
_TARGETS = ("length", "offset")
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
    """Encodes an instruction as a 32-bit word; raises `InputError` if a value does not fit its field."""
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
        signed = f.kind is isa.FieldKind.IMMEDIATE
        word |= _fit(code.name, f.name, code.fields[f.name], f.width, signed) << f.low
    return word


def _fit(name: str, what: str, value: int, bits: int, signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not low <= value <= high:
        raise InputError(f"{name}: {what} must be {low} to {high}, not {value}")
    return value & ((1 << bits) - 1)


def decode(word: int) -> Code | None:
    """The instruction that a word encodes, or None for an unknown opcode."""
    spec = isa.BY_OPCODE.get(word >> isa.OPCODE_LOW & (1 << isa.OPCODE_BITS) - 1)
    if spec is None:
        return None
    values = {}
    for f in spec.fields:
        value = word >> f.low & (1 << f.width) - 1
        if f.kind is isa.FieldKind.IMMEDIATE and value >> f.width - 1:
            value -= 1 << f.width
        values[f.name] = value
    predicate = word >> isa.PREDICATE_LOW & (1 << isa.PREDICATE_BITS) - 1
    return Code(spec.name, values, predicate, bool(word >> isa.SENSE_LOW & 1))


def illegal(code: Code | None, config: MachineConfig) -> str | None:
    """Why a machine of this configuration stops at the instruction, or None if it does not."""
    if code is None:
        return "no such opcode"
    if code.predicate >= config.registers:
        return f"predicate r{code.predicate}: the machine has {config.registers} registers"
    for f in code.spec.fields:
        value = code.fields[f.name]
        if f.kind is isa.FieldKind.REGISTER and value >= config.registers:
            return f"r{value}: the machine has {config.registers} registers"
        if f.kind is isa.FieldKind.CHANNEL and value >= config.channels:
            return f"channel {value}: the machine has {config.channels}"
        if f.kind is isa.FieldKind.PARAMETER and value not in isa.BY_PARAMETER:
            return f"parameter {value} does not exist"
    needed = config.lacks(code.name)
    return None if needed is None else f"{code.name} needs a machine with {needed}"


def disassemble(code: Code, label: str | None = None) -> str:
    """The instruction as text that `assemble` reads back; `label` is a loop's end or a jump's target."""
    parts = []
    for f in code.spec.fields:
        value = code.fields[f.name]
        if label is not None and f.name in _TARGETS:
            parts.append(label)
        elif f.kind is isa.FieldKind.REGISTER:
            parts.append(f"r{value}")
        elif f.kind is isa.FieldKind.PARAMETER and value in isa.BY_PARAMETER:
            parts.append(isa.BY_PARAMETER[value].name)
        else:
            parts.append(str(value))
    guard = ""
    if code.predicate or code.sense:
        guard = f"@{'' if code.sense else '!'}r{code.predicate} "
    return f"{guard}{code.name} {', '.join(parts)}".rstrip()


def disassemble_words(words: Iterable[int]) -> list[str]:
    """The text of a program, one line per word; a word that is not an instruction is `.word 0x...`."""
    return [_text_of_word(word, _exact(word)) for word in words]


def listing(words: Iterable[int]) -> str:
    """The text of a program with labels for loops and jumps; `assemble` returns the same words.

    A loop or jump that leaves the program, or whose target cannot be a label, keeps its number.
    """
    words = list(words)
    codes = [_exact(word) for word in words]
    found = {i: target(code, i) for i, code in enumerate(codes) if code and code.name in ("loop", "jump")}
    targets = {i: to for i, to in found.items() if 0 <= to <= len(words)}
    names = labels(targets.values())
    lines = [
        _text_of_word(w, c, names.get(targets.get(i, -1)))
        for i, (w, c) in enumerate(zip(words, codes, strict=True))
    ]
    return with_labels(lines, names)


def target(code: Code, index: int) -> int:
    """The index of the instruction after the body of a loop, or of the target of a jump."""
    return index + 1 + code.fields["length" if code.name == "loop" else "offset"]


def labels(places: Iterable[int]) -> dict[int, str]:
    """Labels for indices of instructions, numbered from 1 in ascending order."""
    return {place: f"L{number}" for number, place in enumerate(sorted(set(places)), 1)}


def with_labels(lines: Sequence[str], names: Mapping[int, str]) -> str:
    """Lines of instructions with labels between them, given by the index of the next instruction."""
    made: list[str] = []
    for index, line in enumerate((*lines, None)):
        if index in names:
            made.append(f"{names[index]}:")
        if line is not None:
            made.append(line)
    return "".join(f"{line}\n" for line in made)


def _exact(word: int) -> Code | None:
    """The instruction of a word, if its unused bits are 0."""
    code = decode(word)
    return code if code and encode(code) == word else None


def _text_of_word(word: int, code: Code | None, label: str | None = None) -> str:
    return f".word {word:#010x}" if code is None else disassemble(code, label)


def assemble(text: str, place: str = "assembly") -> list[int]:
    """Assembles a program text into words; raises `InputError` with the line of a mistake.

    Empty lines are skipped. `.word N` stands for a word as it is.
    """
    lines: list[tuple[int, str]] = []
    places: dict[str, int] = {}
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.strip()
        if line.endswith(":"):
            _place_label(places, line[:-1].rstrip(), len(lines), f"{place}:{number}")
        elif line:
            lines.append((number, line))
    words = []
    for index, (number, line) in enumerate(lines):
        try:
            words.append(_assemble_line(line, index, places))
        except InputError as error:
            raise InputError(f"{place}:{number}: {error}") from None
    _check_loops(words, place)
    return words


def _place_label(places: dict[str, int], label: str, index: int, where: str) -> None:
    if not _LABEL.fullmatch(label):
        raise InputError(f"{where}: a label must be a name, not {label!r}")
    if label in places:
        raise InputError(f"{where}: the label {label} must be defined once")
    places[label] = index


def _assemble_line(line: str, index: int, places: Mapping[str, int]) -> int:
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
    values = {}
    for f, text in zip(spec.fields, given, strict=True):
        if f.name in _TARGETS and _LABEL.fullmatch(text):
            values[f.name] = _distance(spec.name, text, index, places)
        else:
            values[f.name] = _operand(spec.name, f, text)
    guarded = match["predicate"] is not None
    predicate = int(match["predicate"]) if guarded else 0
    return encode(Code(spec.name, values, predicate, guarded and not match["unless"]))


def _distance(name: str, label: str, index: int, places: Mapping[str, int]) -> int:
    """The distance from the next instruction to a label's."""
    if label not in places:
        raise InputError(f"{name}: there is no label {label}")
    distance = places[label] - index - 1
    if name == "loop" and distance < 1:
        raise InputError(f"loop: the label {label} must come after the loop's body")
    return distance


def _operand(name: str, f: isa.Field, text: str) -> int:
    if f.kind is isa.FieldKind.REGISTER:
        if not re.fullmatch(r"r\d+", text):
            raise InputError(f"{name}: {f.name} must be a register, not {text!r}")
        return int(text[1:])
    if f.kind is isa.FieldKind.PARAMETER and text in isa.PARAMETERS:
        return isa.PARAMETERS[text].index
    return _number(f"{name}: {f.name}", text)


def _number(what: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise InputError(f"{what} must be a number, not {text!r}") from None


def _check_loops(words: list[int], place: str) -> None:
    """Rejects loops that the hardware cannot execute: shared ends, ends past the program, crossing jumps."""
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
