"""Proof about a warp's sequencer: waits need tokens, offers keep, nothing goes on after an error."""

from __future__ import annotations

from unittest import mock

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data
from amaranth.lib.wiring import Component

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.formal.bench import Bench, blinking, past
from hw.formal.proof import Proof, planted
from hw.isa import STORED_BITS
from hw.rtl.core.alu import MultiplyDivide
from hw.rtl.core.decoder import known, stored
from hw.rtl.core.sequencer import Sequencer
from hw.rtl.core.signals import CHANNEL_BITS

STATEMENTS = {
    "wait_needs_token": "a token is taken only from a channel that shows one, and only by a `wait` that "
    "issues",
    "wait_takes": "a `wait` that issues takes its token: none passes without",
    "offer_is_stable": "an operation that is offered and not accepted is offered again, unchanged",
    "accepted_is_issued": "an operation is accepted in exactly the cycle in which its instruction issues, "
    "or errs and stops the machine",
    "pc_in_memory": "the pc is a place of the program memory, and an offer carries it",
    "names_exist": "an offer names an engine or parameter that there is, a fire and a take a channel",
    "nothing_after_error": "after an error the warp issues, offers and takes nothing more",
    "error_does_not_issue": "an instruction that is an error does not issue, and takes nothing",
    "nothing_while_stopped": "while the machine does not run the warp issues, offers, takes and fires "
    "nothing",
}


class _Slow(MultiplyDivide):
    """Stands in for multiplication and division: another result, after a number of cycles that may be any."""

    def elaborate(self, platform: object) -> Module:
        m = Module()
        count, result = Signal(3), Signal(len(self.result))
        with m.If(self.start):
            m.d.sync += [count.eq(Mux(self.b[:3] == 0, 1, self.b[:3])), result.eq(self.a ^ self.b)]
        with m.Elif(count != 0):
            m.d.sync += count.eq(count - 1)
        m.d.comb += [self.done.eq(count == 1), self.result.eq(Mux(self.done, result, 0))]
        return m


def build(bench: Bench, config: MachineConfig) -> None:
    """Any program: one place of the program memory, any one, holds one word, any one.

    What the others hold may be something else in every cycle. Statements about an instruction are about that
    of this place. What multiplication and division give does not matter: something simpler stands in.
    Assumed of the host: registers are cleared before `load`, which lasts two cycles, before a run; after an
    error the machine stops, and it does not run again before it is reset; of engines: completions only of
    operations that were issued; of queues: they accept only what is offered.
    """
    with mock.patch("hw.rtl.core.sequencer.MultiplyDivide", _Slow):
        dut = bench.add(Sequencer(config), "dut")
    issue, sync = dut.issue, bench.m.d.sync
    loads, failed = _surroundings(bench, dut)
    operations = Signal(6, name="operations")
    accepted = bench.value(issue.valid & issue.ready, "accepted")
    begins = bench.value(accepted & ~issue.sets, "begins")
    bench.assume(~dut.complete | (operations != 0))
    bench.assume(~begins | (operations < config.queue_depth + isa.TIMING.in_flight + 1))
    sync += operations.eq(operations + begins - dut.complete)
    place, word = _program(bench, dut, loads, failed, config)
    here = bench.value(dut.run & (dut.pc == place), "here")

    _tie(bench, dut, loads, failed, operations, config)
    opcode = {name: spec.opcode for name, spec in isa.INSTRUCTIONS.items()}
    executes = bench.value(dut.issued & ~dut.void, "executes")
    is_wait = bench.value(word[26:] == opcode["wait"], "is_wait")
    engines = [spec.opcode for spec in isa.INSTRUCTIONS.values() if spec.engine]
    sets = [opcode["param"], opcode["parami"]]
    offers = bench.value(Cat(word[26:] == code for code in [*engines, *sets]).any(), "offers")
    token = dut.tokens.bit_select(dut.take_channel, 1)
    channel = word[: len(dut.take_channel)]
    own = is_wait & (dut.take_channel == channel)
    bench.require("wait_needs_token", ~dut.take | (token & executes & (~here | own)))
    bench.require("wait_takes", ~(here & executes & is_wait) | dut.take)

    payload = Cat(
        issue.sets, issue.parameter, issue.engine, issue.variant, Value.cast(issue.values), issue.pc
    )
    held = bench.past(issue.valid & ~issue.ready, "held")
    unchanged = issue.valid & (payload == bench.past(payload, "payload_past"))
    bench.require("offer_is_stable", ~(held & dut.run) | unchanged)
    bench.require(
        "accepted_is_issued",
        (~here | ((accepted & ~dut.error) == (executes & offers))) & (~accepted | dut.run),
    )
    carried = ~issue.valid | (issue.pc == dut.pc)
    bench.require("pc_in_memory", (dut.pc < config.imem_words) & carried)
    uses = ((dut.fire, dut.fire_channel), (dut.take, dut.take_channel))
    channels_exist = Cat(~use | (number < config.channels) for use, number in uses).all()
    offer_exists = Mux(issue.sets, issue.parameter < len(isa.PARAMETERS), issue.engine < len(ENGINES))
    bench.require("names_exist", (~issue.valid | offer_exists) & channels_exist)
    bench.invariant("signals", lambda: _signals(bench, dut, config))

    active = dut.issued | issue.valid | dut.take
    bench.require("nothing_after_error", ~failed | ~(active | dut.error))
    bench.require("error_does_not_issue", ~dut.error | ~(dut.issued | dut.take))
    bench.require("nothing_while_stopped", dut.run | ~(active | dut.fire))


