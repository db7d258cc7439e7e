"""The instruction set as data: formats, fields, meaning and cost of every instruction.

RTL decoder, assembler, disassembler, cycle model and the reference page (`heald isa`) all read the table
`INSTRUCTIONS`; nothing else states an opcode, a field position, a latency or what a scalar instruction
computes.

A word has 32 bits: opcode [31:26], predicate register [25:21], predicate sense [20], then the fields of the
instruction's format. The instruction executes if `(predicate register != 0) == sense`; since r0 is always 0,
the encoding 0, 0 means "always".
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from hw.semantics import SEMANTICS, Semantics

WORD_BITS = 32
#: Width of a program memory word: the instruction and, above it, its predecoded class
#: (`hw.rtl.core.decoder`).
STORED_BITS = WORD_BITS + 4
OPCODE_LOW, OPCODE_BITS = 26, 6
PREDICATE_LOW, PREDICATE_BITS = 21, 5
SENSE_LOW = 20


class FieldKind(enum.Enum):
    """What a field of an instruction word holds."""

    REGISTER = "register"
    IMMEDIATE = "immediate"  # signed
    COUNT = "count"  # unsigned
    CHANNEL = "channel"
    PARAMETER = "parameter"


@dataclass(frozen=True)
class Field:
    """Bits [low + width - 1 : low] of an instruction word."""

    name: str
    low: int
    width: int
    kind: FieldKind


_RD, _RS1, _RS2, _RS3 = (
    Field(name, low, 5, FieldKind.REGISTER) for name, low in (("rd", 15), ("rs1", 10), ("rs2", 5), ("rs3", 0))
)
_IMM10, _IMM15 = (Field("imm", 0, width, FieldKind.IMMEDIATE) for width in (10, 15))
_PARAMETER = Field("parameter", 14, 6, FieldKind.PARAMETER)


class Format(enum.Enum):
    """The field layouts."""

    # Before Python 3.11.4, an empty tuple becomes a separate object here.
    NONE = None
    R = (_RD, _RS1, _RS2)
    I = (_RD, _RS1, _IMM10)  # noqa: E741 (the usual name of an immediate format)
    U = (_RD, _IMM15)
    SELECT = (_RD, _RS1, _RS2, _RS3)
    LOOP = (_RS1, Field("length", 0, 10, FieldKind.COUNT))
    JUMP = (Field("offset", 0, 15, FieldKind.IMMEDIATE),)
    CHANNEL = (Field("channel", 0, 15, FieldKind.CHANNEL),)
    PARAM = (_PARAMETER, Field("rs1", 0, 5, FieldKind.REGISTER))
    PARAMI = (_PARAMETER, Field("imm", 0, 14, FieldKind.IMMEDIATE))
    ENGINE = tuple(Field(f"rs{i + 1}", 15 - 5 * i, 5, FieldKind.REGISTER) for i in range(4))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields in order."""
        return self.value or ()


@dataclass(frozen=True)
class Operand:
    """An unsigned operand of an engine operation, `bits` wide; a larger value is error `operand`."""

    name: str
    bits: int
    meaning: str


@dataclass(frozen=True)
class Parameter:
    """A parameter register of a warp: set by `param` or `parami`, read by engine operations at issue."""

    name: str
    index: int
    bits: int
    meaning: str


