"""Proofs of the per-warp state of the sequencer: it changes only in the warp's own turns."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component

from hw import isa
from hw.config import MachineConfig
from hw.formal.bench import Bench, past
from hw.formal.proof import Proof, planted
from hw.formal.sequencer_faults import divides_for_others
from hw.formal.turns import Turns
from hw.rtl.core.alu import Divider
from hw.rtl.core.loops import AHEAD, LoopStack
from hw.rtl.core.registers import RegisterFile, register_bits

REGISTERS = {
    "reads_last_write": "a register of a warp reads as last written, or as 0 if it was cleared since, "
    "whatever is written for other warps; register 0 is never written",
}


def build_registers(bench: Bench, config: MachineConfig) -> None:
    """Follows an arbitrary register of an arbitrary warp at one of the five read ports.

    Assumption about the sequencer, which is in reset then: while registers are cleared, none is written, and
    the write data is 0 from the second cycle on.
    """
    dut = bench.add(RegisterFile(config), "dut")
    bits, sync = register_bits(config), bench.m.d.sync
    warp, number = bench.constant(range(config.warps), "warp"), bench.constant(bits, "number")
    reader = bench.constant(range(len(dut.numbers)), "reader")
    bench.assume((warp < config.warps) & (reader < len(dut.numbers)))
    bench.assume((dut.warp < config.warps) & (dut.target_warp < config.warps))
    bench.assume((dut.target < 1 << bits) & Cat(n < 1 << bits for n in dut.numbers).all())
    bench.assume(~dut.clear | ~dut.write)
    cleared = bench.past(dut.clear, "cleared")
    bench.assume(~(dut.clear & cleared) | (dut.data == 0))
    told, known = Signal(32, name="told"), Signal(name="known")
    writes = dut.write & (dut.target_warp == warp) & (dut.target == number) & (number != 0)
    with bench.m.If(writes):
        sync += [told.eq(dut.data), known.eq(1)]
    with bench.m.Elif(dut.clear & (dut.clear_index == Cat(number, warp))):
        sync += [told.eq(0), known.eq(cleared)]
    named = (dut.warp == warp) & (Value.cast(Array(dut.numbers)[reader]) == number)
    asked = bench.past(named & known, "asked")
    expected = bench.past(told, "told_past")
    value = Value.cast(Array(dut.values)[reader])
    bench.require("reads_last_write", ~asked | (value == expected))

    def kept() -> Value:
        rows = [bench.memory(dut, f"copy{i}")(Cat(number, warp)) for i in range(len(dut.numbers))]
        return ~known | (Value.cast(Array(rows)[reader]) == told)

    bench.invariant("kept", kept)


def _shares(m: Module, outer: Component, inner: Component) -> None:
    """Warp 1 writes the registers of warp 0."""
    m.d.comb += inner.target_warp.eq(Mux(outer.target_warp == 1, 0, outer.target_warp))


def _clears_late(m: Module, outer: Component, inner: Component) -> None:
    """The word after the named one is cleared."""
    m.d.comb += inner.clear_index.eq(outer.clear_index + 1)


LOOPS = {
    "full_shown": "in its turn, a warp sees whether all of its loops are open, whatever other warps do",
    "returns": "in its turn, a warp is told to return if and only if its innermost open loop ends with "
    "the instruction and has iterations left. It returns to the start of that loop, whatever other "
    "warps do",
}


class _Loop:
    """An open loop of the watched warp, as the bench knows it."""

    def __init__(self, bits: int, after_bits: int, name: str):
        self.start, self.after = Signal(bits, name=f"{name}_start"), Signal(after_bits, name=f"{name}_after")
        self.left = Signal(32, name=f"{name}_left")


def build_loops(bench: Bench, config: MachineConfig) -> None:
    """Models the loops of an arbitrary warp beside the machine.

    Assumptions about the sequencer: turns are round-robin; `behind_ahead` is `behind` of the next cycle; a
    loop opens with at least one iteration and only while one more may be open, and jumps open no loops;
    nothing happens in an idle turn.
    """
    bits = (config.imem_words - 1).bit_length()
    after_bits = max(bits, isa.layout("loop")["length"].width) + 1
    dut = bench.add(LoopStack(config, after_bits), "dut")
    turns, depth, sync = Turns(bench, config), config.loop_depth, bench.m.d.sync
    bench.assume((dut.warp == turns.warp()) & (dut.warp_ahead == turns.warp(AHEAD)))
    behind = bench.past(dut.behind_ahead, "behind_past")
    bench.assume(dut.behind == behind[:bits])
    bench.assume(~turns.idle | ~dut.go)
    bench.assume(~(dut.go & dut.push) | ((dut.count != 0) & ~dut.jump & ~dut.full))
    level = Signal(range(depth + 1), name="open_loops")
    loops = [_Loop(bits, after_bits, f"loop{i}") for i in range(depth)]

    def top(name: str) -> Value:
        return Value.cast(Array(getattr(loop, name) for loop in loops)[(level - 1)[: len(level)]])

    ended = bench.value((level != 0) & (top("after") == behind) & ~dut.jump & ~dut.push, "ended")
    returns = bench.value(ended & (top("left") != 1), "returns")
    done = bench.value(turns.own & dut.go, "done")
    with bench.m.If(done & dut.push):
        sync += level.eq(level + 1)
    with bench.m.Elif(done & ended & ~returns):
        sync += level.eq(level - 1)
    for i, loop in enumerate(loops):
        with bench.m.If(done & dut.push & (level == i)):
            sync += [loop.start.eq(dut.behind), loop.after.eq(dut.after), loop.left.eq(dut.count)]
        with bench.m.Elif(done & returns & (level == i + 1)):
            sync += loop.left.eq(loop.left - 1)
    bench.require("full_shown", ~turns.own | (dut.full == (level == depth)))
    to = (dut.back == returns) & (~returns | (dut.start == top("start")))
    bench.require("returns", ~turns.own | to)

    def kept() -> Value:
        place_bits = max(1, (depth - 1).bit_length())
        bounds, left = bench.memory(dut, "bounds"), bench.memory(dut, "left")
        right = [turns.state(dut, "level") == level, level <= depth]
        for i, loop in enumerate(loops):
            place = Cat(Const(i, place_bits), turns.watched)
            same = (bounds(place) == Cat(loop.start, loop.after)) & (left(place) == loop.left)
            right.append((level <= i) | (same & (loop.left != 0)))
        return Cat(*right).all()

    bench.invariant("kept", kept)


DIVIDER = {
    "divides_alone": "in the turns of a warp, the shared divider behaves like a divider that only this "
    "warp uses",
}


def build_divider(bench: Bench, config: MachineConfig) -> None:
    """Compares a divider for one arbitrary warp, enabled only in its turns, with the one for all warps."""
    dut = bench.add(Divider(config.derived.period), "dut")
    turns = Turns(bench, config)
    alone = Divider(1)
    bench.beside(alone, "alone", turns.own)
    for name in ("start", "quotient", "a", "b"):
        bench.m.d.comb += getattr(alone, name).eq(getattr(dut, name))
    same = (dut.done == alone.done) & (dut.result == alone.result)
    bench.require("divides_alone", ~turns.own | same)
    bench.invariant("same", lambda: turns.state(dut, "state") == bench.register(alone, "state0"))


def _opens_for_others(m: Module, outer: Component, inner: Component) -> None:
    """A loop that warp 1 opens takes the place of one of warp 0."""
    m.d.comb += inner.warp.eq(Mux(outer.warp == 1, 0, outer.warp))


def _looks_up_before(m: Module, outer: Component, inner: Component) -> None:
    """The innermost loop is read for the warp that had the previous turn."""
    m.d.comb += inner.warp_ahead.eq(past(m, outer.warp_ahead))


def _one_more(m: Module, outer: Component, inner: Component) -> None:
    """A loop makes one iteration too many."""
    m.d.comb += inner.count.eq(outer.count + 1)


def _full_for_all(m: Module, outer: Component, inner: Component) -> None:
    """The loops of a warp count as all open when those of the previous warp are."""
    m.d.comb += outer.full.eq(past(m, inner.full))


def proofs(config: MachineConfig) -> tuple[Proof, ...]:
    """The proofs about registers, loops and divisions, with their faults."""
    round_ = config.derived.period
    deep = config.replace(loop_depth=2)
    registers = (
        planted("register-shared", "reads_last_write", _shares, 6),
        planted("cleared-beside", "reads_last_write", _clears_late, 6),
    )
    loops = (
        planted("loop-shared", "returns", _opens_for_others, 3 * round_),
        planted("loop-of-another", "returns", _looks_up_before, 3 * round_),
        planted("iteration-more", "returns", _one_more, 3 * round_),
        planted("full-shared", "full_shown", _full_for_all, 3 * round_),
    )
    divider = (planted("division-of-another", "divides_alone", divides_for_others, 6),)
    return (
        Proof(
            "registers",
            "registers of the warps",
            REGISTERS,
            lambda b: build_registers(b, config),
            registers,
            2,
            10,
        ),
        Proof("loops", "loops of the warps", LOOPS, lambda b: build_loops(b, deep), loops, 4, 20),
        Proof(
            "divider", "divisions of the warps", DIVIDER, lambda b: build_divider(b, config), divider, 1, 14
        ),
    )