def _tie(
    bench: Bench, dut: Component, loads: Signal, failed: Signal, operations: Signal, config: MachineConfig
) -> None:
    """Invariants about slow instructions and about operations under way."""

    def slow() -> Value:
        # Only while a slow operation is under way is there something to come from it; results go to registers
        # that there are.
        slow, target, count = (bench.register(dut, n) for n in ("slow", "slow_target", "multiply/count"))
        late, written = (bench.register(dut, f"registers/{n}") for n in ("late", "target"))
        return (
            ((count == 0) | slow)
            & (~slow | bench.register(dut, "asleep"))
            & (
                failed
                | (
                    (~slow | (target < config.registers))
                    & ((loads == 0) | ~late | (written < config.registers))
                )
            )
        )

    bench.invariant("slow", slow)

    def counted() -> Value:
        outstanding, some = (bench.register(dut, f"pending/{n}") for n in ("outstanding", "some"))
        return failed | ((outstanding == operations) & (some == (operations != 0)))

    bench.invariant("operations", counted)


def _signals(bench: Bench, dut: Component, config: MachineConfig) -> Value:
    """Whether all signals that wait name channels that there are, and come as `signals` assumes."""
    queue = bench.queue(dut, "pending/queue", isa.TIMING.pending_signals)
    named = [queue.entry(queue.place(i))[:CHANNEL_BITS] for i in range(queue.depth)]
    exist = Cat((queue.level <= i) | (n < config.channels) for i, n in enumerate(named)).all()
    signal, operation, room = (bench.register(dut, n) for n in ("signal", "issue", "pending/room"))
    return queue.consistent & exist & ~(signal & (operation | ~room))


def _surroundings(bench: Bench, dut: Component) -> tuple[Signal, Signal]:
    """What the host does before, during and after a run.

    Returns how many cycles `load` has lasted, and whether there was an error.
    """
    sync, loads = bench.m.d.sync, Signal(2, name="loads")
    ran, failed = Signal(name="ran"), Signal(name="failed")
    sync += [ran.eq(ran | dut.run), loads.eq(loads + dut.load), failed.eq(failed | dut.error)]
    run_past, error_past = bench.past(dut.run, "run_past"), bench.past(dut.error, "error_past")
    bench.assume(~dut.load | (loads < 2))
    bench.assume(~dut.clear | ((loads == 0) & ~dut.load))
    bench.assume(~dut.run | (loads == 2))
    bench.assume(~(dut.run & ran) | run_past)
    bench.assume(~error_past | ~dut.run)
    bench.invariant("load_goes_first", lambda: (loads < 3) & (~ran | (loads == 2)))

    def idle() -> Value:
        return ran | ~Cat(bench.register(dut, n) for n in ("slow", "fetch/loops/level")).any()

    bench.invariant("before_the_run", idle)
    bench.invariant("stopped", lambda: ~failed | (ran & (error_past | ~run_past)))
    return loads, failed


