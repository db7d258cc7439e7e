"""The sequencer: executes the programs of all warps in round-robin turns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component, In, Out, Signature

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.isa import STORED_BITS
from hw.rtl.bits import log2, where
from hw.rtl.core.alu import MOVE_LOW, Alu, AluControl, Divider, Multiplier
from hw.rtl.core.decoder import REGISTER_FIELDS, Decoded, field, immediate, known, predicate_number
from hw.rtl.core.loops import AHEAD as LOOKED_UP
from hw.rtl.core.loops import LoopStack
from hw.rtl.core.registers import RegisterFile, register_words
from hw.rtl.core.ring import Ring
from hw.rtl.core.signals import AHEAD as OLDEST_READ
from hw.rtl.core.signals import CHANNEL_BITS, PendingSignals
from hw.rtl.interfaces import PC_BITS, warp_number

#: Index of the operand that supplies the value of `param`.
VALUE = REGISTER_FIELDS.index(isa.layout("param")["rs1"].low)
#: Pipeline stages, as cycles before the turn: the pc goes to the program memory; the word goes to the decoder
#: and the registers; the registers supply the operands; the operands are used.
FETCH, READ, VALUES, EXECUTE = 5, 3, 2, 1


class IssuePort(Signature):
    """What the current warp issues: an operation, or, with `sets`, a new value of a parameter.

    `values` are the operands at issue; entry `VALUE` is the new value of a parameter.
    """

    def __init__(self, config: MachineConfig) -> None:
        super().__init__(
            {
                "valid": Out(1),
                "sets": Out(1),
                "parameter": Out(range(len(isa.PARAMETERS))),
                "engine": Out(range(len(ENGINES))),
                "variant": Out(2),
                "values": Out(data.ArrayLayout(32, 4)),
                "warp": Out(warp_number(config)),
                "pc": Out(PC_BITS),
            }
        )


@dataclass(frozen=True)
class _Turn:
    """What the pipeline knows about the instruction of the current turn.

    `decoded` is the instruction (`coming`: one cycle earlier), `values` its operands, `new` the new value of
    a parameter, `result` the result of a move or single-cycle operation. `flags` say whether the predicate is
    `true`, the count of a loop `positive`, the divisor `zero`, an operand too `wide`; whether the warp is
    `alive` (neither halted nor dividing) and the instruction `able` to execute (`alive` and `true`); whether
    it is an `able` wait (`waits`) or engine operation (`operates`), and whether its engine is not that of the
    warp's latest operation (`other`).
    """

    coming: Any
    decoded: Any
    values: list[Signal]
    new: Signal
    flags: Any
    result: Value
    registers: RegisterFile
    multiplier: Multiplier
    divider: Divider


class Sequencer(Component):
    """Executes the programs of all warps in order, one instruction per turn unless it is held.

    Turns are round-robin: each warp has one every `period` cycles, and the instruction of a turn leaves the
    pipeline before the next turn of its warp enters it. So there is no forwarding, speculation or flush.

    While `clear` is 1 the sequencer must be in reset. Word `clear_index` of the registers becomes 0, and
    `clear_index` must address all of them. Warp 0 has its turn `period` cycles after a reset. `run` lets the
    warps in `enable` execute; `enable` must be stable from the cycle before `run` on.

    `room` says which queues have room. `token` says whether the channel selected by `ask` in the previous
    cycle holds a token, and `take` removes it. `turn` is the warp that has its turn and `pc` its instruction,
    unless the turn is `idle`. `error` stops the machine with `cause`; the sequencer's state after an error is
    don't-care. `moves` is `issued`, and is also 1 with some errors. `through` marks the warps that have
    halted and have nothing pending.

    **Timing.** docs/machine.md, "Warps".
    """

    def __init__(self, config: MachineConfig):
        self._config = config
        warp, bits = warp_number(config), log2(config.imem_words)
        super().__init__(
            {
                "clear": In(1),
                "clear_index": In(range(register_words(config))),
                "run": In(1),
                "enable": In(config.warps),
                "fetch_warp": Out(warp),
                "fetch_pc": Out(bits),
                "word": In(STORED_BITS),
                "room": In(len(ENGINES)),
                "issue": Out(IssuePort(config)),
                "complete": In(config.warps),
                "ask": Out(CHANNEL_BITS),
                "token": In(1),
                "take": Out(1),
                "fire": Out(1),
                "fire_channel": Out(CHANNEL_BITS),
                "fire_pc": Out(PC_BITS),
                "turn": Out(warp),
                "idle": Out(1),
                "pc": Out(PC_BITS),
                "issued": Out(1),
                "void": Out(1),
                "moves": Out(1),
                "error": Out(1),
                "cause": Out(8),
                "through": Out(config.warps),
                "stall_channel": Out(1),
                "stall_engine": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        c = self._config
        period = c.derived.period
        # Turns beyond the last warp are idle.
        context = data.StructLayout(
            {
                "warp": warp_number(c),
                "idle": 1,
                "pc": log2(c.imem_words),
                "halted": 1,
                "divides": 1,
                "target": isa.PREDICATE_BITS,
                "engine": range(len(ENGINES)),  # the engine of the operations that are not complete
            }
        )
        inits = [{"warp": w} if w < c.warps else {"idle": 1} for w in range(period)]
        ring = Ring(m, context, period, "context", inits)
        now = ring.now
        turn = self._pipeline(m, ring)
        decoded, values, flags = turn.decoded, turn.values, turn.flags

        m.submodules.pending = pending = PendingSignals(c)
        runs, alive, active = Signal(), Signal(), Signal()
        enabled = Signal(name="enabled")  # whether the warp that has its turn is enabled
        m.d.sync += enabled.eq(self.enable.bit_select(ring.ahead(1).warp, 1))
        held, go, signals = Signal(), Signal(), Signal()
        m.d.comb += [
            runs.eq(self.run & enabled & ~now.idle),
            alive.eq(runs & flags.alive),
            active.eq(runs & flags.able),
            self.turn.eq(now.warp),
            self.idle.eq(now.idle),
            self.pc.eq(now.pc),
            go.eq(alive & ~held),
            self.moves.eq(go | (runs & now.divides)),
            self.issued.eq(go & ~self.error),
            self.void.eq(self.issued & ~flags.true),
            held.eq(self._holds(m, now, turn, pending, runs)),
            self.issue.values.eq(Cat(*values[:VALUE], turn.new, *values[VALUE + 1 :])),
            signals.eq(active & decoded.is_signal & pending.room),
            self.ask.eq(field(turn.coming.word, "wait", "channel")),
            pending.warp_ahead.eq(ring.ahead(OLDEST_READ).warp),
            pending.warp_next.eq(ring.ahead(EXECUTE).warp),
            pending.warp.eq(now.warp),
            pending.runs.eq(runs),
            pending.issue.eq(self.issue.valid & ~self.issue.sets),
            pending.signal.eq(signals),
            pending.channel.eq(field(decoded.word, "signal", "channel")),
            pending.pc.eq(now.pc),
            pending.complete.eq(self.complete),
            self.fire.eq(pending.fire),
            self.fire_channel.eq(pending.fire_channel),
            self.fire_pc.eq(pending.fire_pc),
        ]
        with m.If(now.halted & ~now.idle & ~pending.some & pending.empty):
            m.d.sync += self.through.bit_select(now.warp, 1).eq(1)
        too_deep = self._next(m, ring, turn, go)
        self._write(m, ring, turn, active)
        with m.If(alive & ~decoded.legal):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.ILLEGAL_INSTRUCTION)]
        with m.Elif(alive & too_deep):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.LOOP_DEPTH)]
        with m.Elif(active & flags.zero):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.DIVIDE_BY_ZERO)]
        with m.Elif(active & flags.wide.any()):
            m.d.comb += [self.error.eq(1), self.cause.eq(isa.Cause.OPERAND)]
        return m

    def _pipeline(self, m: Module, ring: Ring) -> _Turn:
        """The stages before the turn."""
        m.submodules.registers = registers = RegisterFile(self._config)
        word, coming = Signal(STORED_BITS), Signal(Decoded, name="coming")
        m.d.sync += [word.eq(self.word), *[coming[name].eq(value) for name, value in known(word).items()]]
        numbers = [word[low : low + isa.PREDICATE_BITS] for low in REGISTER_FIELDS]
        m.d.comb += [
            self.fetch_warp.eq(ring.ahead(FETCH).warp),
            self.fetch_pc.eq(ring.ahead(FETCH).pc),
            registers.warp.eq(ring.ahead(READ).warp),
            *[registers.numbers[i].eq(n) for i, n in enumerate([*numbers, predicate_number(word)])],
        ]
        # In the stage EXECUTE: the instruction, its operands, the right operand of a binary operation.
        decoded, right, guard = Signal(Decoded, name="decoded"), Signal(32), Signal(32)
        values = [Signal(32, name=f"operand{i}") for i in range(len(numbers))]
        second = registers.values[REGISTER_FIELDS.index(isa.layout("add")["rs2"].low)]
        m.d.sync += [
            decoded.eq(coming),
            right.eq(Mux(coming.use_imm, immediate(coming), second)),
            guard.eq(registers.values[len(numbers)]),
            *[value.eq(registers.values[i]) for i, value in enumerate(values)],
        ]
        m.submodules.multiplier = multiplier = Multiplier()
        m.submodules.divider = divider = Divider(self._config.derived.period)
        later = [_kept(m, value) for value in values]
        result = self._scalar(m, decoded, values, right, later)
        new, wide = self._operands(m, decoded, values)
        left = _operand(values, "add", "rs1")
        names = ("true", "positive", "zero", "alive", "able", "waits", "operates", "other")
        flags = Signal(data.StructLayout(dict.fromkeys(names, 1) | {"wide": len(wide)}))
        true, alive, able = Signal(), Signal(), Signal()
        context = ring.ahead(EXECUTE)
        m.d.comb += [
            true.eq(guard.any() == decoded.word[isa.SENSE_LOW]),
            alive.eq(~(context.idle | context.halted | context.divides)),
            able.eq(alive & true),
        ]
        m.d.sync += [
            flags.true.eq(true),
            flags.positive.eq(left.any() & ~left[-1]),
            flags.zero.eq(decoded.is_divide & ~right.any()),
            flags.wide.eq(wide),
            flags.alive.eq(alive),
            flags.able.eq(able),
            flags.waits.eq(able & decoded.is_wait),
            flags.operates.eq(able & decoded.is_engine),
            flags.other.eq(context.engine != decoded.engine),
        ]
        m.d.comb += [multiplier.a.eq(left), multiplier.b.eq(right)]
        m.d.sync += [divider.a.eq(left), divider.b.eq(right)]
        now = _kept(m, decoded)
        return _Turn(decoded, now, later, _kept(m, new), flags, result, registers, multiplier, divider)

    def _scalar(
        self, m: Module, decoded: Any, values: list[Signal], right: Signal, later: list[Signal]
    ) -> Value:
        """The result of a move or single-cycle operation, one cycle later."""
        m.submodules.alu = alu = Alu()
        left, shifted = _operand(values, "add", "rs1"), _operand(values, "lih", "rd")
        chosen, otherwise = Signal(), Signal()
        m.d.comb += [
            chosen.eq(left.any()),
            alu.enable.eq(decoded.is_binary),
            alu.move_low.eq(decoded.is_li | decoded.is_lih),
            alu.move_high.eq(decoded.is_li),
            *[alu.control[name].eq(decoded[f"alu_{name}"]) for name, _ in AluControl],
            alu.a.eq(left),
            alu.b.eq(right),
            alu.takes.eq(decoded.is_select & chosen),
            alu.other.eq(where(decoded.is_lih, Cat(Const(0, MOVE_LOW), shifted[: 32 - MOVE_LOW]))),
        ]
        m.d.sync += otherwise.eq(decoded.is_select & ~chosen)
        # Each is 0 where it is not the result.
        return alu.result | where(otherwise, _operand(later, "select", "rs3"))

    def _holds(self, m: Module, now: Any, turn: _Turn, pending: PendingSignals, runs: Signal) -> Value:
        """Drives `issue`; returns whether the instruction must wait for a token, a queue or an operation."""
        decoded, flags = turn.decoded, turn.flags
        waits, room, waits_more = Signal(), Signal(), Signal()
        m.d.comb += [
            waits.eq(runs & flags.waits),
            room.eq(self.room.bit_select(decoded.engine, 1) & ~(flags.other & pending.some)),
            self.take.eq(waits & self.token),
            self.issue.sets.eq(decoded.is_param | decoded.is_parami),
            self.issue.valid.eq(runs & ((flags.able & self.issue.sets) | (flags.operates & room))),
            self.issue.parameter.eq(field(decoded.word, "param", "parameter")),
            self.issue.engine.eq(decoded.engine),
            self.issue.variant.eq(decoded.variant),
            self.issue.warp.eq(now.warp),
            self.issue.pc.eq(now.pc),
            self.stall_channel.eq(waits & ~self.token),
            waits_more.eq((flags.able & decoded.is_signal & ~pending.room) | (flags.operates & ~room)),
            self.stall_engine.eq(runs & waits_more),
        ]
        return (flags.waits & ~self.token) | waits_more

    def _next(self, m: Module, ring: Ring, turn: _Turn, go: Signal) -> Value:
        """Updates the pc; returns whether the instruction opens more loops than the stack can hold."""
        decoded, flags, word = turn.decoded, turn.flags, turn.coming.word
        now, then, coming = ring.now, ring.then, ring.ahead(EXECUTE)
        bits = len(now.pc)
        length, offset = isa.layout("loop")["length"], isa.layout("jump")["offset"]
        # The end of a loop may lie beyond the program memory; such a loop never ends.
        after_bits = max(bits, length.width) + 1
        m.submodules.loops = loops = LoopStack(self._config, after_bits)
        jumps, opens, behind, after = Signal(), Signal(), Signal(bits), Signal(after_bits)
        behind_coming, further = Signal(bits + 1), Signal(after_bits)
        m.d.comb += [
            behind_coming.eq(coming.pc + 1),
            further.eq(Mux(turn.coming.is_jump, word[: offset.width], word[: length.width])),
            jumps.eq(flags.true & (decoded.is_jump | (decoded.is_loop & ~flags.positive))),
            opens.eq(flags.true & decoded.is_loop & flags.positive),
            loops.warp_ahead.eq(ring.ahead(LOOKED_UP).warp),
            loops.behind_ahead.eq(behind_coming),
            loops.warp.eq(now.warp),
            loops.behind.eq(behind),
            loops.go.eq(go),
            loops.jump.eq(jumps),
            loops.push.eq(opens),
            loops.after.eq(after),
            loops.count.eq(_operand(turn.values, "loop", "rs1")),
        ]
        m.d.sync += [behind.eq(behind_coming), after.eq(behind_coming + further)]
        with m.If(go):
            m.d.comb += then.pc.eq(Mux(jumps, after[:bits], Mux(loops.back, loops.start, behind)))
        with m.If(self.issue.valid & ~self.issue.sets):
            m.d.comb += then.engine.eq(decoded.engine)
        return loops.full & opens

    def _write(self, m: Module, ring: Ring, turn: _Turn, active: Signal) -> None:
        """Writes the result in the cycle after the turn; starts divisions and halts the warp."""
        now, then, decoded = ring.now, ring.then, turn.decoded
        registers, divider = turn.registers, turn.divider
        rd = field(decoded.word, "li", "rd")
        moves = decoded.is_li | decoded.is_lih | decoded.is_select
        m.d.comb += [
            divider.start.eq(active & decoded.is_divide),
            divider.quotient.eq(decoded.is_quotient),
            registers.clear.eq(self.clear),
            registers.clear_index.eq(self.clear_index),
        ]
        m.d.sync += [
            registers.write.eq(divider.done | (active & ((decoded.is_binary & ~decoded.is_divide) | moves))),
            registers.target_warp.eq(now.warp),
            registers.target.eq(Mux(now.divides, now.target, rd)),
            registers.data.eq(
                Mux(
                    now.divides,
                    divider.result,
                    Mux(decoded.is_multiply, turn.multiplier.product, turn.result),
                )
            ),
        ]
        with m.If(active & decoded.is_halt):
            m.d.comb += then.halted.eq(1)
        with m.If(divider.start):
            m.d.comb += [then.divides.eq(1), then.target.eq(rd)]
        with m.Elif(divider.done):
            m.d.comb += then.divides.eq(0)

    def _operands(self, m: Module, decoded: Any, values: list[Signal]) -> tuple[Signal, Value]:
        """The new value of a parameter, and one bit for each way in which a value exceeds its field."""
        new = Signal(32, name="new")
        parameter = field(decoded.word, "param", "parameter")
        m.d.comb += new.eq(
            Mux(decoded.is_parami, field(decoded.word, "parami", "imm").as_signed(), values[VALUE])
        )
        sets = decoded.is_param | decoded.is_parami
        wide = [sets & excess for excess in self._exceeds_parameter(m, parameter, new)]
        specs = {name: isa.of_engine(name)[0].operands for name in ENGINES}
        for i, value in enumerate(values):
            for bits in sorted({operands[i].bits for operands in specs.values()} - {32}):
                engines = [e for e, name in enumerate(ENGINES) if specs[name][i].bits == bits]
                excess = Signal(name=f"excess{i}_{bits}")
                m.d.comb += excess.eq(value[bits:].any())
                wide.append(decoded.is_engine & Cat(decoded.engine == e for e in engines).any() & excess)
        return new, Cat(*wide)

    @staticmethod
    def _exceeds_parameter(m: Module, parameter: Value, new: Value) -> list[Value]:
        """Whether a value is too wide for the parameter, one bit for each width that parameters have."""
        wide = []
        for bits in sorted({p.bits for p in isa.PARAMETERS.values()} - {32}):
            numbers = [p.index for p in isa.PARAMETERS.values() if p.bits == bits]
            excess = Signal(name=f"excess_parameter_{bits}")
            m.d.comb += excess.eq(new[bits:].any())
            wide.append(excess & Cat(parameter == n for n in numbers).any())
        return wide


def _operand(values: list[Signal], instruction: str, name: str) -> Signal:
    """The operand in the register named by a field of an instruction."""
    return values[REGISTER_FIELDS.index(isa.layout(instruction)[name].low)]


def _kept(m: Module, value: Any) -> Any:
    """The value of a signal in the previous cycle."""
    before = Signal(value.shape(), name=f"{Value.cast(value).name}_now")
    m.d.sync += before.eq(value)
    return before
