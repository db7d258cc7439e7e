"""Proof of the sequencer: turns are round-robin, and each turn executes the instruction at the warp's pc."""

from __future__ import annotations

from collections.abc import Callable

from amaranth.hdl import Cat, Mux, Signal, Value

from hw import isa
from hw.config import ENGINES, MachineConfig
from hw.formal import sequencer_faults, sequencer_ties
from hw.formal.bench import Bench
from hw.formal.proof import Proof
from hw.formal.watch import OPCODE, Model, Watch
from hw.rtl.core.decoder import REGISTER_FIELDS, Sort, field, predicate_number, sort_of
from hw.rtl.core.sequencer import READ, VALUE

STATEMENTS = {
    "turns_go_round": "every warp has one turn in each `period` cycles, whatever the warps do; nothing "
    "happens in turns that belong to no warp",
    "held_for_a_reason": "a warp that has not halted and is not dividing issues or raises an error in "
    "its turn, unless its own instruction stalls. These stall: a `wait` without a token, a `signal` "
    "while the maximum number is pending, and an operation without room in its queue or while another of "
    "the warp is outstanding",
    "does_what_stands_there": "what a warp issues, takes and signals in its turn, and whether its "
    "instruction is illegal, follows from the word at its pc in its own program",
    "goes_on": "a warp starts at pc 0, and its pc stays until its instruction issues. Then it advances, "
    "follows its jump or loop, or returns to the start of the innermost loop if that ends there. "
    "Loops open only with at least one iteration, and only while one more may be open",
    "operands_of_its_own": "the operands and predicate of what issues are the values that the named "
    "registers of its warp held three cycles before the turn",
    "results_in_its_turn": "a register of a warp is written in exactly the cycle after a turn in which "
    "an instruction with a result executed or a division finished. It is the register that the "
    "instruction names, and no register of the warp is read in that cycle",
    "wait_needs_token": "only a `wait` that issues takes a token, and only from a channel that shows one",
    "wait_takes": "every `wait` that issues takes its token",
    "nothing_without_room": "an operation issues only when the queue of its engine has room",
    "issued_once": "an operation or parameter leaves the sequencer in exactly the turn in which its "
    "instruction issues, or raises an error and stops the machine",
    "pc_in_memory": "the pc lies within the program memory, and everything that is issued carries its "
    "own pc and warp",
    "names_exist": "what is issued names an existing engine or parameter; fires and takes name existing "
    "channels",
    "nothing_after_error": "after an error, its warp issues and takes nothing more, and from the third "
    "cycle on no other warp does",
    "error_does_not_issue": "an instruction with an error does not issue and takes no token",
    "nothing_while_stopped": "a warp that is not running issues, takes and fires nothing",
    "through_is_final": "a finished warp issues, takes and fires nothing more, and has no outstanding "
    "operations",
}
_ENGINES = tuple(name for name, spec in isa.INSTRUCTIONS.items() if spec.engine)
_DIVIDES = ("div", "divi", "rem", "remi")
_RESULTS = tuple(n for n, s in isa.INSTRUCTIONS.items() if s.semantics is not None and n not in _DIVIDES)


def build(bench: Bench, config: MachineConfig) -> None:
    """Any program of an arbitrary warp, with an arbitrary word at one arbitrary address.

    The words at other addresses, and the programs of other warps, may differ in every cycle. Statements about
    an instruction concern the one at this address. The results of multiplications do not matter, so a simpler
    function replaces the multiplier. Assumptions about the host: a reset, `period` cycles in which no warp
    runs, then one run of the enabled warps, which ends three cycles after an error. Assumption about engines:
    only operations that the warp has issued complete.
    """
    watch = Watch(bench, config)
    dut, turns, word, here = watch.dut, watch.turns, watch.word, watch.here
    active = dut.issued | dut.issue.valid | dut.take
    goes = _turns(bench, watch)
    _instruction(bench, watch)
    goes_on = _next(bench, watch)
    names, values = _operands(bench, watch)
    left, target = _results(bench, watch, goes)

    is_wait = watch.is_any("wait")
    asked = bench.past(dut.ask, "asked_channel")
    own = is_wait & (asked == word[: len(asked)])
    bench.require("wait_needs_token", ~dut.take | (dut.token & watch.executes & (~here | own)))
    bench.require("wait_takes", ~(here & watch.executes & is_wait) | dut.take)
    uses = ((turns.own & dut.fire, dut.fire_channel), (dut.take, asked))
    channels_exist = Cat(~use | (number < config.channels) for use, number in uses).all()
    issue = dut.issue
    exists = Mux(issue.sets, issue.parameter < len(isa.PARAMETERS), issue.engine < len(ENGINES))
    bench.require("names_exist", (~issue.valid | exists) & channels_exist)
    carried = ~issue.valid | ((issue.pc == dut.pc) & (issue.warp == dut.turn))
    bench.require("pc_in_memory", (dut.pc < config.imem_words) & carried)

    erred = Signal(name="erred")  # the watched warp had an error
    bench.m.d.sync += erred.eq(erred | (turns.own & dut.error))
    after = (erred & turns.own) | watch.over
    bench.require("nothing_after_error", ~after | ~(active | dut.error))
    # Its next turn comes more than two cycles after the one with the error.
    late = turns.wait() >= config.derived.period - Mux(watch.failed_before, 2, 1)
    bench.invariant("erred", lambda: ~erred | (watch.failed & (watch.over | late)))
    bench.require("error_does_not_issue", ~dut.error | ~(dut.issued | dut.take))
    enabled = dut.enable.bit_select(dut.turn, 1)
    run = bench.value(~turns.idle & dut.run & enabled, "turn_runs")
    bench.require("nothing_while_stopped", run | ~(active | dut.error | dut.fire))
    through = dut.through.bit_select(turns.watched, 1)
    ended = (watch.operations == 0) & ~(turns.own & (active | dut.fire))
    bench.require("through_is_final", ~through | ended)
    model = Model(goes, erred, goes_on, names, values, left, target)
    for name, condition in sequencer_ties.invariants(bench, config, watch, model).items():
        bench.invariant(name, condition)


