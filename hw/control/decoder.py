"""Instruction decoder, built from the table in `hw.isa`."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Value, signed
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.control.alu import SLOW

_SIMPLE = ("halt", "li", "lih", "select", "loop", "jump", "wait", "signal", "param", "parami")


class Decoder(Component):
    """Splits an instruction word into what the sequencer needs; `legal` is 0 for what stops a warp.

    `is_*` tells the instruction; `reg0` to `reg3` name the registers to read; `imm` is the immediate of
    whichever format.

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
                "is_engine": Out(1),
                "select": Out(4),
                "use_imm": Out(1),
                "imm": Out(signed(32)),
                "rd": Out(5),
                **{f"reg{i}": Out(5) for i in range(4)},
                "channel": Out(15),
                "length": Out(10),
                "parameter": Out(6),
                "engine": Out(range(len(ENGINES))),
                "variant": Out(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.word
        opcode = word[isa.OPCODE_LOW : isa.OPCODE_LOW + isa.OPCODE_BITS]
        m.d.comb += [
            self.predicate.eq(word[isa.PREDICATE_LOW : isa.PREDICATE_LOW + isa.PREDICATE_BITS]),
            self.sense.eq(word[isa.SENSE_LOW]),
            self.select.eq(opcode),
        ]
        predicate_legal = self._register_legal(self.predicate)
        with m.Switch(opcode):
            for spec in isa.INSTRUCTIONS.values():
                with m.Case(spec.opcode):
                    legal: Value = predicate_legal
                    m.d.comb += self._flags(spec)
                    if spec.engine:
                        m.d.comb += [
                            self.engine.eq(ENGINES.index(spec.engine)),
                            self.variant.eq(isa.of_engine(spec.engine).index(spec)),
                        ]
                    reads = iter(range(4))
                    for field in spec.fields:
                        value = word[field.low : field.low + field.width]
                        if field.kind is isa.Kind.REGISTER:
                            legal = legal & self._register_legal(value)
                            if field.name == "rd":
                                m.d.comb += self.rd.eq(value)
                            if field.name != "rd" or spec.name == "lih":
                                m.d.comb += getattr(self, f"reg{next(reads)}").eq(value)
                        elif field.kind is isa.Kind.IMMEDIATE:
                            m.d.comb += self.imm.eq(value.as_signed())
                        elif field.kind is isa.Kind.CHANNEL:
                            m.d.comb += self.channel.eq(value)
                            legal = legal & (value < self._config.channels)
                        elif field.kind is isa.Kind.PARAMETER:
                            m.d.comb += self.parameter.eq(value)
                            legal = legal & (value < len(isa.PARAMETERS))
                        else:
                            m.d.comb += self.length.eq(value)
                    possible = self._config.cgra is not None or spec.name not in isa.NEEDS_GRID
                    m.d.comb += self.legal.eq(legal if possible else 0)
        return m

    def _flags(self, spec: isa.Instruction) -> list[object]:
        if spec.engine:
            return [self.is_engine.eq(1)]
        if spec.format in (isa.Format.R, isa.Format.I):
            slow = spec.opcode % 16 in SLOW
            return [self.is_binary.eq(1), self.is_slow.eq(slow), self.use_imm.eq(spec.format is isa.Format.I)]
        return [getattr(self, f"is_{spec.name}").eq(1)] if spec.name in _SIMPLE else []

    def _register_legal(self, index: Value) -> Value:
        if self._config.registers == 1 << isa.PREDICATE_BITS:
            return Const(1)
        return index < self._config.registers
