"""Instruction decoder, built from the table in `hw.isa`."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value
from amaranth.lib import data

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.rtl.core.alu import DIVIDES, QUOTIENT, SLOW, AluControl, alu_control

#: Lowest bits of the register fields, in the order of an engine operation's operands.
REGISTER_FIELDS = tuple(f.low for f in isa.Format.ENGINE.fields)


class Sort(enum.IntEnum):
    """Predecoded class of an instruction, computed at program load and stored beside the word."""

    NOP = 0
    HALT = 1
    LI = 2
    LIH = 3
    SELECT = 4
    LOOP = 5
    JUMP = 6
    WAIT = 7
    SIGNAL = 8
    PARAM = 9
    PARAMI = 10
    BINARY = 11  # single-cycle
    MULTIPLY = 12
    DIVIDE = 13
    ENGINE = 14
    ILLEGAL = 15


_SORT_BITS = isa.STORED_BITS - isa.WORD_BITS
_SIMPLE = tuple(Sort)[Sort.HALT : Sort.BINARY]

#: The two immediates of scalar instructions; both start at bit 0.
_LONG, _SHORT = isa.layout("li")["imm"], isa.layout("addi")["imm"]

#: Decoded signals and their widths, from an instruction's class and opcode. `is_*` identifies the instruction
#: if it is `legal`. The others are defined only for instructions that use them.
_KNOWN = {
    "legal": 1,
    **{f"is_{sort.name.lower()}": 1 for sort in _SIMPLE},
    **{f"is_{name}": 1 for name in ("binary", "multiply", "divide", "quotient", "engine")},
    "use_imm": 1,
    "imm_high": _LONG.width - _SHORT.width + 1,
    "engine": (len(ENGINES) - 1).bit_length(),
    "variant": 2,
    **{f"alu_{name}": 1 for name, _ in AluControl},
}


#: A decoded instruction: the signals of `known`, and the word.
Decoded = data.StructLayout(_KNOWN | {"word": isa.WORD_BITS})


def field(word: Value, instruction: str, name: str) -> Value:
    """A field of a word, which must hold the instruction named."""
    f = isa.layout(instruction)[name]
    return word[f.low : f.low + f.width]


def immediate(decoded: data.View[Any]) -> Value:
    """The immediate of a binary operation, `li` or `lih`."""
    return Cat(decoded.word[: _SHORT.width], decoded.imm_high).as_signed()


def predicate_number(word: Value) -> Value:
    """The number of the register that is the predicate of an instruction."""
    return word[isa.PREDICATE_LOW : isa.PREDICATE_LOW + isa.PREDICATE_BITS]


def sort_of(word: Value) -> Value:
    """The predecoded class stored beside an instruction."""
    return word[isa.WORD_BITS : isa.STORED_BITS]


def stored(config: MachineConfig, word: Value) -> Value:
    """An instruction as program memory stores it: the word and its predecoded class."""
    return Cat(word, *(bit | ~legal(config, word) for bit in sort_bits(word)))


def sort_bits(word: Value) -> list[Value]:
    """Bits of an instruction's predecoded class. For illegal instructions, the caller sets them all to 1."""
    opcode = _opcode(word)
    sorts: dict[Sort, list[int]] = {sort: [isa.INSTRUCTIONS[sort.name.lower()].opcode] for sort in _SIMPLE}
    for s in isa.INSTRUCTIONS.values():
        if s.engine:
            sorts.setdefault(Sort.ENGINE, []).append(s.opcode)
        elif s.format in (isa.Format.R, isa.Format.I):
            of = s.opcode % 16
            sort = Sort.DIVIDE if of in DIVIDES else Sort.MULTIPLY if of in SLOW else Sort.BINARY
            sorts.setdefault(sort, []).append(s.opcode)
    bits = []
    for i in range(_SORT_BITS):
        codes = sorted(code for sort, codes in sorts.items() if sort >> i & 1 for code in codes)
        bits.append(Cat(opcode == code for code in codes).any())
    return bits


