"""Proof of the pending signals: they fire in order, once, never early and never late."""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component

from hw import isa
from hw.config import MachineConfig
from hw.formal.bench import Bench, past
from hw.formal.proof import Proof, planted
from hw.formal.turns import Turns
from hw.rtl.core.signals import AHEAD, CHANNEL_BITS, COUNT_BITS, PendingSignals
from hw.rtl.interfaces import PC_BITS

STATEMENTS = {
    "fires_are_signals": "a warp fires no more signals than it has issued, and only in its own turns; "
    "no more signals are pending than there is room for",
    "fires_in_its_turn": "the oldest pending signal of a warp fires in exactly the first turn in which "
    "all operations that the warp issued before it were complete in an earlier cycle, whatever other "
    "warps do",
    "fires_itself": "the channel and pc that fire are those of the oldest pending signal of the warp "
    "whose turn it is",
    "counts_shown": "in a warp's turn, `some`, `room` and `empty` reflect its outstanding operations "
    "and pending signals, whatever other warps do",
}


def build(bench: Bench, config: MachineConfig) -> None:
    """Follows an arbitrary signal of an arbitrary warp from its issue to its fire.

    Assumptions about the sequencer: turns are round-robin, and in its turn a running warp issues one
    instruction, a signal only if there is room. Assumptions about the engines: only operations that the warp
    has issued complete, and no more are outstanding than a queue and an engine hold. Other warps and their
    completions may do anything.
    """
    dut = bench.add(PendingSignals(config), "dut")
    turns = Turns(bench, config)
    depth = isa.TIMING.pending_signals
    sync = bench.m.d.sync
    operations, waiting = Signal(COUNT_BITS, name="operations"), Signal(range(depth + 2), name="waiting")
    issues = bench.value(turns.own & dut.issue, "issues")
    signals = bench.value(turns.own & dut.signal, "signals")
    fires = bench.value(turns.own & dut.fire, "fires")
    completes = bench.value(dut.complete.bit_select(turns.watched, 1), "completes")
    bench.assume((dut.warp == turns.warp()) & (dut.warp_ahead == turns.warp(AHEAD)))
    bench.assume(dut.warp_next == turns.warp(1))
    bench.assume(~turns.idle | ~dut.runs)
    bench.assume(dut.runs | ~(dut.issue | dut.signal))
    bench.assume(~(dut.issue & dut.signal))
    bench.assume(~dut.signal | dut.room)
    bench.assume(~completes | (operations != 0))
    bench.assume(~issues | (operations < _most(config)))
    sync += [operations.eq(operations + issues - completes), waiting.eq(waiting + signals - fires)]

    pick = bench.free(1, "pick")
    watching = Signal(name="watching")
    ahead, needs = Signal(range(depth + 1), name="ahead"), Signal(COUNT_BITS, name="needs")
    channel, pc = Signal(CHANNEL_BITS, name="watched_channel"), Signal(PC_BITS, name="watched_pc")
    here = bench.value(watching | (pick & signals), "here")
    before = bench.value(Mux(watching, ahead, waiting), "before")
    owed = bench.value(Mux(watching, needs, operations), "owed")
    turn = bench.value(here & turns.own & dut.runs & (before == 0), "turn")
    expected_channel = Mux(watching, channel, dut.channel)
    expected_pc = Mux(watching, pc, dut.pc)
    sync += [
        watching.eq(here & ~(turn & dut.fire)),
        needs.eq(owed - (completes & (owed != 0))),
        ahead.eq(before - fires),
    ]
    with bench.m.If(~watching):
        sync += [channel.eq(dut.channel), pc.eq(dut.pc)]

    bench.require(
        "fires_are_signals",
        (~fires | (waiting != 0) | signals) & (waiting <= depth) & (~dut.fire | dut.runs),
    )
    bench.require("fires_in_its_turn", ~turn | (dut.fire == (owed == 0)))
    itself = (dut.fire_channel == expected_channel) & (dut.fire_pc == expected_pc)
    bench.require("fires_itself", ~(turn & dut.fire) | itself)
    shown = (dut.room == (waiting != depth)) & (dut.empty == (waiting == 0)) & (dut.some == (operations != 0))
    bench.require("counts_shown", ~turns.own | shown)

    followed = _Followed(watching, ahead, needs, channel, pc)
    bench.invariant("queue", lambda: _tied(bench, dut, turns, config, operations, waiting, followed))


@dataclass(frozen=True)
class _Followed:
    """The followed signal: whether there is one, how many are ahead of it, what it needs, what it is."""

    watching: Value
    ahead: Value
    needs: Value
    channel: Value
    pc: Value