def _turns(bench: Bench, watch: Watch) -> Signal:
    """Whose turn it is, and what may hold the warp; returns whether the watched warp surely continues."""
    dut, turns = watch.dut, watch.turns
    stalls = bench.value(dut.stall_channel | dut.stall_engine, "stalls")
    happens = Cat(dut.issued, dut.issue.valid, dut.take, dut.fire, dut.error, stalls).any()
    bench.require(
        "turns_go_round", (dut.turn == turns.warp()) & (dut.idle == turns.idle) & ~(turns.idle & happens)
    )
    room = Signal(name="room_for_it")
    for e, name in enumerate(ENGINES):
        with bench.m.If(watch.is_any(*(s.name for s in isa.of_engine(name)))):
            bench.m.d.comb += room.eq(dut.room[e])
    behind = watch.is_any(*_ENGINES) & (~room | (watch.operations != 0))
    full = watch.is_any("signal") & (watch.waiting == isa.TIMING.pending_signals)
    reason = Mux(dut.stall_channel, watch.is_any("wait") & ~dut.token, full | behind)
    # Whether the watched warp has certainly neither halted nor is dividing.
    goes, pauses = Signal(init=1, name="goes"), watch.is_any("halt", *_DIVIDES)
    with bench.m.If(turns.own & (dut.issued | dut.error)):
        bench.m.d.sync += goes.eq(dut.issued & (dut.void | (watch.here & ~pauses)))
    moves = dut.issued | dut.error | stalls
    bench.require("held_for_a_reason", (~(watch.runs & goes) | moves) & (~(watch.here & stalls) | reason))
    return goes


def _instruction(bench: Bench, watch: Watch) -> None:
    """What a warp issues or signals follows from its word."""
    dut, word, issue, here = watch.dut, watch.word, watch.dut.issue, watch.here
    is_set, is_operation = watch.is_any("param", "parami"), watch.is_any(*_ENGINES)
    named = [
        (word[isa.OPCODE_LOW :] != OPCODE[s.name]) | ((issue.engine == e) & (issue.variant == v))
        for e, name in enumerate(ENGINES)
        for v, s in enumerate(isa.of_engine(name))
    ]
    parameter = issue.parameter == field(word, "param", "parameter")
    legal = sort_of(watch.kept) != Sort.ILLEGAL
    illegal = dut.error & (dut.cause == isa.Cause.ILLEGAL_INSTRUCTION)
    issues = (issue.sets == is_set) & Mux(is_set, parameter, is_operation & Cat(*named).all())
    pending = watch.pending.made
    signals = watch.executes & watch.is_any("signal")
    signalled = (pending.channel == field(word, "signal", "channel")) & (pending.pc == dut.pc)
    bench.require(
        "does_what_stands_there",
        ~here
        | (
            (~issue.valid | issues)
            & (~dut.take | watch.is_any("wait"))
            & (~dut.issued | legal)
            & (~illegal | ~legal)
            & (pending.signal == signals)
            & (~signals | signalled)
        ),
    )
    room = dut.room.bit_select(issue.engine, 1)
    bench.require("nothing_without_room", ~(issue.valid & ~issue.sets) | room)
    offers = watch.is_any("param", "parami", *_ENGINES)
    bench.require(
        "issued_once",
        (~here | ((issue.valid & ~dut.error) == (watch.executes & offers)))
        & (~issue.valid | (dut.run & dut.enable.bit_select(dut.turn, 1))),
    )


