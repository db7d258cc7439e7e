"""The event queue of the cycle model: instruction issues and signal deliveries in time order.

Warps take turns; in a turn first an instruction issues, then a signal fires. A token, room in a queue, or
room for a signal that appears in cycle t counts from t + 1 on. Completions are not events: the engine models
know them ahead, and a warp held by one wakes in its first turn after it. Waits and signals of channels that a
single warp uses are not events either (see `sharing`): they issue as soon as their cycle is known. Only the
CGRA must be followed: nothing that happens from a cycle on changes what other engines read before it.
"""

from __future__ import annotations

import contextlib
import gc
import heapq
from bisect import bisect_left
from collections.abc import Iterable
from itertools import repeat
from operator import itemgetter

from cosim.host import check_word
from cosim.job import Event, EventKind, Job, MachineError, Outcome, loaded
from cosim.models.cycle import program as p
from cosim.models.cycle.checks import NEVER, Fault
from cosim.models.cycle.data import Data
from cosim.models.cycle.gemm import Drains, GemmModel
from cosim.models.cycle.grid import CgraModel, Launch
from cosim.models.cycle.loader import LoaderModel
from cosim.models.cycle.memory_port import port_of
from cosim.models.cycle.sharing import Channel, Operation, bind
from cosim.models.cycle.storer import Store, StorerModel
from cosim.models.cycle.warp import Log, Stop, Warp
from cosim.models.functional.cgra_code import DataError
from hw.config import ENGINES, MachineConfig
from hw.errors import InputError
from hw.isa import Cause
from hw.semantics import MASK

ISSUE, FIRE = 0, 1
# Enumeration members that the loop below uses often; looking one up costs more than comparing it.
HELD, TURN, HALT, FAULT = Stop.HELD, Stop.TURN, Stop.HALT, Stop.FAULT

Engine = LoaderModel | GemmModel | StorerModel | CgraModel


