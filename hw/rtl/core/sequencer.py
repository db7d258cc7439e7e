"""A warp sequencer: predicate, scalar execution, and one issue port to engines and channels."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, Signature

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.isa import STORED_BITS
from hw.rtl.bits import log2, where
from hw.rtl.core.alu import MOVE_LOW, Alu, AluControl, MultiplyDivide
from hw.rtl.core.decoder import REGISTER_FIELDS, Decoder, Sort, predicate_number, sort_of
from hw.rtl.core.fetch import Fetch
from hw.rtl.core.fetch import ProgramMemory as ProgramMemory
from hw.rtl.core.registers import RegisterFile
from hw.rtl.core.signals import CHANNEL_BITS, PendingSignals
from hw.rtl.interfaces import PC_BITS

#: Bits of a number of a register in the walk that clears them.
CLEAR_BITS = isa.PREDICATE_BITS
_COUNT = isa.layout("loop")["rs1"]
#: Which of an issue port's values a parameter becomes.
VALUE = REGISTER_FIELDS.index(isa.layout("param")["rs1"].low)


class IssuePort(Signature):
    """What a warp offers to the engines: an operation, or with `sets` a new value of a parameter.

    `values` are the operands as they are at issue; the new value of a parameter is the one of `VALUE`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "sets": Out(1),
                "parameter": Out(range(len(isa.PARAMETERS))),
                "engine": Out(range(len(ENGINES))),
                "variant": Out(2),
                "values": Out(data.ArrayLayout(32, 4)),
                "pc": Out(PC_BITS),
            }
        )