def known(coming: Value) -> dict[str, Value]:
    """Decodes a word of program memory into the fields of `Decoded`."""
    sort, opcode = sort_of(coming), _opcode(coming)

    def is_any(*sorts: Sort) -> Value:
        return Cat(sort == s for s in sorts).any()

    return {
        **{f"is_{s.name.lower()}": sort == s for s in _SIMPLE},
        "is_binary": is_any(Sort.BINARY, Sort.MULTIPLY, Sort.DIVIDE),
        "is_multiply": sort == Sort.MULTIPLY,
        "is_divide": sort == Sort.DIVIDE,
        "is_quotient": _select(coming) == QUOTIENT,
        "is_engine": sort == Sort.ENGINE,
        "imm_high": Mux(
            is_any(Sort.LI, Sort.LIH),
            Cat(coming[_SHORT.width : _LONG.width], coming[_LONG.width - 1]),
            coming[_SHORT.width - 1].replicate(_LONG.width - _SHORT.width + 1),
        ),
        "use_imm": is_any(Sort.LI, Sort.LIH) | opcode[isa.IMMEDIATE_FORM.bit_length() - 1],
        **_engines(opcode),
        **{f"alu_{name}": value for name, value in alu_control(_select(coming)).items()},
        "legal": sort != Sort.ILLEGAL,
        "word": coming[: isa.WORD_BITS],
    }


def _opcode(word: Value) -> Value:
    return word[isa.OPCODE_LOW : isa.OPCODE_LOW + isa.OPCODE_BITS]


def _select(word: Value) -> Value:
    """The low bits of the opcode, which tell binary operations apart."""
    return _opcode(word)[:4]


def _engines(opcode: Value) -> dict[str, Value]:
    """Bits of the engine and variant of an operation, decoded from the low bits of the opcode."""
    operations = [s for s in isa.INSTRUCTIONS.values() if s.engine]
    first = min(s.opcode for s in operations)
    bits = (max(s.opcode for s in operations) ^ first).bit_length()
    numbers = {s.opcode: ENGINES.index(s.engine) for s in operations if s.engine}
    variants = {s.opcode: isa.of_engine(s.engine).index(s) for s in operations if s.engine}
    return {
        name: Cat(
            Cat(opcode[:bits] == code % (1 << bits) for code, number in of.items() if number >> i & 1).any()
            for i in range(_KNOWN[name])
        )
        for name, of in (("engine", numbers), ("variant", variants))
    }


def legal(config: MachineConfig, word: Value) -> Value:
    """Whether the machine has this instruction and every register, channel and parameter that it names."""
    opcode = _opcode(word)

    def is_any(specs: Iterable[isa.Instruction]) -> Value:
        return Cat(opcode == s.opcode for s in specs).any() if (specs := list(specs)) else Const(0)

    def within(names: tuple[str, ...], field: str, most: int) -> Value:
        """Whether a field is below `most`, for the instructions that have the field."""
        f = isa.layout(names[0])[field]
        return ~is_any(isa.INSTRUCTIONS[n] for n in names) | (word[f.low : f.low + f.width] < most)

    specs = isa.INSTRUCTIONS.values()
    found = is_any(s for s in specs if config.lacks(s.name) is None)
    found &= within(("wait", "signal"), "channel", config.channels)
    found &= within(("param", "parami"), "parameter", len(isa.PARAMETERS))
    if config.registers < 1 << isa.PREDICATE_BITS:
        found &= predicate_number(word) < config.registers
        for low in REGISTER_FIELDS:
            names = [
                s for s in specs if any(f.low == low and f.kind is isa.FieldKind.REGISTER for f in s.fields)
            ]
            found &= ~is_any(names) | (word[low : low + isa.PREDICATE_BITS] < config.registers)
    return found