def _program(
    bench: Bench, dut: Component, loads: Value, failed: Value, config: MachineConfig
) -> tuple[Signal, Signal]:
    """One place of the program memory and its word, which comes whenever that place is asked for."""
    sync, bits = bench.m.d.sync, len(dut.fetch_address)
    place, word = bench.constant(bits, "place"), bench.constant(32, "place_word")
    asked, asked_target, any_asked = Signal(bits, name="asked"), Signal(bits, name="asked_target"), Signal()
    with bench.m.If(dut.fetch):
        sync += [asked.eq(dut.fetch_address), asked_target.eq(dut.fetch_target), any_asked.eq(1)]
    kept = bench.value(stored(config, word), "place_stored")
    bench.assume(~any_asked | (asked != place) | (dut.word == kept))
    bench.assume(~any_asked | (asked_target != place) | (dut.target_word == kept))
    for other in (dut.word, dut.target_word):
        bench.assume(_is_stored(other, config))

    def fetched() -> Value:
        # What executes, and what is at the beginning of a loop, is what stands there in the program.
        pc, after = dut.pc[:bits], bench.register(dut, "fetch/after")
        level, top = (bench.register(dut, f"fetch/loops/{n}") for n in ("level", "top"))
        row = bench.memory(dut, "fetch/loops/bounds")
        layout = data.StructLayout({"start": bits, "after": len(after), "word": STORED_BITS})
        loops = [data.View(layout, row(i)) for i in range(config.loop_depth)]
        return (
            (any_asked == (loads != 0))
            & ((loads != 0) | (pc == config.imem_words - 2))
            & ((loads != 1) | (pc == config.imem_words - 1))
            & ((loads == 0) | ((asked == (pc + 1)[:bits]) & (asked_target == after[:bits])))
            & ((loads != 2) | (pc != place) | (bench.register(dut, "decoder/word") == kept))
            & (level <= config.loop_depth)
            & ((level == 0) | (top == (level - 1)[: len(top)]))
            & Cat((level <= i) | (at.start != place) | (at.word == kept) for i, at in enumerate(loops)).all()
            & Cat((level <= i) | _is_stored(at.word, config) for i, at in enumerate(loops)).all()
        )

    bench.invariant("fetched", lambda: failed | fetched())

    def decoded() -> Value:
        # What is known of the instruction that executes was worked out from its word.
        executing = bench.register(dut, "decoder/word")
        told = Cat(bench.register(dut, f"decoder/{n}") == v for n, v in known(executing).items()).all()
        return (loads == 0) | (told & (failed | _is_stored(executing, config)))

    bench.invariant("decoded", decoded)
    return place, word


def _is_stored(word: Value, config: MachineConfig) -> Value:
    """Whether a word is as program memories hold it."""
    return word == stored(config, word[: isa.WORD_BITS])


def _tokens_everywhere(m: Module, outer: Component, inner: Component) -> None:
    """A token of the channel below serves as well."""
    m.d.comb += inner.tokens.eq(outer.tokens | (outer.tokens << 1))


def _take_once(m: Module, outer: Component, inner: Component) -> None:
    """Of two waits in a row only the first takes its token."""
    m.d.comb += outer.take.eq(inner.take & ~past(m, inner.take))


def _asks_twice(m: Module, outer: Component, inner: Component) -> None:
    """What was accepted is offered again."""
    m.d.comb += outer.issue.valid.eq(inner.issue.valid | past(m, outer.issue.valid & outer.issue.ready))


def _other_parameter(m: Module, outer: Component, inner: Component) -> None:
    """An offer names a parameter that there is not."""
    m.d.comb += outer.issue.parameter.eq(inner.issue.parameter | 0x20)


def _pc_beyond(m: Module, outer: Component, inner: Component) -> None:
    """Behind the last word of the memory the pc counts on."""
    # The first word of the memory counts as the one behind its last.
    m.d.comb += outer.pc.eq(inner.pc | (inner.pc == 0) << len(inner.fetch_address))


def _next_channel(m: Module, outer: Component, inner: Component) -> None:
    """A signal fires the channel above its own."""
    m.d.comb += outer.fire_channel.eq(inner.fire_channel + 1)


def _error_issues(m: Module, outer: Component, inner: Component) -> None:
    """An instruction that is an error counts as issued."""
    m.d.comb += outer.issued.eq(inner.issued | inner.error)


def _runs_on(m: Module, outer: Component, inner: Component) -> None:
    """The warp runs on when the machine stops."""
    m.d.comb += inner.run.eq(1)


def _forgets_error(m: Module, outer: Component, inner: Component) -> None:
    """The instruction after an error issues."""
    m.d.comb += outer.issued.eq(inner.issued | past(m, inner.error))


def proof(config: MachineConfig) -> Proof:
    """The proof for the sequencer of a warp, with its faults."""
    blinks = blinking("An offer that is not accepted vanishes for a cycle.", "issue")
    faults = (
        planted("token-of-neighbour", "wait_needs_token", _tokens_everywhere, 6),
        planted("wait-for-free", "wait_takes", _take_once, 6),
        planted("offer-blinks", "offer_is_stable", blinks, 6),
        planted("issued-twice", "accepted_is_issued", _asks_twice, 6),
        planted("error-passed", "nothing_after_error", _forgets_error, 6),
        planted("parameter-unknown", "names_exist", _other_parameter, 6),
        planted("pc-unwrapped", "pc_in_memory", _pc_beyond, 6),
        planted("channel-unknown", "names_exist", _next_channel, 6),
        planted("error-issues", "error_does_not_issue", _error_issues, 6),
        planted("stop-ignored", "nothing_while_stopped", _runs_on, 6),
    )
    return Proof(
        "sequencer", "sequencer of a warp", STATEMENTS, lambda bench: build(bench, config), faults, 3, 10
    )
