"""Builds the program of one warp: registers by name, any constant, loops and predicates as contexts.

What the machine asks of a program is taken care of here: loops never end on the same instruction,
their bodies fit the length field, nesting and size fit the configuration.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hw import isa
from hw.assembly import Code, encode
from hw.config import MachineConfig
from hw.errors import InputError

SCRATCH = "scratch"

_IMMEDIATE_BITS = isa.layout("addi")["imm"].width
_LI_BITS = isa.layout("li")["imm"].width
_PARAMI_BITS = isa.layout("parami")["imm"].width
_LOOP_LIMIT = (1 << isa.layout("loop")["length"].width) - 1


@dataclass(frozen=True)
class Register:
    """A scalar register of a warp: its number, and the name under which the builder gave it out."""

    index: int
    name: str


ZERO = Register(0, "zero")

Value = Register | int


class Builder:
    """Collects the instructions of one warp; `words` gives the finished program.

    Whole numbers stand wherever a value may: the builder takes the immediate form, or brings the
    constant into a scratch register first. Raises `InputError` when registers, loop depth or
    instruction memory of the configuration do not suffice.
    """

    def __init__(self, config: MachineConfig, name: str = "program"):
        self.config = config
        self.name = name
        self.codes: list[Code] = []
        self._registers: dict[str, Register] = {ZERO.name: ZERO}
        self._depth = 0
        self._last_loop_end = -1
        self._predicate: tuple[Register, bool] | None = None

    def register(self, name: str) -> Register:
        """The register of that name; the first call takes one of the machine's registers for it."""
        if name not in self._registers:
            index = len(self._registers)
            if index >= self.config.registers:
                raise InputError(
                    f"{self.name}: registers must be at least {index + 1} (for {name!r}), "
                    f"not {self.config.registers}"
                )
            self._registers[name] = Register(index, name)
        return self._registers[name]

    @property
    def scratch(self) -> Register:
        """The register that constants pass through; the next constant overwrites it."""
        return self.register(SCRATCH)

    def constant(self, value: int) -> Value:
        """The constant for use in loops: in a register of its own when it needs one and there are plenty.

        Must be called outside of loops. As long as half of the registers are unused they are given to
        constants; after that the value itself comes back, and passes through scratch at each use.
        """
        value = _as_signed(value & 0xFFFFFFFF)
        name = f"constant {value}"
        if _fits(value, _IMMEDIATE_BITS) or self._depth:
            return value
        if name not in self._registers:
            if len(self._registers) >= self.config.registers // 2:
                return value
            self.set(self.register(name), value)
        return self._registers[name]

    @property
    def registers_used(self) -> int:
        """How many registers the program names, r0 included."""
        return len(self._registers)

    def emit(self, name: str, **fields: int) -> None:
        """Append one instruction with these field values, under the predicate that is in force."""
        register, sense = self._predicate or (ZERO, False)
        self.codes.append(Code(name, fields, register.index, sense))

    def set(self, target: Register, value: Value) -> None:
        """Bring a register or a 32-bit constant (signed or unsigned) into a register."""
        if isinstance(value, Register):
            self.emit("addi", rd=target.index, rs1=value.index, imm=0)
            return
        value = _as_signed(value)
        pieces = _pieces(value)
        self.emit("li", rd=target.index, imm=pieces[0])
        for piece in pieces[1:]:
            self.emit("lih", rd=target.index, imm=piece)

    def op(self, name: str, target: Register, left: Register, right: Value) -> None:
        """`target = left <name> right` for one of `hw.isa.BINARY`."""
        if name not in isa.BINARY:
            raise ValueError(f"operation must be one of {', '.join(isa.BINARY)}, not {name!r}")
        if isinstance(right, int):
            if _fits(right, _IMMEDIATE_BITS):
                self.emit(name + "i", rd=target.index, rs1=left.index, imm=right)
                return
            if left.name == SCRATCH:
                raise ValueError("a constant this large passes through scratch, which is the left operand")
            self.set(self.scratch, right)
            right = self.scratch
        self.emit(name, rd=target.index, rs1=left.index, rs2=right.index)

    def add(self, target: Register, value: Value) -> None:
        """`target += value`, modulo 2^32; adding the constant 0 takes no instruction."""
        if isinstance(value, int):
            value = _as_signed(value & 0xFFFFFFFF)
        if value != 0:
            self.op("add", target, target, value)

    def param(self, name: str, value: Value) -> None:
        """Write a parameter register by name; raises `InputError` for a constant that is too wide."""
        parameter = isa.PARAMETERS[name]
        if isinstance(value, int):
            if not 0 <= value < 1 << parameter.bits:
                raise InputError(f"{self.name}: {name} must be 0 to {(1 << parameter.bits) - 1}, not {value}")
            if _fits(value, _PARAMI_BITS):
                self.emit("parami", parameter=parameter.index, imm=value)
                return
            self.set(self.scratch, value)
            value = self.scratch
        self.emit("param", parameter=parameter.index, rs1=value.index)

    def engine(self, name: str, **operands: Register) -> None:
        """Issue an engine operation, its operands by the names of the instruction table."""
        spec = isa.INSTRUCTIONS[name]
        wanted = [o.name for o in spec.operands]
        if sorted(wanted) != sorted(operands):
            raise ValueError(f"{name} takes {', '.join(wanted)}, not {', '.join(operands)}")
        fields = {f.name: operands[o].index for f, o in zip(spec.fields, wanted, strict=True)}
        self.emit(name, **fields)

    def wait(self, channel: int) -> None:
        """Take a token out of a channel."""
        self._check_channel(channel)
        self.emit("wait", channel=channel)

    def signal(self, channel: int, tokens: int = 1) -> None:
        """Put tokens into a channel once all earlier operations of the warp are complete."""
        self._check_channel(channel)
        for _ in range(tokens):
            self.emit("signal", channel=channel)

    def _check_channel(self, channel: int) -> None:
        if not 0 <= channel < self.config.channels:
            raise InputError(
                f"{self.name}: channels must be at least {channel + 1}, not {self.config.channels}"
            )

    @contextmanager
    def when(self, register: Register, sense: bool = True) -> Iterator[None]:
        """Instructions inside happen only when `(register != 0) == sense`."""
        if self._predicate is not None:
            raise ValueError("predicates do not nest: combine the conditions in a register")
        self._predicate = (register, sense)
        try:
            yield
        finally:
            self._predicate = None

    @contextmanager
    def loop(self, count: Value) -> Iterator[None]:
        """Instructions inside are executed `count` times; a constant count of 1 takes no loop."""
        if isinstance(count, int) and count == 1:
            yield
            return
        if self._predicate is not None:
            raise ValueError("a loop must not be predicated: its body would be executed once")
        if isinstance(count, int):
            self.set(self.scratch, count)
            count = self.scratch
        self._depth += 1
        if self._depth > self.config.loop_depth:
            raise InputError(
                f"{self.name}: loop_depth must be at least {self._depth}, not {self.config.loop_depth}"
            )
        start = len(self.codes)
        self.emit("loop", rs1=count.index, length=0)
        yield
        if self._last_loop_end == len(self.codes) - 1 or len(self.codes) == start + 1:
            self.emit("nop")
        length = len(self.codes) - start - 1
        if length > _LOOP_LIMIT:
            raise InputError(
                f"{self.name}: a loop body must hold at most {_LOOP_LIMIT} instructions, not {length}"
            )
        self.codes[start] = Code("loop", {"rs1": count.index, "length": length})
        self._last_loop_end = len(self.codes) - 1
        self._depth -= 1

    def words(self) -> list[int]:
        """The program's words, ended by `halt`; raises `InputError` when instruction memory is too small."""
        codes = [*self.codes, Code("halt")]
        if len(codes) > self.config.imem_words:
            raise InputError(
                f"{self.name}: imem_words must be at least {len(codes)}, not {self.config.imem_words}"
            )
        return [encode(code) for code in codes]


def _fits(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1


def _as_signed(value: int) -> int:
    if not -(1 << 31) <= value < 1 << 32:
        raise ValueError(f"a constant must fit 32 bits, not {value}")
    return value - (1 << 32) if value >= 1 << 31 else value


def _pieces(value: int) -> list[int]:
    """Immediates of `li`, then of `lih`s, each signed as the field wants it, most significant first."""
    pieces: list[int] = []
    while not _fits(value, _LI_BITS):
        low = value & (1 << _LI_BITS) - 1
        pieces.insert(0, low - (1 << _LI_BITS) if low >> _LI_BITS - 1 else low)
        value >>= _LI_BITS
    return [value, *pieces]
