"""Proofs of the host side: one answer per request, no run of an unchecked program, the watchdog."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from unittest import mock

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib.wiring import Component, In, Out

from hw import csr
from hw.config import MachineConfig
from hw.formal import host_faults
from hw.formal.bench import Bench
from hw.formal.host_faults import ADDRESS
from hw.formal.proof import Proof
from hw.rtl.bits import log2
from hw.rtl.core.host import Host, State
from hw.rtl.interfaces import HostRequest

#: Cycles after a word in which the stand-in for the CRC is not ready.
MIXES = 3


class _Mixing(Component):
    """Replaces the CRC by a simpler function of all words since `start`, with the same ports.

    A word takes `MIXES` cycles and changes the result in the last of them.
    """

    def __init__(self) -> None:
        super().__init__({"start": In(1), "valid": In(1), "data": In(32), "ready": Out(1), "crc": Out(32)})

    def elaborate(self, platform: object) -> Module:
        m = Module()
        left, word = Signal(range(MIXES + 1)), Signal(32)
        m.d.comb += self.ready.eq(left == 0)
        with m.If(self.valid):
            m.d.sync += [left.eq(MIXES), word.eq(self.data)]
        with m.Elif(~self.ready):
            m.d.sync += left.eq(left - 1)
        with m.If(self.start):
            m.d.sync += self.crc.eq(0)
        with m.Elif(left == 1):
            m.d.sync += self.crc.eq(mixed(self.crc, word))
        return m


def mixed(crc: Value, word: Value) -> Value:
    """Combines the result so far with the next word."""
    return crc.rotate_left(1) ^ word


STREAMS = {
    "one_answer_each": "every request is answered once; answers follow requests, and at most two are "
    "outstanding",
    "answers_in_time": "when no answer waits, a write is answered in the third cycle after the one in "
    "which it is taken, or as soon as the word before it is checked. A read is answered in the "
    "seventh, unless the machine is starting or running",
    "answer_is_stable": "an answer stays unchanged until it is accepted",
    "settings_fixed": "windows and enabled warps do not change from the start of a run until it is done",
    "no_writes_to_running_programs": "no program memory is written while the machine starts, runs or stops",
    "run_follows_load": "a run begins in exactly the cycle after the `period` cycles that follow the "
    "clear of a start",
    "warps_run": "`execute` is 1 during a run, and after it only in the cycle in which an error is reported",
    "stop_is_final": "a run that has stopped or is done does not resume; only a clear and a start begin "
    "another",
    "clear_only_when_quiet": "the state that a run leaves is cleared only when no memory answer is "
    "outstanding",
}


@dataclass(frozen=True)
class _Requests:
    """The state of the host's requests, as seen by a bench.

    A request that was taken is `held` until it executes, and its `payload` holds as long; it is `decoded`
    from the second of these cycles on. `write` is 1 in the cycle in which a write executes, `starts` in the
    one in which it starts the machine. `starting` is 1 from then until the machine loads, `under_way` until
    it is done. `loads` counts the cycles between clear and run from 1, and is 0 in all others; `loaded` is
    its previous value. `told` is 1 when an error is reported in a run, which ends in this cycle.
    """

    held: Signal
    decoded: Signal
    payload: Signal
    write: Signal
    starts: Signal
    starting: Signal
    under_way: Signal
    loads: Signal
    loaded: Signal
    told: Signal

    def writes(self, name: str) -> Value:
        """Whether a register is written in this cycle."""
        return self.write & (self.payload.address == ADDRESS[name])


def _host(bench: Bench, config: MachineConfig) -> tuple[Component, _Requests]:
    """The host side under proof, with a host that holds a request until it is accepted.

    Assumption about the machine: no error is reported in the first cycle of a run. When a planted fault is
    sought, the clear before a run is shortened, because its length does not matter there.
    """
    inner = Host(config)
    if bench.seeks_fault:
        inner.clear_cycles = 2
    with mock.patch("hw.rtl.core.host.WordCheck", _Mixing):
        dut = bench.add(inner, "dut")
    request, response, sync = dut.request, dut.response, bench.m.d.sync
    bench.assume(bench.keeps(request, "request"))
    held, payload = bench.value(~request.ready, "held_request"), Signal(HostRequest, name="held_payload")
    with bench.m.If(request.ready):
        sync += payload.eq(request.payload)
    decoded = bench.value(held & bench.past(held, "held_past"), "decoded_request")
    mixes = Signal(range(MIXES + 1), name="mixes")  # cycles until the check is ready
    write = bench.value(decoded & payload.write & ~response.valid & (mixes == 0), "executes")
    starting = Signal(name="starting")
    wanted = write & (payload.address == ADDRESS["CONTROL"]) & payload.data[csr.START]
    starts = bench.value(wanted & dut.clear & ~starting, "starts")
    sync += starting.eq(dut.clear & (starting | starts))
    under_way = bench.value((~dut.clear | starting) & ~dut.done, "under_way")
    words = write & (payload.address == ADDRESS["PROGRAM_DATA"]) & ~under_way
    sync += mixes.eq(Mux(words, MIXES, Mux(mixes != 0, mixes - 1, 0)))
    period = config.derived.period
    loads, loaded = Signal(range(period + 1), name="loads"), Signal(range(period + 1), name="loads_before")
    begins = ~dut.clear & bench.past(dut.clear & starting, "clears_past")
    goes_on = (loaded != 0) & (loaded != period)
    bench.m.d.comb += loads.eq(Mux(begins, 1, Mux(goes_on, loaded + 1, 0)))
    sync += loaded.eq(loads)
    ran = bench.past(dut.run, "ran")
    bench.assume(~dut.error | (loaded != period))

    def tied() -> Value:
        state = bench.register(dut, "state")
        same = ~held | (bench.register(dut, "request") == Value.cast(payload))
        same &= (bench.register(dut, "decoded") == decoded) & (bench.register(dut, "check/left") == mixes)
        idle = (state == State.IDLE) == (dut.clear & ~starting)
        clearing = dut.clear == ((state == State.IDLE) | (state == State.CLEAR))
        rounds = (loads <= period) & ((state == State.LOAD) == (loads != 0))
        loading = rounds & (bench.register(dut, "loaded") == Mux(loads != 0, loads - 1, 0))
        running = (bench.register(dut, "running") == (state == State.RUN)) & (~ran | (state >= State.RUN))
        return same & idle & clearing & (state <= State.DONE) & loading & running

    bench.invariant("requests", tied)
    told = bench.value(ran & dut.error & ~dut.done, "told")
    return dut, _Requests(held, decoded, payload, write, starts, starting, under_way, loads, loaded, told)


def build_streams(bench: Bench, config: MachineConfig) -> None:
    """Any accesses of a host that holds its requests until they are accepted, and any events of a machine."""
    dut, known = _host(bench, config)
    request, response, sync = dut.request, dut.response, bench.m.d.sync
    owed = Signal(2, name="owed")
    accepted, answered = request.valid & request.ready, response.valid & response.ready
    sync += owed.eq(owed + accepted - answered)
    # One request may have its answer while another waits for one.
    bench.require(
        "one_answer_each", (owed <= 2) & (~response.valid | (owed != 0)) & (response.valid | (owed <= 1))
    )
    waiting = bench.value(owed - response.valid, "waiting")
    bench.invariant("owed", lambda: waiting == known.held)
    busy = bench.value((known.starting & dut.clear) | dut.run | known.told, "busy")
    second = bench.past(bench.past(accepted, "first_cycle"), "second_cycle")
    # Whether a read that nothing held up was decoded then, up to five cycles ago.
    reads = [bench.value(second & ~known.payload.write & ~busy & ~response.valid, "reads")]
    for i in range(5):
        reads.append(bench.past(reads[-1], f"reads{i}"))
    written = bench.past(known.write, "written")
    bench.require("answers_in_time", ~(written | reads[5]) | response.valid)

    def asked() -> Value:
        stages = bench.register(dut, "registers/asked")
        one = Cat(stages == 1 << i for i in range(4)).any() | (stages == 0)
        waits = known.decoded & ~known.payload.write & ~response.valid
        told = Cat(~reads[i] | (stages == 1 << (i - 1)) for i in range(1, 5)).all()
        return one & (waits | (stages == 0)) & told & (~second | (known.decoded & (stages == 0)))

    bench.invariant("asked", asked)
    bench.require("answer_is_stable", bench.keeps(response, "answer"))

    was = {n: bench.past(getattr(dut, n), f"{n}_past") for n in ("run", "clear", "done")}
    settings = Cat(Value.cast(dut.windows), dut.enable)
    same = settings == bench.past(settings, "settings_past")
    bench.require("settings_fixed", ~bench.past(known.under_way, "under_way_past") | same)
    bench.require("no_writes_to_running_programs", ~(known.under_way & dut.program_write))
    begins = bench.value(dut.run & ~was["run"], "begins")
    bench.require("run_follows_load", begins == (known.loaded == config.derived.period))
    bench.require("warps_run", Mux(dut.run, dut.execute, known.told | ~dut.execute))
    stopped = bench.past(dut.stop & ~dut.clear & (known.loads == 0), "stopped_past")
    bench.require("stop_is_final", ~(stopped & (dut.run | (known.loads != 0))) & (dut.stop == ~dut.run))
    cleared = bench.value(bench.started & dut.clear & ~was["clear"], "cleared")
    bench.require("clear_only_when_quiet", ~cleared | (was["done"] & bench.past(dut.quiet, "quiet_past")))


PROGRAMS = {
    "only_checked_programs_run": "when a run begins, the latest words of each enabled warp were written "
    "in one go from pc 0 on, and their CRC-32 followed before the start",
    "unchecked_start_fails": "a start ends at once, done with an error, if this does not hold for every "
    "enabled warp",
}


def build_programs(bench: Bench, config: MachineConfig) -> None:
    """Follows the program of an arbitrary warp, beside a model of its check word.

    The CRC is a black box here: both the component and the model use a function of all words that is simple
    for solvers.
    """
    dut, known = _host(bench, config)
    sync, value, writes = bench.m.d.sync, known.payload.data, known.writes
    warp = bench.constant(range(config.warps), "warp")
    bench.assume(warp < config.warps)
    words = log2(config.imem_words)
    loads = bench.value(dut.program_write & (dut.program_warp == warp), "loads")
    crc = Signal(32, name="reference")
    with bench.m.If(writes("PROGRAM_ADDRESS")):
        sync += crc.eq(0)
    with bench.m.Elif(loads):
        sync += crc.eq(mixed(crc, dut.program_data))
    target, from_zero, any_word = Signal(32 - words), Signal(), Signal()
    checked = Signal(name="checked_program")
    with bench.m.If(writes("PROGRAM_ADDRESS")):
        sync += [target.eq(value >> words), from_zero.eq(value[:words] == 0), any_word.eq(0)]
    with bench.m.Elif(loads):
        sync += any_word.eq(1)
    with bench.m.If(loads):
        sync += checked.eq(0)
    with bench.m.Elif(writes("PROGRAM_CHECK") & (target == warp)):
        sync += checked.eq(from_zero & any_word & (value == crc))
    enabled = dut.enable.bit_select(warp, 1)
    intact = Signal(name="intact")  # checked when the run started, and not written since
    with bench.m.If(loads):
        sync += intact.eq(0)
    with bench.m.Elif(known.starts):
        sync += intact.eq(checked)
    begins = bench.value(dut.run & ~bench.past(dut.run, "run_past"), "begins")
    bench.require("only_checked_programs_run", ~(begins & enabled) | intact)
    before = bench.value((known.starting & dut.clear) | (known.loads != 0), "before_the_run")
    bench.invariant("intact", lambda: ~before | ~enabled | intact)
    refused = bench.past(known.starts & enabled & ~checked, "refused")

    def tied() -> Value:
        names = ("warp", "whole", "some", "checked", "check/crc", "check/left", "check/word")
        inside = {n: bench.register(dut, n) for n in names}
        made, word = inside["check/crc"], inside["check/word"]
        made = Mux(inside["check/left"] == 0, made, mixed(made, word))
        return (
            (inside["warp"] == target)
            & (inside["whole"] == from_zero)
            & ((target != warp) | ((inside["some"] == any_word) & (made == crc)))
            & (inside["checked"].bit_select(warp, 1) == checked)
        )

    bench.invariant("checks", tied)
    bench.require("unchecked_start_fails", ~refused | (dut.done & dut.failed & ~dut.run))


WATCHDOG = {
    "watchdog_stops": "in a run, `expired` comes in the second cycle after WATCHDOG plus `period` "
    "cycles without progress, and lasts until there is progress; with WATCHDOG 0 it never comes",
    "watchdog_waits": "in a run, `expired` comes for no other reason",
    "error_stops": "a run stops in the cycle in which an error is reported, and has failed in the next; "
    "a run that is not done stops for no other reason",
    "cycles_counted": "a run that is done without an error has counted the cycles up to its last event",
}


def build_watchdog(bench: Bench, config: MachineConfig) -> None:
    """Counts cycles without progress, fewer than 2^32, beside the machine; WATCHDOG may change at any time.

    Assumption about the sequencer: once all warps are through, nothing happens, nor did in the previous
    cycle.
    """
    dut, known = _host(bench, config)
    sync = bench.m.d.sync
    sets = bench.value(known.writes("WATCHDOG"), "sets")
    limit = Signal(32, init=1 << 20, name="limit")
    with bench.m.If(sets):
        sync += limit.eq(known.payload.data)
    idle = Signal(33, name="idle")  # cycles of the run without progress, up to the previous one
    sync += idle.eq(Mux(dut.run & ~dut.progress.any(), idle + 1, 0))
    bench.assume(idle < 1 << 32)
    running = bench.past(dut.run, "run_past")
    period = config.derived.period
    idle_before = bench.past(idle, "idle_past")
    waits = bench.value((limit != 0) & (idle_before >= limit + period), "waits")
    expires = bench.past(waits, "expires")
    bench.require("watchdog_stops", ~(dut.run & expires) | dut.expired)
    bench.require("watchdog_waits", ~(dut.run & dut.expired) | expires)
    after = bench.past(known.told, "told_past")
    stops = running & ~dut.run & ~dut.done
    bench.require("error_stops", (~after | (~dut.run & dut.stop & dut.failed)) & (~stops | dut.error))

    bench.assume(~(dut.finished & (dut.event | bench.past(dut.event, "event_past"))))
    cycles, latest = Signal(len(dut.cycle), name="cycles_run"), Signal(len(dut.cycle), name="latest_event")
    with bench.m.If(dut.clear):
        sync += [cycles.eq(0), latest.eq(0)]
    with bench.m.Elif(dut.run):
        sync += cycles.eq(cycles + 1)
        with bench.m.If(dut.event):
            sync += latest.eq(cycles + 1)
    bench.require("cycles_counted", ~dut.done | dut.failed | (dut.cycle == latest))

    def tied() -> Value:
        quiet_for, watchdog = bench.register(dut, "quiet_for"), bench.register(dut, "watchdog")
        count, inside = bench.register(dut, "count"), bench.register(dut, "latest")
        first = (known.loads == 0) | ((cycles == 0) & (latest == 0) & (count == 0))
        happened = bench.register(dut, "happened")
        counted = ~dut.run | ((count == cycles) & (latest == Mux(happened, count, inside)))
        state, failed = bench.register(dut, "state"), bench.register(dut, "failed")
        ended = failed | ((state != State.STOP) & ((state != State.DONE) | (count == latest)))
        moved, period_before = bench.register(dut, "moved").any(), quiet_for == -period
        running_idle = ~dut.run | ((quiet_for == idle_before - period) & (moved == (idle == 0)))
        loading = ((known.loads < 2) | moved) & ((known.loads < 3) | period_before)
        begins = ((state != State.CLEAR) & (state != State.LOAD)) | (idle_before == 0)
        idles = running_idle & loading & begins & ((idle == 0) | running)
        return (watchdog == limit) & idles & first & counted & ended

    bench.invariant("counts", tied)


def proofs(config: MachineConfig) -> tuple[Proof, ...]:
    """The proofs for the host side of a machine, with their faults."""
    return tuple(
        Proof(name, f"host: {title}", said, partial(build, config=config), faults, depth, 12)
        for name, title, said, depth, build, faults in (
            ("host", "requests, settings, states", STREAMS, 2, build_streams, host_faults.STREAMS),
            ("host-programs", "programs are checked", PROGRAMS, 3, build_programs, host_faults.PROGRAMS),
            ("host-watchdog", "watchdog, errors, cycles", WATCHDOG, 2, build_watchdog, host_faults.WATCHDOG),
        )
    )
