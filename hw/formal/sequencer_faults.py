"""Faults to plant in the sequencer."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux
from amaranth.lib.wiring import Component

from hw.config import MachineConfig
from hw.formal.bench import altered, past
from hw.formal.proof import Fault, planted
from hw.rtl.core.alu import Divider
from hw.rtl.core.ring import Ring


def _long_round(m: Module, shape: Any, period: int, name: str, inits: list[Any]) -> Ring:
    """Every turn comes one cycle late."""
    return Ring(m, shape, period + 1, name, [*inits, inits[-1]])


def _keeps_turn(m: Module, outer: Component, inner: Component) -> None:
    """A warp that stalls on a `wait` also gets the next turn."""
    m.d.comb += outer.turn.eq(Mux(past(m, inner.stall_channel), past(m, inner.turn), inner.turn))


def _held_by_another(m: Module, outer: Component, inner: Component) -> None:
    """A `wait` that stalls also stalls the warp that has the next turn."""
    held = past(m, inner.stall_channel)
    m.d.comb += [
        outer.stall_channel.eq(inner.stall_channel | held),
        outer.issued.eq(inner.issued & ~held),
    ]


def _other_program(m: Module, outer: Component, inner: Component) -> None:
    """Warp 1 executes the program of warp 0."""
    m.d.comb += outer.fetch_warp.eq(Mux(inner.fetch_warp == 1, 0, inner.fetch_warp))


def _fetches_before(m: Module, outer: Component, inner: Component) -> None:
    """An instruction is fetched with the pc of the previous warp."""
    m.d.comb += outer.fetch_pc.eq(past(m, inner.fetch_pc))


def _moves_others(m: Module, outer: Component, inner: Component) -> None:
    """An instruction that issues also advances the pc of the warp that has the next turn."""
    m.d.comb += outer.pc.eq((inner.pc + past(m, inner.issued))[: len(inner.fetch_pc)])


def _operands_before(m: Module, outer: Component, inner: Component) -> None:
    """The first operand is that of the previous warp."""
    m.d.comb += outer.issue.values[0].eq(past(m, inner.issue.values[0]))


def divides_for_others(m: Module, outer: Component, inner: Component) -> None:
    """When a division starts, the warp that has the next turn writes a register."""
    m.d.comb += outer.done.eq(inner.done | past(m, outer.start))


def _asks_late(m: Module, outer: Component, inner: Component) -> None:
    """A warp asks for the channel of the previous warp."""
    m.d.comb += outer.ask.eq(past(m, inner.ask))


def _take_once(m: Module, outer: Component, inner: Component) -> None:
    """Of two consecutive waits of different warps, only the first takes its token."""
    m.d.comb += outer.take.eq(inner.take & ~past(m, inner.take))


def _any_room(m: Module, outer: Component, inner: Component) -> None:
    """An operation issues if any queue has room."""
    m.d.comb += inner.room.eq(outer.room.any().replicate(len(outer.room)))


def _issues_twice(m: Module, outer: Component, inner: Component) -> None:
    """An operation is issued again in the next turn, which belongs to another warp."""
    m.d.comb += outer.issue.valid.eq(inner.issue.valid | past(m, outer.issue.valid))


def _other_parameter(m: Module, outer: Component, inner: Component) -> None:
    """An issued parameter does not exist."""
    m.d.comb += outer.issue.parameter.eq(-1)


def _pc_beyond(m: Module, outer: Component, inner: Component) -> None:
    """The pc keeps counting after the last word of the memory."""
    # The first word of the memory is taken for one after the last.
    m.d.comb += outer.pc.eq(inner.pc | (inner.pc == 0) << len(inner.fetch_pc))


def _next_channel(m: Module, outer: Component, inner: Component) -> None:
    """A signal fires the channel with the next number."""
    m.d.comb += outer.fire_channel.eq(inner.fire_channel + 1)


def _error_issues(m: Module, outer: Component, inner: Component) -> None:
    """An instruction with an error counts as issued."""
    m.d.comb += outer.issued.eq(inner.issued | inner.error)


def _runs_on(m: Module, outer: Component, inner: Component) -> None:
    """Warps keep running when the machine stops."""
    m.d.comb += inner.run.eq(1)


def _all_run(m: Module, outer: Component, inner: Component) -> None:
    """All warps run, enabled or not."""
    m.d.comb += inner.enable.eq(-1)


def _forgets_error(m: Module, outer: Component, inner: Component) -> None:
    """The second instruction after an error issues."""
    m.d.comb += outer.issued.eq(inner.issued | past(m, past(m, inner.error)))


def _through_together(m: Module, outer: Component, inner: Component) -> None:
    """When one warp is finished, all are."""
    m.d.comb += outer.through.eq(inner.through.any().replicate(len(inner.through)))


def faults(config: MachineConfig) -> tuple[Fault, ...]:
    """All faults, each to be found within a few rounds of turns; the first round only fetches."""
    two, three = 2 * config.derived.period + 2, 3 * config.derived.period + 2
    ring, divider = "hw.rtl.core.sequencer.Ring", "hw.rtl.core.sequencer.Divider"
    return (
        planted("round-long", "turns_go_round", _long_round, two, ring),
        planted("turn-kept", "turns_go_round", _keeps_turn, two),
        planted("starved", "held_for_a_reason", _held_by_another, two),
        planted("program-of-another", "does_what_stands_there", _other_program, two),
        planted("fetch-late", "does_what_stands_there", _fetches_before, two),
        planted("pc-of-another", "goes_on", _moves_others, three),
        planted("operand-of-another", "operands_of_its_own", _operands_before, two),
        planted(
            "result-of-another", "results_in_its_turn", altered(Divider, divides_for_others), two, divider
        ),
        planted("token-of-neighbour", "wait_needs_token", _asks_late, two),
        planted("wait-for-free", "wait_takes", _take_once, two),
        planted("room-of-another", "nothing_without_room", _any_room, two),
        planted("issued-twice", "issued_once", _issues_twice, two),
        planted("error-passed", "nothing_after_error", _forgets_error, two),
        planted("parameter-unknown", "names_exist", _other_parameter, two),
        planted("pc-unwrapped", "pc_in_memory", _pc_beyond, two),
        planted("channel-unknown", "names_exist", _next_channel, two),
        planted("error-issues", "error_does_not_issue", _error_issues, two),
        planted("stop-ignored", "nothing_while_stopped", _runs_on, two),
        planted("enable-ignored", "nothing_while_stopped", _all_run, two),
        planted("through-together", "through_is_final", _through_together, three),
    )
