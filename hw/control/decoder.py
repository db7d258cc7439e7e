"""Instruction decoder, built from the table in `hw.isa`."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amaranth.hdl import Cat, Const, Module, Mux, Value, signed
from amaranth.lib.wiring import Component, In, Out

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.control.alu import DIVIDES, SLOW

_SIMPLE = ("halt", "li", "lih", "select", "loop", "jump", "wait", "signal", "param", "parami")
#: Lowest bits of the fields that name a register, in the order of an engine operation's operands.
REGISTER_FIELDS = tuple(f.low for f in isa.Format.ENGINE.fields)


#: What is known of an instruction before it executes, with its bits.
_KNOWN = {
    "legal": 1,
    **{f"is_{name}": 1 for name in (*_SIMPLE, "binary", "slow", "divide", "engine")},
    "use_imm": 1,
    "engine": (len(ENGINES) - 1).bit_length(),
    "variant": 2,
}


class Decoder(Component):
    """Splits an instruction word into what the sequencer needs; `legal` is 0 for what stops a warp.

    `is_*` tells the instruction. `imm` is the immediate of a binary operation, `li` and `lih`, `parami_value`
    that of `parami`. Registers are read by the places of the fields that name them (`REGISTER_FIELDS`).

    **Timing.** `word` becomes what `coming` is in a cycle with `load`; what the opcode tells is worked out in
    that cycle, so that nothing waits for it when the instruction executes.
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "load": In(1),
                "coming": In(32),
                "word": In(32),
                **{name: Out(bits) for name, bits in _KNOWN.items()},
                "predicate": Out(5),
                "sense": Out(1),
                "select": Out(4),
                "imm": Out(signed(32)),
                "parami_value": Out(signed(32)),
                "rd": Out(5),
                "channel": Out(15),
                "parameter": Out(6),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        word = self.word

        def field(instruction: str, name: str) -> Value:
            f = isa.layout(instruction)[name]
            return word[f.low : f.low + f.width]

        m.d.comb += [
            self.select.eq(word[isa.OPCODE_LOW : isa.OPCODE_LOW + isa.OPCODE_BITS]),
            self.imm.eq(
                Mux(
                    self.is_li | self.is_lih,  # the format whose immediate is the longer one
                    field("li", "imm").as_signed(),
                    field("addi", "imm").as_signed(),
                )
            ),
            self.parami_value.eq(field("parami", "imm").as_signed()),
            self.predicate.eq(predicate_number(word)),
            self.sense.eq(word[isa.SENSE_LOW]),
            self.rd.eq(field("li", "rd")),
            self.channel.eq(field("wait", "channel")),
            self.parameter.eq(field("param", "parameter")),
        ]
        with m.If(self.load):
            m.d.sync += [
                getattr(self, name).eq(value) for name, value in known(self._config, self.coming).items()
            ]
        return m


def predicate_number(word: Value) -> Value:
    """The number of the register that is the predicate of an instruction."""
    return word[isa.PREDICATE_LOW : isa.PREDICATE_LOW + isa.PREDICATE_BITS]


def known(config: MachineConfig, coming: Value) -> dict[str, Value]:
    """What is known of a word before it executes, by the names of the ports."""
    opcode = coming[isa.OPCODE_LOW : isa.OPCODE_LOW + isa.OPCODE_BITS]
    specs = list(isa.INSTRUCTIONS.values())
    binary = [s for s in specs if s.format in (isa.Format.R, isa.Format.I)]

    def is_any(specs: Iterable[isa.Instruction]) -> Value:
        return Cat(opcode == s.opcode for s in specs).any() if (specs := list(specs)) else Const(0)

    known = {f"is_{name}": opcode == isa.INSTRUCTIONS[name].opcode for name in _SIMPLE}
    return {
        **known,
        "is_binary": is_any(binary),
        "is_slow": is_any(s for s in binary if s.opcode % 16 in SLOW),
        "is_divide": is_any(s for s in binary if s.opcode % 16 in DIVIDES),
        "is_engine": is_any(s for s in specs if s.engine),
        "use_imm": known["is_li"] | known["is_lih"] | is_any(s for s in binary if s.format is isa.Format.I),
        **_engines(is_any),
        "legal": _legal(is_any, config, coming),
    }


def _engines(is_any: Callable[[Iterable[isa.Instruction]], Value]) -> dict[str, Value]:
    """Engine and variant of an operation, bit by bit."""
    operations = [s for s in isa.INSTRUCTIONS.values() if s.engine]
    numbers = {s.name: ENGINES.index(s.engine) for s in operations if s.engine}
    variants = {s.name: isa.of_engine(s.engine).index(s) for s in operations if s.engine}
    return {
        name: Cat(is_any(s for s in operations if of[s.name] >> i & 1) for i in range(_KNOWN[name]))
        for name, of in (("engine", numbers), ("variant", variants))
    }


def _legal(
    is_any: Callable[[Iterable[isa.Instruction]], Value], config: MachineConfig, coming: Value
) -> Value:
    specs = isa.INSTRUCTIONS.values()

    def within(names: tuple[str, ...], field: str, most: int) -> Value:
        """Whether a field is below a number in the instructions that have it."""
        f = isa.layout(names[0])[field]
        return ~is_any(isa.INSTRUCTIONS[n] for n in names) | (coming[f.low : f.low + f.width] < most)

    legal = is_any(s for s in specs if config.cgra is not None or s.name not in isa.NEEDS_GRID)
    legal &= within(("wait", "signal"), "channel", config.channels)
    legal &= within(("param", "parami"), "parameter", len(isa.PARAMETERS))
    if config.registers < 1 << isa.PREDICATE_BITS:
        legal &= predicate_number(coming) < config.registers
        for low in REGISTER_FIELDS:
            names = [s for s in specs if any(f.low == low and f.kind is isa.Kind.REGISTER for f in s.fields)]
            legal &= ~is_any(names) | (coming[low : low + isa.PREDICATE_BITS] < config.registers)
    return legal