def _tied(
    bench: Bench,
    dut: PendingSignals,
    turns: Turns,
    config: MachineConfig,
    operations: Value,
    waiting: Value,
    followed: _Followed,
) -> Value:
    """The invariant of the watched warp's entries and counts.

    The number of completions that an entry waits for grows from the oldest to the youngest. Once the i-th
    entry waits in vain, the warp issues no more operations than the turns that this entry and the i before it
    take to fire.
    """
    depth, most = isa.TIMING.pending_signals, _most(config)
    state = turns.state(dut, "state", bench.view(dut, "now").shape())
    completed = [bench.register(dut, f"completed{w}") for w in range(config.warps)]
    done = Value.cast(Array(completed)[turns.watched])
    row, layout = bench.memory(dut, "entries"), bench.view(dut, "oldest").shape()

    def entry(number: Value | int) -> data.View:
        return data.View(layout, row(Cat((state.oldest + number)[: len(state.oldest)], turns.watched)))

    def owes(entry: data.View) -> Value:
        return Value.cast(entry.needs - done)[:COUNT_BITS].as_signed()

    entries = [entry(i) for i in range(depth)]
    ordered = []
    for i, one in enumerate(entries):
        following = operations if i == depth - 1 else Mux(waiting > i + 1, owes(entries[i + 1]), operations)
        later = operations - owes(one)  # operations issued after it
        ordered.append((waiting <= i) | ((owes(one) <= following) & (later <= most + depth - 1 - i)))
    f, one = followed, entry(followed.ahead)
    needs = Mux(owes(one) > 0, owes(one) == f.needs, f.needs == 0)
    mine = (one.channel == f.channel) & needs & (one.pc == f.pc)
    return (
        (state.count == waiting)
        & (Value.cast(state.issued - done)[:COUNT_BITS] == operations)
        & (operations <= most)
        & Cat(*ordered).all()
        & (~f.watching | ((f.ahead < waiting) & (f.needs <= operations) & mine))
    )


def _most(config: MachineConfig) -> int:
    """Maximum number of outstanding operations of a warp."""
    return config.queue_depth + isa.TIMING.in_flight + 1


def _issue_uncounted(m: Module, outer: Component, inner: Component) -> None:
    """An operation that is issued behind a pending signal is not counted."""
    m.d.comb += inner.issue.eq(outer.issue & outer.empty)


def _counts_twice(m: Module, outer: Component, inner: Component) -> None:
    """A completion counts twice."""
    m.d.comb += inner.complete.eq(outer.complete | past(m, outer.complete))


def _counts_for_neighbour(m: Module, outer: Component, inner: Component) -> None:
    """A completion also counts for the warp with the next number."""
    m.d.comb += inner.complete.eq(outer.complete | outer.complete << 1)


def _fires_again(m: Module, outer: Component, inner: Component) -> None:
    """A signal fires again in the next turn, which belongs to another warp."""
    m.d.comb += outer.fire.eq(inner.fire | past(m, inner.fire))


def _fires_between(m: Module, outer: Component, inner: Component) -> None:
    """A signal that is due fires in the next cycle, whichever warp has its turn."""
    m.d.comb += outer.fire.eq(past(m, inner.fire))


def _youngest(m: Module, outer: Component, inner: Component) -> None:
    """The youngest pending signal fires first."""
    newest = Signal(CHANNEL_BITS)
    with m.If(outer.signal):
        m.d.sync += newest.eq(outer.channel)
    m.d.comb += outer.fire_channel.eq(Mux(inner.empty, inner.fire_channel, newest))


def _for_all(m: Module, outer: Component, inner: Component) -> None:
    """An operation counts for the warp that has the next turn."""
    m.d.comb += inner.issue.eq(past(m, outer.issue))


def proof(config: MachineConfig) -> Proof:
    """The proof for the pending signals of all warps, with its faults."""
    rounds = 3 * config.derived.period
    faults = (
        planted("completion-doubled", "fires_in_its_turn", _counts_twice, rounds),
        planted("completion-of-neighbour", "fires_in_its_turn", _counts_for_neighbour, rounds),
        planted("fires-twice", "fires_are_signals", _fires_again, rounds),
        planted("fires-between", "fires_are_signals", _fires_between, rounds),
        planted("order-swapped", "fires_itself", _youngest, rounds),
        planted("issue-uncounted", "counts_shown", _issue_uncounted, rounds + 2),
        planted("issue-of-neighbour", "counts_shown", _for_all, rounds),
    )
    return Proof(
        "signals",
        "pending signals of the warps",
        STATEMENTS,
        lambda bench: build(bench, config),
        faults,
        4,
        14,
    )