class Machine:
    """One run of a job: warps, channels, engines, and the heap of coming events."""

    def __init__(self, config: MachineConfig, job: Job, values: bool):
        self.config, self.job = config, job
        for w in job.programs:
            if not 0 <= w < config.warps:
                raise InputError(f"warp must be 0 to {config.warps - 1}, not {w}")
        drains = Drains()
        ports = {name: port_of(job.settings, name) for name in ("load_a", "load_b", "load_c", "store")}
        self.engines: dict[str, Engine] = {
            name: LoaderModel(name, config, ports[name], job.windows)
            for name in ("load_a", "load_b", "load_c")
        }
        self.engines["gemm"] = GemmModel(config, drains)
        self.storer = StorerModel(config, ports["store"], job.windows, drains)
        self.engines["store"] = self.storer
        programs = {w: p.decode(config, job.programs[w]) for w in sorted(job.programs)}
        self.data: Data | None = None
        self.grid: CgraModel | None = None
        if any(word[0] == p.ENGINE and word[7][0] == "cgra" for code in programs.values() for word in code):
            self.data = Data(config, job, values)
            self.grid = self.engines["cgra"] = CgraModel(
                config, self.storer, drains, self.data.memories, values
            )
        channels = [Channel(config.channel_depth) for _ in range(config.channels)]
        self.woken: list[tuple[Warp, int]] = []
        self.warps = {
            w: Warp(w, config, code, self._plan_fire, self.woken)
            for w, code in bind(programs, channels, self.engines).items()
        }
        self.depth = config.queue_depth
        self.heap: list[tuple[int, int, int, int]] = []
        self.now = 0  # nothing issues before this cycle
        self.faults: list[Fault] = []
        self.stop = NEVER - 1

    def run(self) -> Fault | None:
        """Process all events until the job is done or an error stops the machine; returns that error."""
        for warp in self.warps.values():
            warp.start()
            self._plan_issue(warp)
        heap, pop, warps, woken = self.heap, heapq.heappop, self.warps, self.woken
        while heap or woken or self.grid is not None:
            if woken:
                warp, cycle = woken.pop()
                warp.stop = warp.issue(cycle)
                self._plan_issue(warp)
                continue
            if self.grid is not None:
                last = min(heap[0][0], self.stop) if heap else self.stop
                if self.grid.due <= last:
                    if self.grid.advance(last):
                        if self.grid.fault is not None:
                            self._stop()
                        self._replan()
                    continue
                if not heap:
                    break
            cycle, phase, index, version = pop(heap)
            if cycle > self.stop:
                break
            warp = warps[index]
            if phase == FIRE:
                if version == warp.fire_version:
                    self.now = cycle + 1
                    self._fire(warp, cycle)
            elif version == warp.version:
                self.now = cycle
                if warp.stop is TURN:
                    warp.start()
                    self._plan_issue(warp)
                else:
                    self._attempt(warp, cycle)
        return self._first_fault()

    def _first_fault(self) -> Fault | None:
        """The error that counts when nothing more can happen before it; a deadlock is one."""
        faults = [*self.faults, *(e.fault for e in self.engines.values() if e.fault is not None)]
        if faults:
            return min(faults, key=lambda f: (f.cycle, f.rank))
        held = [w for w in self.warps.values() if w.stop is not HALT]
        if not held:
            return None
        if self.job.watchdog == 0:
            raise InputError(f"watchdog must be above 0 for a job that deadlocks, as {self.job.name!r} does")
        return Fault(NEVER, 0, MachineError(Cause.WATCHDOG, held[0].index, held[0].pc))

    def _plan_issue(self, warp: Warp) -> None:
        """Plan the next event of a warp that has run ahead, unless another event will wake it."""
        if warp.stop is HELD:
            kind, channel = warp.held[0], warp.held[7]
            if kind == p.WAIT and channel.alone:
                channel.waiting.append(warp)
            elif kind == p.SIGNAL:
                warp.full = True
            elif kind == p.WAIT or self._fits(warp):
                heapq.heappush(self.heap, (warp.ready, ISSUE, warp.index, warp.version))
            else:
                self._warp_fault(warp.ready, Cause.OPERAND, warp.index, warp.pc)
        elif warp.stop is TURN:
            heapq.heappush(self.heap, (warp.ready, ISSUE, warp.index, warp.version))
        elif warp.stop is FAULT:
            self._warp_fault(warp.ready, warp.cause, warp.index, warp.pc)

    @staticmethod
    def _fits(warp: Warp) -> bool:
        """Whether all operands fit their fields; this is decided in the first turn, held or not."""
        operation: Operation = warp.held[7]
        warp.fetched = operation.fetch(warp.registers)
        warp.plan = operation.engine.plan(operation, warp.fetched, warp.parameters)
        return warp.plan is not None

    def _warp_fault(self, cycle: int, cause: Cause, warp: int, pc: int) -> None:
        self.faults.append(Fault(cycle, warp, MachineError(cause, warp, pc)))
        self.stop = min(self.stop, cycle)

    def _wake(self, warp: Warp, cycle: int) -> None:
        """Plan an attempt to issue in the first turn from `cycle` on; earlier plans become invalid."""
        warp.version += 1
        if cycle < NEVER:
            cycle = warp.turn(cycle)
            heapq.heappush(self.heap, (cycle, ISSUE, warp.index, warp.version))

    def _issue(self, warp: Warp, t: int) -> None:
        """Issue the held instruction of a warp in cycle `t`, run ahead, and plan the next event."""
        warp.stop = warp.issue(t)
        self._plan_issue(warp)

    def _attempt(self, warp: Warp, t: int) -> None:
        """Issue the held instruction of a warp in cycle `t`, or plan the next attempt if it is still held."""
        if warp.held[0] == p.WAIT:
            self._attempt_wait(warp, t)
            return
        earliest = self._earliest(warp, t)
        if earliest > t:
            self._wake(warp, earliest)
            return
        warp.stall_engine += t - warp.ready
        self._operate(warp, t)
        self._issue(warp, t)

    def _attempt_wait(self, warp: Warp, t: int) -> None:
        channel: Channel = warp.held[7]
        if not channel.tokens:
            channel.waiting.append(warp)
        else:
            channel.tokens.popleft()
            warp.stall_channel += t - warp.ready
            self._issue(warp, t)

    def _earliest(self, warp: Warp, t: int) -> int:
        """The first turn from cycle `t` on in which nothing known so far holds the warp's operation."""
        engine = warp.held[7].engine
        if warp.engine is not engine:
            done = warp.done if warp.late < 0 else warp.engine.completions[warp.late]
            if done >= t:
                t = done + 1
        starts = engine.starts
        if len(starts) >= self.depth and starts[-self.depth] >= t:
            t = starts[-self.depth] + 1
        return warp.turn(t)

    def _operate(self, warp: Warp, t: int) -> None:
        """Put the engine operation of a warp into its queue in cycle `t`."""
        operation, storer, pc, fetched = warp.held[7], self.storer, warp.pc, warp.fetched
        engine = operation.engine
        if self.data is not None and engine is not self.grid and not warp.plan.fails:
            self.data.perform(operation, fetched, warp.parameters)
        drain = engine.issue(t, warp.index, pc, warp.plan, fetched)
        warp.engine, work = engine, None
        if isinstance(engine, GemmModel):
            work = warp.plan.work
        elif isinstance(engine, CgraModel):
            work = engine.latest
        warp.work.append(work)
        if isinstance(engine, StorerModel | CgraModel):
            warp.done, warp.late = -1, len(engine.starts) - 1
        else:
            warp.done, warp.late = engine.completions[-1], -1
            if warp.done < NEVER:
                warp.completions.cycles.append(warp.done)
                warp.completions.pcs.append(pc)
        if drain is not None and storer.revise(drain):
            self._replan(warp)
        if engine.fault is not None or storer.fault is not None:
            self._stop()

    def _stop(self) -> None:
        """Set the cycle of the first error, which a revised store may have moved; nothing happens after."""
        cycles = [f.cycle for f in self.faults]
        cycles += [e.fault.cycle for e in self.engines.values() if e.fault is not None]
        self.stop = min(cycles)

    def _replan(self, issuer: Warp | None = None) -> None:
        """Plan again what depends on changed completions: engine operations and next signals.

        The issuer is skipped, as its next attempt is planned afterwards.
        """
        for warp in self.warps.values():
            if warp is not issuer and warp.stop is HELD and warp.held[0] == p.ENGINE:
                self._wake(warp, self._earliest(warp, max(self.now, warp.ready)))
            if warp.pending and warp.pending[0].late >= 0:
                self._plan_fire(warp)

    def _plan_fire(self, warp: Warp) -> None:
        """Plan when a warp's oldest pending signal fires."""
        cycle, _, _, engine, late = warp.pending[0]
        if cycle <= warp.last_fire:
            cycle = warp.last_fire + warp.period
        if late >= 0 and engine.completions[late] >= cycle:
            cycle = engine.completions[late] + 1
            cycle = warp.turn(cycle) if cycle < NEVER else NEVER
        warp.fire_version += 1
        if cycle < NEVER:
            heapq.heappush(self.heap, (cycle, FIRE, warp.index, warp.fire_version))

    def _fire(self, warp: Warp, t: int) -> None:
        """Fire the oldest pending signal of a warp, and wake those who waited for the token or for room."""
        _, channel, pc, _, _ = warp.pending.popleft()
        warp.last_fire = t
        warp.fires.add(t, pc)
        if channel.full(t):
            self._warp_fault(t, Cause.CHANNEL_OVERFLOW, warp.index, pc)
        channel.tokens.append(t)
        if warp.pending:
            self._plan_fire(warp)
        if warp.full:
            warp.full = False
            cycle = max(t + warp.period, warp.ready)
            warp.stall_engine += cycle - warp.ready
            self.woken.append((warp, cycle))
        waiting, channel.waiting = channel.waiting, []
        for held in waiting:
            if channel.alone:
                held.take(channel)
            else:
                self._wake(held, t + 1)

    def counters(self) -> dict[str, int]:
        """Values of the counter registers of `hw.csr`, by name."""
        found: dict[str, int] = {}
        for w in range(self.config.warps):
            warp = self.warps.get(w)
            found[f"WARP{w}_INSTRUCTIONS"] = len(warp.issues.pcs) if warp else 0
            found[f"WARP{w}_STALL_CHANNEL"] = warp.stall_channel // warp.period if warp else 0
            found[f"WARP{w}_STALL_ENGINE"] = warp.stall_engine // warp.period if warp else 0
        for name in ENGINES:
            engine = self.engines.get(name)
            prefix = name.upper()
            found[f"{prefix}_OPERATIONS"] = sum(c < NEVER for c in engine.completions) if engine else 0
            for what in ("BUSY", "STALL_MEMORY", "STALL_BANK", "WORDS"):
                found[f"{prefix}_{what}"] = getattr(engine, what.lower(), 0)
        return {name: value & MASK for name, value in found.items()}

    def close(self) -> None:
        """Break the reference cycle between machine and warps, so that no garbage collection is needed."""
        for warp in self.warps.values():
            warp.close()
        self.warps.clear()


