"""Instruction decoder, built from the table in `hw.isa`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.control.alu import DIVIDES, SLOW

_SIMPLE = ("halt", "li", "lih", "select", "loop", "jump", "wait", "signal", "param", "parami")
#: Lowest bits of the fields that name a register, in the order of an engine operation's operands.
REGISTER_FIELDS = tuple(f.low for f in isa.Format.ENGINE.fields)


class Decoder(Component):
    """Splits an instruction word into what the sequencer needs; `legal` is 0 for what stops a warp.

    `is_*` tells the instruction. `imm` is the immediate of a binary operation, `li` and `lih`, `parami_value`
    that of `parami`. Registers are read by the places of the fields that name them (`REGISTER_FIELDS`).

    **Timing.** Combinational.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "word": In(32),
                "legal": Out(1),
                "predicate": Out(5),
                "sense": Out(1),
                **{f"is_{name}": Out(1) for name in _SIMPLE},
                "is_binary": Out(1),
                "is_slow": Out(1),
                "is_divide": Out(1),
                "is_engine": Out(1),
                "select": Out(4),
                "use_imm": Out(1),
                "imm": Out(signed(32)),
                "parami_value": Out(signed(32)),
                "rd": Out(5),
                "channel": Out(15),
                "parameter": Out(6),
                "engine": Out(range(len(ENGINES))),
                "variant": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.word
        opcode = word[isa.OPCODE_LOW : isa.OPCODE_LOW + isa.OPCODE_BITS]
        binary = [s for s in isa.INSTRUCTIONS.values() if s.format in (isa.Format.R, isa.Format.I)]

        def is_any(specs: Iterable[isa.Instruction]) -> Value:
            return Cat(opcode == s.opcode for s in specs).any() if (specs := list(specs)) else Const(0)

        def field(instruction: str, name: str) -> Value:
            f = isa.layout(instruction)[name]
            return word[f.low : f.low + f.width]

        upper = Signal()  # the format of `li`, whose immediate is the longer one
        m.d.comb += [
            *[getattr(self, f"is_{name}").eq(opcode == isa.INSTRUCTIONS[name].opcode) for name in _SIMPLE],
            self.is_binary.eq(is_any(binary)),
            self.is_slow.eq(is_any(s for s in binary if s.opcode % 16 in SLOW)),
            self.is_divide.eq(is_any(s for s in binary if s.opcode % 16 in DIVIDES)),
            self.is_engine.eq(is_any(s for s in isa.INSTRUCTIONS.values() if s.engine)),
            self.select.eq(opcode),
            upper.eq(self.is_li | self.is_lih),
            self.use_imm.eq(upper | is_any(s for s in binary if s.format is isa.Format.I)),
            self.imm.eq(Mux(upper, field("li", "imm").as_signed(), field("addi", "imm").as_signed())),
            self.parami_value.eq(field("parami", "imm").as_signed()),
            self.predicate.eq(word[isa.PREDICATE_LOW : isa.PREDICATE_LOW + isa.PREDICATE_BITS]),
            self.sense.eq(word[isa.SENSE_LOW]),
            self.rd.eq(field("li", "rd")),
            self.channel.eq(field("wait", "channel")),
            self.parameter.eq(field("param", "parameter")),
            *self._engines(is_any),
            self.legal.eq(self._legal(is_any)),
        ]
        return m

    def _engines(self, is_any: Callable[[Iterable[isa.Instruction]], Value]) -> list[object]:
        """Engine and variant of an operation, bit by bit."""
        operations = [s for s in isa.INSTRUCTIONS.values() if s.engine]
        numbers = {s.name: ENGINES.index(s.engine) for s in operations if s.engine}
        variants = {s.name: isa.of_engine(s.engine).index(s) for s in operations if s.engine}
        return [
            target[i].eq(is_any(s for s in operations if of[s.name] >> i & 1))
            for target, of in ((self.engine, numbers), (self.variant, variants))
            for i in range(len(target))
        ]

    def _legal(self, is_any: Callable[[Iterable[isa.Instruction]], Value]) -> Value:
        specs = isa.INSTRUCTIONS.values()
        c = self._config
        legal = is_any(s for s in specs if c.cgra is not None or s.name not in isa.NEEDS_GRID)
        legal &= ~(self.is_wait | self.is_signal) | (self.channel < c.channels)
        legal &= ~(self.is_param | self.is_parami) | (self.parameter < len(isa.PARAMETERS))
        if c.registers < 1 << isa.PREDICATE_BITS:
            legal &= self.predicate < c.registers
            for low in REGISTER_FIELDS:
                names = [
                    s for s in specs if any(f.low == low and f.kind is isa.Kind.REGISTER for f in s.fields)
                ]
                legal &= ~is_any(names) | (self.word[low : low + isa.PREDICATE_BITS] < c.registers)
        return legal