@dataclass(frozen=True)
class Instruction:
    """One instruction: name, opcode, format, meaning, cost.

    `operands` name the four registers of an engine operation in field order, `parameters` the parameter
    registers that it also reads, `engine` the engine that executes it. `turns` is the number of turns from
    its issue to the next instruction's earliest issue. `semantics` is the function of its `sources` that an
    instruction writes to its register.
    """

    name: str
    opcode: int
    format: Format
    meaning: str
    turns: int = 1
    timing: str = "1 turn."
    engine: str | None = None
    operands: tuple[Operand, ...] = ()
    parameters: tuple[str, ...] = ()
    semantics: Semantics | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        """The fields of the word."""
        return self.format.fields

    def reads(self) -> tuple[str, ...]:
        """Names of the fields that select registers to read (not counting the predicate)."""
        skip = ("rd",) if self.format in (Format.R, Format.I, Format.SELECT) or self.name == "li" else ()
        return tuple(f.name for f in self.fields if f.kind is FieldKind.REGISTER and f.name not in skip)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the arguments of `semantics`: registers read, then an immediate."""
        return self.reads() + tuple(f.name for f in self.fields if f.kind is FieldKind.IMMEDIATE)


class Cause(enum.IntEnum):
    """Error causes in the ERROR register, with what each means."""

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> Cause:
        found = int.__new__(cls, value)
        found._value_, found.meaning = value, meaning
        return found

    NONE = 0, "no error"
    ILLEGAL_INSTRUCTION = 1, "an opcode, register, parameter or channel that this machine does not have"
    OPERAND = 2, "an operand of an engine operation is zero, too wide or misaligned"
    BUFFER_RANGE = 3, "an address outside a buffer, the accumulator or the scratchpad"
    WINDOW = 4, "an address outside the memory windows that the host opened"
    CHANNEL_OVERFLOW = 5, "a signal on a full channel"
    CHECK_WORD = 7, "check word of the program is wrong or missing at the start"
    WATCHDOG = 8, "no progress within the watchdog's time"
    BUS = 9, "the memory answered with an error"
    LOOP_DEPTH = 10, "more nested loops than the machine has"
    DIVIDE_BY_ZERO = 11, "division by zero"
    GRID_RANGE = 12, "index outside an array or table of the CGRA, or a store to a read-only array"
    BITSTREAM = 13, "bitstream of the CGRA that is invalid or for another fabric, or none to keep"


#: Number of turns from a division to the next instruction.
DIV_TURNS = 36

#: Binary operations: position in the list is the low part of the opcode.
BINARY = {
    "add": "rd = rs1 + {b}",
    "sub": "rd = rs1 - {b}",
    "mul": "rd = rs1 * {b}, low 32 bits",
    "div": "rd = floor(rs1 / {b}); -2^31 / -1 gives -2^31; {b} = 0 raises error divide_by_zero",
    "rem": "rd = rs1 - floor(rs1 / {b}) * {b}; {b} = 0 raises error divide_by_zero",
    "min": "rd = smaller of rs1, {b} (signed)",
    "max": "rd = larger of rs1, {b} (signed)",
    "and": "rd = rs1 & {b}",
    "or": "rd = rs1 | {b}",
    "xor": "rd = rs1 ^ {b}",
    "shl": "rd = rs1 << ({b} % 32)",
    "shr": "rd = rs1 >> ({b} % 32), arithmetic",
    "eq": "rd = 1 if rs1 == {b} else 0",
    "ne": "rd = 1 if rs1 != {b} else 0",
    "lt": "rd = 1 if rs1 < {b} else 0 (signed)",
    "le": "rd = 1 if rs1 <= {b} else 0 (signed)",
}
REGISTER_FORM = 0b010000  # opcode of the register form of binary operation 0
IMMEDIATE_FORM = 0b100000  # and of its immediate form

MEMORY_BITS = 32
BUFFER_BITS = 20
SIZE_BITS = 16

KERNEL_BITS = 8

_PARAMETERS = [
    ("load_stride", 32, "bytes in memory from one outer row to the next (wraps at 2^32)"),
    ("load_pitch", BUFFER_BITS, "columns from one block of lanes to the next; bytes per row for load_c"),
    ("load_fill", 8, "byte written as padding (the operand's zero point)"),
    ("load_pad_outer", SIZE_BITS, "outer rows of padding after the last row"),
    ("load_pad_inner", SIZE_BITS, "elements of padding at the end of every row"),
    ("gemm_m", SIZE_BITS, "rows of the result"),
    ("gemm_n", SIZE_BITS, "columns of the result"),
    ("gemm_a_pitch", BUFFER_BITS, "columns of buffer A from one block of rows to the next"),
    ("gemm_b_pitch", BUFFER_BITS, "columns of buffer B from one block of columns to the next"),
    ("gemm_c_pitch", BUFFER_BITS, "accumulator words from one row to the next"),
    ("gemm_zero_a", 8, "zero point of A, as a byte of A's type"),
    ("gemm_zero_b", 8, "zero point of B, as a byte of B's type"),
    ("gemm_signed", 2, "bit 0: A is int8 (else uint8); bit 1: B is int8"),
    ("store_stride", 32, "bytes in memory from one row to the next (wraps at 2^32)"),
    ("store_pitch", BUFFER_BITS, "words (accumulator) or bytes (other spaces) from one row to the next"),
    *[(f"cgra_{i}", 32, f"scalar {i + 2} of a launch of the CGRA") for i in range(12)],
    ("conv_line", 32, "bytes in memory from one image row to the next (wraps at 2^32)"),
    ("conv_height", SIZE_BITS, "image rows that the tile covers, including padding"),
    ("conv_width", SIZE_BITS, "pixels of an image row that the tile covers, including padding"),
    ("conv_top", SIZE_BITS, "rows of padding above the first row to read"),
    ("conv_left", SIZE_BITS, "pixels of padding before the first pixel to read"),
    ("conv_rows", SIZE_BITS, "image rows to read"),
    ("conv_out_rows", SIZE_BITS, "output rows of the tile"),
    ("conv_out_cols", SIZE_BITS, "output columns of the tile"),
    ("conv_kernel_h", KERNEL_BITS, "rows of the kernel"),
    ("conv_kernel_w", KERNEL_BITS, "columns of the kernel"),
    ("conv_stride_h", KERNEL_BITS, "image rows from one output row to the next"),
    ("conv_stride_w", KERNEL_BITS, "pixels from one output column to the next"),
    ("conv_dilation_h", KERNEL_BITS, "image rows from one kernel row to the next"),
    ("conv_dilation_w", KERNEL_BITS, "pixels from one kernel column to the next"),
]
PARAMETERS = {name: Parameter(name, i, bits, meaning) for i, (name, bits, meaning) in enumerate(_PARAMETERS)}

_LOAD = ("load_stride", "load_pitch", "load_fill", "load_pad_outer", "load_pad_inner")
_CONV = (*_LOAD[:3], *(n for n in PARAMETERS if n.startswith("conv_")))
_GEMM = tuple(n for n in PARAMETERS if n.startswith("gemm_"))
_STORE = ("store_stride", "store_pitch")
_CGRA = tuple(n for n in PARAMETERS if n.startswith("cgra_"))

_LOAD_OPERANDS = (
    Operand("memory", MEMORY_BITS, "address of the first byte in memory"),
    Operand("target", BUFFER_BITS, "first column of the buffer (first byte for load_c)"),
    Operand("outer", SIZE_BITS, "number of rows, load_stride apart in memory"),
    Operand("inner", SIZE_BITS, "contiguous bytes in each row"),
)
_CONV_OPERANDS = (
    Operand("memory", MEMORY_BITS, "address of the first pixel to read"),
    Operand("target", BUFFER_BITS, "first column of the buffer"),
    Operand("outer", SIZE_BITS, "number of channels, load_stride apart in memory"),
    Operand("inner", SIZE_BITS, "pixels to read of each image row"),
)
_GEMM_OPERANDS = (
    Operand("a", BUFFER_BITS, "first column in buffer A"),
    Operand("b", BUFFER_BITS, "first column in buffer B"),
    Operand("c", BUFFER_BITS, "first word in the accumulator"),
    Operand("k", SIZE_BITS, "depth (length of the dot products)"),
)
_STORE_OPERANDS = (
    Operand("memory", MEMORY_BITS, "address of the first byte in memory"),
    Operand("source", BUFFER_BITS, "first word (accumulator) or byte (other spaces)"),
    Operand("rows", SIZE_BITS, "number of rows"),
    Operand("bytes", SIZE_BITS, "bytes in a row"),
)
#: Alignment of bitstreams in the scratchpad, in bytes.
BITSTREAM_ALIGNMENT = 16
#: The operand `bitstream` that keeps the current configuration.
KEEP_BITSTREAM = (1 << SIZE_BITS) - 1
_CGRA_OPERANDS = (
    Operand(
        "bitstream",
        SIZE_BITS,
        f"address in the scratchpad divided by {BITSTREAM_ALIGNMENT}; {KEEP_BITSTREAM} keeps the current one",
    ),
    Operand("iterations", 32, "iterations of the pipelined loop"),
    Operand("live0", 32, "scalar 0 of the launch"),
    Operand("live1", 32, "scalar 1 of the launch"),
)

_HELD_TIMING = "1 turn unless it stalls (see docs/machine.md, Warps)."


def _scalar_rows() -> list[Instruction]:
    f, wider = Format, "a value wider than the parameter raises error operand"
    rows = [
        Instruction("nop", 1, f.NONE, "nothing"),
        Instruction("halt", 2, f.NONE, "ends the warp", timing="no more turns."),
        Instruction("li", 3, f.U, "rd = imm, sign-extended", semantics=SEMANTICS["li"]),
        Instruction("lih", 4, f.U, "rd = (rd << 15) | (imm & 0x7fff)", semantics=SEMANTICS["lih"]),
        Instruction("select", 5, f.SELECT, "rd = rs2 if rs1 != 0 else rs3", semantics=SEMANTICS["select"]),
        Instruction(
            "loop",
            6,
            f.LOOP,
            "executes the next `length` instructions rs1 times; rs1 <= 0 skips them. Two loops must not "
            "end on the same instruction",
            timing="1 turn; returning to the first instruction costs nothing.",
        ),
        Instruction("jump", 7, f.JUMP, "continues at pc + 1 + offset; must not enter or leave a loop"),
        Instruction(
            "wait",
            8,
            f.CHANNEL,
            "takes one token from the channel",
            timing="issues in the first turn in which the channel holds a token.",
        ),
        Instruction(
            "signal",
            9,
            f.CHANNEL,
            "puts one token into the channel once all earlier operations of the warp are complete",
            timing="1 turn; stalls only if too many signals are pending.",
        ),
        *(
            Instruction(name, opcode, form, f"parameter = {value}; {wider}")
            for name, opcode, form, value in (("param", 10, f.PARAM, "rs1"), ("parami", 11, f.PARAMI, "imm"))
        ),
    ]
    for i, (name, meaning) in enumerate(BINARY.items()):
        turns = DIV_TURNS if name in ("div", "rem") else 1
        cost = f"{turns} turn{'s' * (turns > 1)}."
        for suffix, opcode, form, b in (("", REGISTER_FORM, f.R, "rs2"), ("i", IMMEDIATE_FORM, f.I, "imm")):
            text, value = meaning.format(b=b), SEMANTICS[name]
            rows.append(Instruction(name + suffix, opcode + i, form, text, turns, cost, semantics=value))
    return rows


def _engine(
    name: str,
    opcode: int,
    engine: str,
    operands: tuple[Operand, ...],
    parameters: tuple[str, ...],
    meaning: str,
) -> Instruction:
    form, timing = Format.ENGINE, _HELD_TIMING
    return Instruction(name, opcode, form, meaning, 1, timing, engine, operands, parameters)


def _engine_rows() -> Iterator[Instruction]:
    for port, lanes, opcode in (("load_a", "row", 48), ("load_b", "column", 50)):
        text = (
            f"loads an operand whose depth is contiguous: an outer row is one {lanes} of the matrix "
            "(one lane), its bytes are successive columns of the buffer"
        )
        yield _engine(port, opcode, port, _LOAD_OPERANDS, _LOAD, text)
        text = (
            f"loads an operand whose {lanes}s are contiguous: an outer row is one step of the depth "
            "(one buffer column per block), its bytes are successive lanes. If inner reaches a second block, "
            "load_pitch modulo the banks must equal the lanes modulo the banks"
        )
        yield _engine(f"{port}_t", opcode + 1, port, _LOAD_OPERANDS, _LOAD, text)
    text = "loads rows of bytes into the scratchpad"
    yield _engine("load_c", 52, "load_c", _LOAD_OPERANDS, _LOAD, text)
    for name, opcode, assigned in (("gemm", 53, "="), ("gemm_acc", 54, "+=")):
        text = f"accumulator range {assigned} product of gemm_m x k of A and k x gemm_n of B, zero points "
        yield _engine(name, opcode, "gemm", _GEMM_OPERANDS, _GEMM, text + "subtracted, int32")
    same = "source and store_pitch are multiples of the port's bytes"
    for name, opcode, text in (
        ("store", 55, "rows of the accumulator to memory"),
        ("store_scratch", 56, f"rows of the scratchpad to memory; {same}"),
        ("store_out", 57, "rows of the output buffer to memory; source and store_pitch as for store_scratch"),
    ):
        yield _engine(name, opcode, "store", _STORE_OPERANDS, _STORE, f"writes {text}")
    yield _engine("cgra", 58, "cgra", _CGRA_OPERANDS, _CGRA, "runs a loop on the CGRA")
    text = (
        "loads the patches of a convolution (im2col): every pixel is read once and written to every "
        "patch that contains it. load_pitch modulo the banks must equal the lanes modulo the banks, and "
        "load_stride and conv_line must be multiples of the port's bytes; illegal if convolutions = false"
    )
    yield _engine("load_b_conv", 59, "load_b", _CONV_OPERANDS, _CONV, text)


#: All instructions by name, in opcode order.
INSTRUCTIONS: dict[str, Instruction] = {
    i.name: i for i in sorted((*_scalar_rows(), *_engine_rows()), key=lambda r: r.opcode)
}
BY_OPCODE: dict[int, Instruction] = {i.opcode: i for i in INSTRUCTIONS.values()}
BY_PARAMETER: dict[int, Parameter] = {p.index: p for p in PARAMETERS.values()}


def of_engine(engine: str) -> tuple[Instruction, ...]:
    """The instructions that an engine executes, in opcode order: its variants 0, 1, ..."""
    return tuple(i for i in INSTRUCTIONS.values() if i.engine == engine)


@functools.lru_cache
def layout(name: str) -> dict[str, Field]:
    """The fields of an instruction by name."""
    return {f.name: f for f in INSTRUCTIONS[name].fields}


#: Optional hardware, by configuration field, and the instructions that need it.
NEEDED = {
    "cgra": ("a CGRA", ("cgra", "store_out")),
    "convolutions": ("convolutions = true", ("load_b_conv",)),
}


@dataclass(frozen=True)
class Timing:
    """Pipeline depths in cycles, the constants of the timing contract (docs/machine.md)."""

    sequencer: int = 6  # minimum, from one turn of a warp to its next
    enqueue: int = 3  # from issue to the first cycle in which an engine can take the operation
    next_offer: int = 2  # from taking an operation to the first cycle in which the next one can be taken
    load_request: int = 5  # from taking an operation to presenting its first request
    load_write: int = 4  # from the last response to completion
    load_error: int = 1  # from when an invalid beat would enter a loader's request register to its error
    gemm_first: int = 1  # from taking an operation to reading its first columns
    gemm_drain: int = 5  # from reading the last columns of a block to draining its first row
    acc_write: int = 3  # from draining a row to the cycle in which it can be read
    gemm_turn: int = 2  # gap between two operations' drains, so that they do not overlap in the accumulator
    store_take: int = 1  # for preparing an operation before the storer takes it
    store_output: int = 3  # from reading a beat to presenting it
    store_response: int = 1  # from the last response to completion
    grid_checks: int = 3  # minimum duration of the checks of a configuration's arrays
    conv_setup: int = 10  # steps of an im2col load before the first image row
    conv_settle: int = 2  # steps from the last kernel row tested to the decision about the image row
    in_flight: int = 4  # operations that a loader or the storer has taken but not completed, at most
    pending_signals: int = 8  # signals of a warp that wait for completion, at most


TIMING = Timing()