def predict(config: MachineConfig, job: Job, *, values: bool = True) -> Outcome:
    """Predict what the machine does with a job: events, stores of the CGRA, cycles, error, counters.

    Event cycles count from 0. With an error, `cycles` is the cycle of the error (except for the watchdog's),
    events are those before it, and counters may count beyond it. Without `values`, only what affects cycles
    is computed, and the values that the CGRA stores may be 0. This suits compiled programs, whose launches
    neither read registers that another launch wrote nor index outside a table. Raises `InputError` for
    programs that do not fit the machine or never end. Source: docs/machine.md.
    """
    collects = gc.isenabled()
    gc.disable()  # collection would take a fifth of the time, and no object stays in a reference cycle
    try:
        if not values:
            with contextlib.suppress(DataError):
                return _predict(config, job, False)
        return _predict(config, job, True)
    finally:
        if collects:
            gc.enable()


def _predict(config: MachineConfig, job: Job, values: bool) -> Outcome:
    checked = job.programs.values() if job.check_word is not None else ()
    if any(check_word(loaded(config, words)) != job.check_word for words in checked):
        return Outcome([], 0, MachineError(Cause.CHECK_WORD, 0, 0))
    machine = Machine(config, job, values)
    fault = machine.run()
    events = _events_of(machine, fault)
    end = fault.cycle - 1 if fault is not None else NEVER - 1
    stored = machine.grid.outputs(end) if machine.grid is not None else []
    cycles = max((part[-1].cycle + 1 for part in (events, stored) if part), default=0)
    if fault is not None and fault.error.cause is not Cause.WATCHDOG:
        cycles = fault.cycle
    outcome = Outcome(events, cycles, fault.error if fault is not None else None, machine.counters())
    outcome.stored = stored
    outcome.work = {index: warp.work for index, warp in machine.warps.items()}
    machine.close()
    return outcome