class Sequencer(Component):
    """Executes one program in order, one instruction per cycle unless something holds it.

    While `clear` is 1, the register `clear_register` becomes 0: it must name all of them. Then `load` takes
    the first instruction, in the two cycles before `run` lets it execute. `tokens` tells which channels hold
    a token. `error` names the cause of a stop at `pc`; what the sequencer does from then on does not matter.
    `moves` is `issued`, and 1 with some errors, too.

    **Timing.** docs/machine.md, "Warps".
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        bits = log2(config.imem_words)
        super().__init__(
            {
                "clear": In(1),
                "clear_register": In(CLEAR_BITS),
                "load": In(1),
                "run": In(1),
                "fetch": Out(1),
                "fetch_address": Out(bits),
                "word": In(STORED_BITS),
                "fetch_target": Out(bits),
                "target_word": In(STORED_BITS),
                "issue": Out(IssuePort()),
                "complete": In(1),
                "tokens": In(config.channels),
                "take": Out(1),
                "take_channel": Out(CHANNEL_BITS),
                "fire": Out(1),
                "fire_channel": Out(CHANNEL_BITS),
                "fire_pc": Out(PC_BITS),
                "pc": Out(PC_BITS),
                "issued": Out(1),
                "void": Out(1),
                "moves": Out(1),
                "error": Out(1),
                "cause": Out(8),
                "finished": Out(1),
                "stall_channel": Out(1),
                "stall_engine": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        m.submodules.decoder = decoder = Decoder(c)
        m.submodules.registers = registers = RegisterFile(c.registers)
        m.submodules.fetch = fetch = Fetch(c.imem_words, c.loop_depth)
        m.submodules.pending = pending = PendingSignals(len(fetch.pc))

        # Nothing executes after a halt, and while a multiplication or division is under way (`slow`).
        asleep, slow = Signal(), Signal()
        awake, ready, true, active = Signal(), Signal(), Signal(), Signal()
        m.d.comb += [
            self.pc.eq(fetch.pc),
            self.fetch.eq(fetch.read),
            self.fetch_address.eq(fetch.address),
            fetch.next_word.eq(self.word),
            self.fetch_target.eq(fetch.target),
            fetch.target_word.eq(self.target_word),
            fetch.load.eq(self.load),
            decoder.load.eq(fetch.read),
            decoder.coming.eq(fetch.coming),
            decoder.word.eq(fetch.word),
            registers.predicate.eq(decoder.predicate),
            registers.coming_predicate.eq(predicate_number(fetch.coming)),
            registers.count.eq(_count_number(fetch.word)),
            registers.coming_count.eq(_count_number(fetch.coming)),
            registers.counts.eq(decoder.is_loop),
            registers.coming_counts.eq(sort_of(fetch.coming) == Sort.LOOP),
            registers.next.eq(fetch.read),
            awake.eq(self.run & ~asleep),
            ready.eq(awake & ~registers.unknown),
            true.eq(registers.true == decoder.sense),
            active.eq(ready & true),
            *[
                getattr(registers, f"read{i}").eq(fetch.word[low : low + isa.PREDICATE_BITS])
                for i, low in enumerate(REGISTER_FIELDS)
            ],
        ]
        values = [getattr(registers, f"value{i}") for i in range(len(REGISTER_FIELDS))]
        new, too_wide = self._operands(m, decoder, values)
        held = self._holds(m, decoder, pending, active, [*values[:VALUE], new, *values[VALUE + 1 :]])

        # What happens behind an error does not count: it holds nothing back, which would take its time. Only
        # what comes next has to know of every hold: what an instruction does is held by one thing at most.
        go, waits, signals = Signal(), Signal(), Signal()
        m.d.comb += [
            go.eq(ready & ~held),
            waits.eq(active & decoder.is_wait & ~self.stall_channel),
            signals.eq(active & decoder.is_signal & pending.room),
            self.moves.eq(go),
            self.issued.eq(go & ~self.error),
            self.void.eq(self.issued & ~true),
        ]
        some = registers.positive
        m.d.comb += [
            fetch.go.eq(go),
            # While it is loaded, any word may be in the decoder.
            fetch.jump.eq(self.run & true & (decoder.is_jump | (decoder.is_loop & ~some))),
            fetch.push.eq(true & decoder.is_loop & some),
            fetch.count.eq(self._register(values, "loop", "rs1")),
        ]
        zero, done = self._scalar(m, decoder, registers, values, active, slow)
        with m.If(active & (decoder.is_halt | decoder.is_slow)):
            m.d.sync += asleep.eq(1)
        with m.Elif(done):
            m.d.sync += asleep.eq(0)

        with m.If(awake & ~decoder.legal):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.ILLEGAL_INSTRUCTION)]
        with m.Elif(active & decoder.is_loop & some & fetch.full):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.LOOP_DEPTH)]
        with m.Elif(active & zero):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.DIVIDE_BY_ZERO)]
        with m.Elif(active & too_wide):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.OPERAND)]

        # Channels and engines.
        m.d.comb += [
            pending.issue.eq(self.issue.valid & self.issue.ready & ~self.issue.sets),
            pending.complete.eq(self.complete),
            pending.signal.eq(signals),
            pending.channel.eq(decoder.channel),
            pending.pc.eq(fetch.pc),
            self.take.eq(waits),
            self.take_channel.eq(decoder.channel),
            self.fire.eq(pending.fire & self.run),
            self.fire_channel.eq(pending.fire_channel),
            self.fire_pc.eq(pending.fire_pc),
            self.finished.eq(asleep & ~slow & ~pending.some & pending.empty),
        ]
        return m

    @staticmethod
    def _register(values: list[Signal], instruction: str, field: str) -> Signal:
        """What the register holds that a field of an instruction names."""
        return values[REGISTER_FIELDS.index(isa.layout(instruction)[field].low)]

    def _holds(
        self,
        m: Module,
        decoder: Decoder,
        pending: PendingSignals,
        active: Signal,
        values: list[Signal],
    ) -> Value:
        """The issue port, and whether something that must happen first has not."""
        engine = Signal(range(len(ENGINES)))  # that of the operations that are not complete
        token, other_engine, offers = Signal(), Signal(), Signal()
        m.d.comb += [
            token.eq(self.tokens.bit_select(decoder.channel[:CHANNEL_BITS], 1)),
            other_engine.eq(decoder.is_engine & pending.some & (engine != decoder.engine)),
            self.issue.sets.eq(decoder.is_param | decoder.is_parami),
            offers.eq(decoder.is_engine | self.issue.sets),
            self.issue.valid.eq(active & offers & ~other_engine),
            self.issue.parameter.eq(decoder.parameter),
            self.issue.engine.eq(decoder.engine),
            self.issue.variant.eq(decoder.variant),
            self.issue.pc.eq(self.pc),
            *[self.issue.values[i].eq(value) for i, value in enumerate(values)],
        ]
        wait_held, signal_held, engine_held = Signal(), Signal(), Signal()
        m.d.comb += [
            wait_held.eq(decoder.is_wait & ~token),
            signal_held.eq(decoder.is_signal & ~pending.room),
            # The answer of the engines is what comes last.
            engine_held.eq(other_engine | (offers & ~self.issue.ready)),
            self.stall_channel.eq(active & wait_held),
            self.stall_engine.eq(active & (signal_held | engine_held)),
        ]
        with m.If(pending.issue):
            m.d.sync += engine.eq(decoder.engine)
        return active & (wait_held | signal_held | engine_held)

    def _scalar(
        self,
        m: Module,
        decoder: Decoder,
        registers: RegisterFile,
        values: list[Signal],
        active: Signal,
        slow: Signal,
    ) -> tuple[Value, Value]:
        """Results of scalar instructions, which nothing holds.

        Returns whether one divides by zero, and whether a slow one is done.
        """
        m.submodules.alu = alu = Alu()
        m.submodules.multiply = multiply = MultiplyDivide()
        left, other = self._register(values, "add", "rs1"), self._register(values, "select", "rs3")
        shifted = self._register(values, "lih", "rd")
        right, chosen, fast = Signal(signed(32)), Signal(), Signal()
        m.d.comb += [
            right.eq(Mux(decoder.use_imm, decoder.imm, self._register(values, "add", "rs2"))),
            chosen.eq(left != 0),
            # The instruction behind a slow one is in the decoder meanwhile; its result must be 0.
            fast.eq(~slow),
            alu.enable.eq(decoder.is_binary & fast),
            alu.move_low.eq((decoder.is_li | decoder.is_lih | (decoder.is_select & chosen)) & fast),
            alu.move_high.eq((decoder.is_li | (decoder.is_select & chosen)) & fast),
            *[alu.control[name].eq(getattr(decoder, f"alu_{name}")) for name, _ in AluControl],
            alu.a.eq(left),
            alu.b.eq(right),
            multiply.select.eq(decoder.select),
            multiply.a.eq(left),
            multiply.b.eq(right),
            multiply.start.eq(active & decoder.is_slow),
        ]
        slow_target = Signal(5)
        with m.If(multiply.start):
            m.d.sync += [slow.eq(1), slow_target.eq(decoder.rd)]
        with m.Elif(multiply.done):
            m.d.sync += slow.eq(0)
        keeps = decoder.is_select & ~chosen & fast
        higher = where(decoder.is_lih & fast, Cat(Const(0, MOVE_LOW), shifted[: 32 - MOVE_LOW]))
        m.d.comb += [
            registers.clear.eq(self.clear),
            registers.write.eq(
                multiply.done
                | (active & decoder.is_binary & ~decoder.is_slow)
                | (active & (decoder.is_li | decoder.is_lih | decoder.is_select))
            ),
            registers.target.eq(Mux(self.clear, self.clear_register, Mux(slow, slow_target, decoder.rd))),
            # Each is 0 where it is not the result.
            registers.data.eq(alu.result | where(keeps, other) | higher | multiply.result),
        ]
        return decoder.is_divide & (right == 0), multiply.done

    def _operands(self, m: Module, decoder: Decoder, values: list[Signal]) -> tuple[Signal, Signal]:
        """The value for a parameter, and whether an operand or parameter does not fit its field."""
        new, too_wide = Signal(32), Signal()
        m.d.comb += new.eq(Mux(decoder.is_parami, decoder.parami_value, values[VALUE]))
        wide = [(decoder.is_param | decoder.is_parami) & self._exceeds_parameter(m, decoder.parameter, new)]
        specs = {name: isa.of_engine(name)[0].operands for name in ENGINES}
        for i, value in enumerate(values):
            for bits in sorted({operands[i].bits for operands in specs.values()} - {32}):
                engines = [e for e, name in enumerate(ENGINES) if specs[name][i].bits == bits]
                excess = Signal(name=f"excess{i}_{bits}")
                m.d.comb += excess.eq(value[bits:].any())
                wide.append(decoder.is_engine & Cat(decoder.engine == e for e in engines).any() & excess)
        m.d.comb += too_wide.eq(Cat(*wide).any())
        return new, too_wide

    @staticmethod
    def _exceeds_parameter(m: Module, parameter: Value, new: Value) -> Value:
        """Whether a value is wider than the parameter."""
        wide = []
        for bits in sorted({p.bits for p in isa.PARAMETERS.values()} - {32}):
            numbers = [p.index for p in isa.PARAMETERS.values() if p.bits == bits]
            excess = Signal(name=f"excess_parameter_{bits}")
            m.d.comb += excess.eq(new[bits:].any())
            wide.append(excess & Cat(parameter == n for n in numbers).any())
        return Cat(*wide).any()


def _count_number(word: Value) -> Value:
    """The number of the register with a loop's iterations."""
    return word[_COUNT.low : _COUNT.low + _COUNT.width]