def _next(bench: Bench, watch: Watch) -> Callable[[Value], Value]:
    """The pc of the watched warp in its next turn; returns a function: whether it may be at a pc."""
    dut, word, here, bits = watch.dut, watch.word, watch.here, len(watch.place)
    loops = watch.loops.made
    behind = watch.place + 1
    jumps, opens = watch.executes & watch.is_any("jump"), watch.executes & watch.is_any("loop")
    target = behind + Mux(jumps, field(word, "jump", "offset"), field(word, "loop", "length"))
    seen, went, was_here = Signal(name="seen"), Signal(name="went"), Signal(name="was_here")
    at, one, other = (Signal(bits, name=name) for name in ("at", "one_way", "other_way"))
    with bench.m.If(watch.runs):
        bench.m.d.sync += [
            seen.eq(1),
            went.eq(dut.issued),
            was_here.eq(here),
            at.eq(dut.pc),
            one.eq(Mux(jumps | opens, target, Mux(loops.back, loops.start, behind))),
            other.eq(Mux(jumps, target, Mux(opens, behind, Mux(loops.back, loops.start, behind)))),
        ]

    def goes_on(pc: Value) -> Value:
        moved = ~was_here | (pc == one) | (pc == other)
        return Value.cast(Mux(seen, Mux(went, moved, pc == at), pc == 0))

    opens_well = ~(loops.go & loops.push & ~dut.error) | ((loops.count != 0) & ~loops.jump & ~loops.full)
    bench.require("goes_on", (~watch.runs | goes_on(dut.pc)) & opens_well)
    return goes_on


def _operands(bench: Bench, watch: Watch) -> tuple[list[Value], list[Value]]:
    """The registers read three cycles before the turn; their values must be the operands."""
    dut, word, issue, registers = watch.dut, watch.word, watch.dut.issue, watch.registers.made
    named = Cat(*registers.numbers, registers.warp)
    names: list[Value] = [named]
    values: list[Value] = [Cat(*registers.values)]
    for i in range(3):
        names.append(bench.past(names[-1], f"named{i}"))
        values.append(bench.past(values[-1], f"values{i}"))
    found = [values[2].word_select(i, 32) for i in range(len(registers.numbers))]
    wanted = Cat(_fields(word), predicate_number(word), watch.turns.watched)
    new = Mux(watch.is_any("parami"), field(word, "parami", "imm").as_signed(), found[VALUE])
    expected = Cat(*found[:VALUE], new[:32], *found[VALUE + 1 : -1])
    void = found[-1].any() != word[isa.SENSE_LOW]
    bench.require(
        "operands_of_its_own",
        ~(watch.here & dut.issued)
        | (
            (names[3] == wanted)
            & (dut.void == void)
            & (~issue.valid | (Value.cast(issue.values) == expected))
        ),
    )
    return names, values


def _fields(word: Value) -> Value:
    """The registers named by the fields of a word, without the predicate."""
    return Cat(word[low : low + isa.PREDICATE_BITS] for low in REGISTER_FIELDS)


def _results(bench: Bench, watch: Watch, goes: Signal) -> tuple[Signal, Signal]:
    """Register writes of the watched warp, which come only in the cycle after a turn."""
    dut, turns, registers = watch.dut, watch.turns, watch.registers.made
    rd = field(watch.word, "li", "rd")
    begins = bench.value(watch.here & watch.executes & watch.is_any(*_DIVIDES), "division_begins")
    left, target = Signal(range(isa.DIV_TURNS), name="turns_left"), Signal(len(rd), name="division_target")
    with bench.m.If(begins):
        bench.m.d.sync += [left.eq(isa.DIV_TURNS - 1), target.eq(rd)]
    with bench.m.Elif(turns.own & (left != 0)):
        bench.m.d.sync += left.eq(left - 1)
    # What is certain about the write after a turn of the watched warp: that there is one, or none.
    must, never = Signal(name="must_write"), Signal(name="never_writes")
    to = Mux(left != 0, target, rd)
    issues = watch.here & dut.issued
    results = issues & ~dut.void & watch.is_any(*_RESULTS)
    with bench.m.If(turns.own):
        bench.m.d.comb += [
            must.eq(results | (left == 1)),
            never.eq((issues & ~results) | (left > 1) | (goes & ~dut.issued & ~dut.error)),
        ]
    must_now, never_now = bench.past(must, "must_now"), bench.past(never, "never_now")
    turn = (registers.target_warp == bench.past(dut.turn, "turn_past")) & ~bench.past(turns.idle, "idle_past")
    apart = (turns.number(READ) >= watch.config.warps) | (registers.warp != registers.target_warp)
    bench.require(
        "results_in_its_turn",
        (~registers.write | (turn & bench.started & apart))
        & (~must_now | (registers.write & (registers.target == bench.past(to, "to_past"))))
        & ~(never_now & registers.write),
    )
    return left, target


def proof(config: MachineConfig) -> Proof:
    """The proof for the sequencer of all warps, with its faults."""
    faults = sequencer_faults.faults(config)
    return Proof(
        "sequencer", "sequencer of the warps", STATEMENTS, lambda bench: build(bench, config), faults, 3, 14
    )