def _events_of(machine: Machine, fault: Fault | None) -> list[Event]:
    """All events of a finished run, in order; with a fault, those before it."""
    events: list[Event] = []
    late: list[tuple[Iterable[Store | Launch], list[int]]] = [
        (machine.storer.stores, machine.storer.completions)
    ]
    if machine.grid is not None:
        late.append((machine.grid.launches, machine.grid.completions))
    for index, warp in machine.warps.items():
        ends = Log()
        for operations, completions in late:
            for operation, done in zip(operations, completions, strict=False):
                if operation.warp == index:
                    ends.add(done, operation.pc)
        issues = [EventKind.ISSUE] * len(warp.issues.pcs)
        for place in warp.voids:
            issues[place] = EventKind.VOID
        for kinds, log in (
            (issues, warp.issues),
            (repeat(EventKind.COMPLETE), warp.completions),
            (repeat(EventKind.COMPLETE), ends),
            (repeat(EventKind.SIGNAL), warp.fires),
        ):
            # tuple.__new__ avoids the Python frame of Event._make: there are more events than instructions.
            values = zip(log.cycles, repeat(index), kinds, log.pcs)
            events += map(tuple.__new__, repeat(Event), values)
    # The sort is stable, and a warp has no two events of a kind in one cycle, so this order is complete.
    events.sort(key=itemgetter(0))
    if fault is not None:
        del events[bisect_left(events, fault.cycle, key=itemgetter(0)) :]
    return events
