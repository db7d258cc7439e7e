"""A warp sequencer: fetch, predicate, scalar execution, and one issue port to engines and channels."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, memory
from amaranth.lib.wiring import Component, In, Out, Signature

from hw import isa
from hw.bits import log2
from hw.config import ENGINES, MachineConfig
from hw.control.alu import DIVIDES, Alu, MultiplyDivide
from hw.control.decoder import Decoder
from hw.control.loops import LoopStack
from hw.control.registers import RegisterFile
from hw.control.signals import CHANNEL_BITS, PendingSignals
from hw.interfaces import PC_BITS

#: All parameter registers of a warp as one value.
ParameterValues = data.StructLayout({p.name: p.bits for p in isa.PARAMETERS.values()})


class IssuePort(Signature):
    """What a warp offers to the engines: an operation with the values it had at issue."""

    def __init__(self) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "ready": In(1),
                "engine": Out(range(len(ENGINES))),
                "variant": Out(2),
                "values": Out(data.ArrayLayout(32, 4)),
                "parameters": Out(ParameterValues),
                "pc": Out(PC_BITS),
            }
        )


class ProgramMemory(Component):
    """The instruction memory of a warp; written by the host while the machine is idle.

    **Timing.** The word at `address` in cycle t is `word` in t + 1.
    """

    def __init__(self, words: int):
        self._words = words
        bits = log2(words)
        super().__init__(
            {"address": In(bits), "word": Out(32), "write": In(1), "write_address": In(bits), "data": In(32)}
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.words = words = memory.Memory(shape=32, depth=self._words, init=[])
        read, write = words.read_port(), words.write_port()
        m.d.comb += [
            read.en.eq(1),
            read.addr.eq(self.address),
            self.word.eq(read.data),
            write.en.eq(self.write),
            write.addr.eq(self.write_address),
            write.data.eq(self.data),
        ]
        return m


class Sequencer(Component):
    """Executes one program in order, one instruction per cycle unless something holds it.

    While `run` is 0 it waits at pc 0. `tokens` tells which channels hold a token. `error` names the cause of
    a stop at `pc`; the sequencer then stands still until it is reset.

    **Timing.** docs/machine.md, "Warps".
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        super().__init__(
            {
                "run": In(1),
                "fetch": Out(log2(config.imem_words)),
                "word": In(32),
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
        m.submodules.alu = alu = Alu()
        m.submodules.multiply = multiply = MultiplyDivide()
        m.submodules.loops = loops = LoopStack(c.loop_depth)
        m.submodules.pending = pending = PendingSignals()

        pc, halted = Signal(PC_BITS), Signal()
        slow = Signal()  # a multiplication or division is under way
        failed = Signal()
        engine = Signal(range(len(ENGINES)))
        parameters = Signal(ParameterValues)

        ready, true = Signal(), Signal()
        m.d.comb += [
            self.pc.eq(pc),
            decoder.word.eq(self.word),
            registers.predicate.eq(decoder.predicate),
            ready.eq(self.run & ~halted & ~slow & ~failed),
            true.eq(registers.true == decoder.sense),
            *[getattr(registers, f"read{i}").eq(getattr(decoder, f"reg{i}")) for i in range(4)],
        ]
        values = [registers.value0, registers.value1, registers.value2, registers.value3]

        # Held: something that must happen first has not.
        other_engine = (pending.outstanding != 0) & (engine != decoder.engine)
        token = Signal()
        m.d.comb += token.eq(self.tokens.bit_select(decoder.channel[:CHANNEL_BITS], 1))
        active = Signal()
        m.d.comb += active.eq(ready & true & decoder.legal)
        wait_held, signal_held, engine_held = Signal(), Signal(), Signal()
        too_wide = Signal()
        m.d.comb += [
            wait_held.eq(active & decoder.is_wait & ~token),
            signal_held.eq(active & decoder.is_signal & ~pending.room),
            engine_held.eq(active & decoder.is_engine & ~too_wide & ~(self.issue.valid & self.issue.ready)),
            self.issue.valid.eq(active & decoder.is_engine & ~too_wide & ~other_engine),
            self.issue.engine.eq(decoder.engine),
            self.issue.variant.eq(decoder.variant),
            self.issue.parameters.eq(parameters),
            self.issue.pc.eq(pc),
            *[self.issue.values[i].eq(values[i]) for i in range(4)],
            self.stall_channel.eq(wait_held),
            self.stall_engine.eq(signal_held | engine_held),
        ]

        # Errors, and what issues.
        overflow = decoder.is_loop & (values[0] > 0) & loops.full
        right = Signal(signed(32))
        m.d.comb += right.eq(Mux(decoder.use_imm, decoder.imm, values[1]))
        zero = decoder.is_binary & (right == 0) & ((alu.select == DIVIDES[0]) | (alu.select == DIVIDES[1]))
        with m.If(ready & ~decoder.legal):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.ILLEGAL_INSTRUCTION)]
        with m.Elif(active & overflow):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.LOOP_DEPTH)]
        with m.Elif(active & zero):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.DIVIDE_BY_ZERO)]
        with m.Elif(active & too_wide):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.OPERAND)]
        held = wait_held | signal_held | engine_held
        go, execute = Signal(), Signal()
        m.d.comb += [
            go.eq(ready & ~held & ~self.error),
            execute.eq(go & true),
            self.issued.eq(go),
            self.void.eq(go & ~true),
        ]
        with m.If(self.error):
            m.d.sync += failed.eq(1)

        # Scalar execution.
        m.d.comb += [
            alu.select.eq(decoder.select),
            alu.a.eq(values[0]),
            alu.b.eq(right),
            multiply.select.eq(decoder.select),
            multiply.a.eq(values[0]),
            multiply.b.eq(right),
            multiply.start.eq(execute & decoder.is_slow),
        ]
        slow_target = Signal(5)
        with m.If(multiply.start):
            m.d.sync += [slow.eq(1), slow_target.eq(decoder.rd)]
        result = Signal(32)
        with m.If(decoder.is_li):
            m.d.comb += result.eq(decoder.imm)
        with m.Elif(decoder.is_lih):
            m.d.comb += result.eq((values[0] << 15) | (decoder.imm & 0x7FFF))
        with m.Elif(decoder.is_select):
            m.d.comb += result.eq(Mux(values[0] != 0, values[1], values[2]))
        with m.Else():
            m.d.comb += result.eq(alu.result)
        fast = (decoder.is_binary & ~decoder.is_slow) | decoder.is_li | decoder.is_lih | decoder.is_select
        with m.If(multiply.done):
            m.d.comb += [
                registers.write.eq(1),
                registers.target.eq(slow_target),
                registers.data.eq(multiply.result),
            ]
            m.d.sync += slow.eq(0)
        with m.Else():
            m.d.comb += [
                registers.write.eq(execute & fast),
                registers.target.eq(decoder.rd),
                registers.data.eq(result),
            ]
        self._parameters(m, decoder, values, parameters, too_wide, execute)
        self._flow(m, decoder, values[0], loops, pc, halted, go, execute)

        # Channels and engines.
        m.d.comb += [
            pending.issue.eq(execute & decoder.is_engine),
            pending.complete.eq(self.complete),
            pending.signal.eq(execute & decoder.is_signal),
            pending.channel.eq(decoder.channel),
            pending.pc.eq(pc),
            self.take.eq(execute & decoder.is_wait),
            self.take_channel.eq(decoder.channel),
            self.fire.eq(pending.fire & self.run),
            self.fire_channel.eq(pending.fire_channel),
            self.fire_pc.eq(pending.fire_pc),
            self.finished.eq(halted & (pending.outstanding == 0) & pending.empty),
        ]
        with m.If(pending.issue):
            m.d.sync += engine.eq(decoder.engine)
        return m

    def _parameters(
        self,
        m: Module,
        decoder: Decoder,
        values: list[Signal],
        parameters: Signal,
        too_wide: Signal,
        execute: Signal,
    ) -> None:
        """Parameter registers, and the check that operands and parameters fit their fields."""
        new = Signal(32)
        m.d.comb += new.eq(Mux(decoder.is_parami, decoder.imm, values[0]))
        with m.If(decoder.is_param | decoder.is_parami), m.Switch(decoder.parameter):
            for p in isa.PARAMETERS.values():
                with m.Case(p.index):
                    if p.bits < 32:
                        m.d.comb += too_wide.eq(new[p.bits :].any())
                    with m.If(execute):
                        m.d.sync += parameters[p.name].eq(new)
        with m.If(decoder.is_engine), m.Switch(decoder.engine):
            for i, name in enumerate(ENGINES):
                operands = next(s.operands for s in isa.INSTRUCTIONS.values() if s.engine == name)
                wide = [
                    value[o.bits :].any() for value, o in zip(values, operands, strict=True) if o.bits < 32
                ]
                with m.Case(i):
                    for excess in wide:
                        with m.If(excess):
                            m.d.comb += too_wide.eq(1)

    def _flow(
        self,
        m: Module,
        decoder: Decoder,
        count: Signal,
        loops: LoopStack,
        pc: Signal,
        halted: Signal,
        go: Signal,
        execute: Signal,
    ) -> None:
        """The next pc, and its fetch in the cycle before it executes."""
        # After the last word of the memory comes the first.
        following, target = Signal(log2(self._config.imem_words)), Signal(PC_BITS)
        enters, jumps = Signal(), Signal()
        m.d.comb += [
            enters.eq(execute & decoder.is_loop & (count > 0)),
            jumps.eq(execute & (decoder.is_jump | (decoder.is_loop & (count <= 0)))),
            target.eq(pc + 1 + Mux(decoder.is_jump, decoder.imm, decoder.length)),
            loops.pc.eq(pc),
            loops.retire.eq(go & ~jumps),
            loops.push.eq(enters),
            loops.end.eq(pc + decoder.length),
            loops.count.eq(count),
        ]
        with m.If(~go):
            m.d.comb += following.eq(pc)
        with m.Elif(jumps):
            m.d.comb += following.eq(target)
        with m.Elif(loops.back):
            m.d.comb += following.eq(loops.start)
        with m.Else():
            m.d.comb += following.eq(pc + 1)
        # Before a run, the first instruction: whatever the previous run left in `pc` is being reset.
        m.d.comb += self.fetch.eq(Mux(self.run, following, 0))
        m.d.sync += pc.eq(following)
        with m.If(execute & decoder.is_halt):
            m.d.sync += halted.eq(1)
