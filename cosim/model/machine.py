"""The event loop: attempts to issue and fires of signals, in order of time.

Within a cycle, warps issue in order of their numbers, then signals fire: a token, room in a queue and
room for a signal that appear in cycle t count from t + 1 on. Completions need no events of their own;
engines know them ahead, and whoever is held by one is woken in the cycle behind it.
"""

from __future__ import annotations

import functools
import gc
import heapq
import zlib
from typing import Any

from cosim.job import Event, EventKind, Job, MachineError, Outcome, loaded
from cosim.model import program as p
from cosim.model.checks import NEVER, Fault
from cosim.model.gemm import Drains, Gemm
from cosim.model.loader import Loader
from cosim.model.memory_port import port_of
from cosim.model.storer import Storer
from cosim.model.warp import Pending, Stop, Warp
from hw.config import ENGINES, MachineConfig
from hw.errors import InputError
from hw.isa import TIMING, Cause

ISSUE, FIRE = 0, 1
# Members of enumerations that the loop below names often; a look-up of each costs more than a comparison.
HELD, TURN, HALT, FAULT = Stop.HELD, Stop.TURN, Stop.HALT, Stop.FAULT
COMPLETE, SIGNAL = EventKind.COMPLETE, EventKind.SIGNAL
PENDING_SIGNALS = TIMING.pending_signals
MASK = 0xFFFFFFFF

Engine = Loader | Gemm | Storer


class Channel:
    """Tokens of a channel, the warps held on it, and who used it last (cycle, warp, pc)."""

    __slots__ = ("count", "fired", "taken", "waiting")

    def __init__(self) -> None:
        self.count = 0
        self.waiting: list[Warp] = []
        self.taken = (-1, 0, 0)
        self.fired = (-1, 0, 0)


class Machine:
    """One run of a job: warps, channels, engines, and the heap of what comes next."""

    def __init__(self, config: MachineConfig, job: Job):
        self.config, self.job = config, job
        self.events: list[Any] = []
        for w in job.programs:
            if not 0 <= w < config.warps:
                raise InputError(f"warp must be 0 to {config.warps - 1}, not {w}")
        self.warps = {w: Warp(w, config, list(job.programs[w])) for w in sorted(job.programs)}
        self.channels = [Channel() for _ in range(config.channels)]
        drains = Drains()
        ports = {name: port_of(job.settings, name) for name in ("load_a", "load_b", "load_c", "store")}
        self.engines: dict[str, Engine] = {
            name: Loader(name, config, ports[name], job.windows) for name in ("load_a", "load_b", "load_c")
        }
        self.engines["gemm"] = Gemm(config, drains)
        self.storer = Storer(config, ports["store"], job.windows, drains)
        self.engines["store"] = self.storer
        self.depth = config.queue_depth
        self.heap: list[tuple[int, int, int, int]] = []
        self.faults: list[Fault] = []
        self.stop = NEVER - 1

    def run(self) -> Fault | None:
        """Play everything until all is done or an error stops the machine; returns that error."""
        for warp in self.warps.values():
            warp.start()
            if (plan := self._plan_issue(warp)) is not None:
                heapq.heappush(self.heap, plan)
        heap, pop, replace, warps = self.heap, heapq.heappop, heapq.heappushpop, self.warps
        plan = None
        while heap or plan:
            cycle, phase, index, version = replace(heap, plan) if plan else pop(heap)
            plan = None
            if cycle > self.stop:
                break
            warp = warps[index]
            if phase == FIRE:
                if version == warp.fire_version:
                    self._fire(warp, cycle)
            elif version == warp.version:
                if warp.stop is TURN:
                    warp.start()
                    plan = self._plan_issue(warp)
                elif self._attempt(warp, cycle):
                    plan = self._plan_issue(warp)
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

    def _plan_issue(self, warp: Warp) -> tuple[int, int, int, int] | None:
        """The next attempt to issue of a warp that has run ahead, as an entry of the heap."""
        if warp.stop is FAULT:
            self._warp_fault(warp.ready, warp.cause, warp.index, warp.pc)
        elif warp.stop is not HALT:
            return warp.ready, ISSUE, warp.index, warp.version
        return None

    def _warp_fault(self, cycle: int, cause: Cause, warp: int, pc: int) -> None:
        self.faults.append(Fault(cycle, warp, MachineError(cause, warp, pc)))
        self.stop = min(self.stop, cycle)

    def _wake(self, warp: Warp, cycle: int) -> None:
        """Plan an attempt to issue in `cycle`; earlier plans are void."""
        warp.version += 1
        if cycle < NEVER:
            heapq.heappush(self.heap, (cycle, ISSUE, warp.index, warp.version))

    def _attempt(self, warp: Warp, t: int) -> bool:
        """Issue the held instruction of a warp in cycle `t` and run ahead, or plan the next attempt."""
        held = warp.held
        kind = held[0]
        if kind == p.ENGINE:
            return self._attempt_engine(warp, t)
        if kind == p.WAIT:
            return self._attempt_wait(warp, t)
        if len(warp.pending) >= PENDING_SIGNALS:
            warp.full = True
            return False
        warp.stall_engine += t - warp.ready
        warp.pending.append(Pending(t, held[3], warp.pc, warp.engine, warp.operation))
        if len(warp.pending) == 1:
            self._plan_fire(warp, t)
        warp.issue(t)
        return True

    def _attempt_wait(self, warp: Warp, t: int) -> bool:
        channel = self.channels[warp.held[3]]
        if channel.taken[0] == t:  # both see the same count, so both would take
            for index, pc in (channel.taken[1:], (warp.index, warp.pc)):
                self._warp_fault(t, Cause.CHANNEL_CONFLICT, index, pc)
            return False
        if channel.count == 0:
            channel.waiting.append(warp)
            return False
        channel.count -= 1
        channel.taken = (t, warp.index, warp.pc)
        warp.stall_channel += t - warp.ready
        warp.issue(t)
        return True

    def _earliest(self, warp: Warp, t: int) -> int:
        """The first cycle from `t` on in which nothing known holds the engine operation of a warp."""
        engine = self.engines[warp.held[7][0]]
        if warp.engine is not None and warp.engine is not engine:
            t = max(t, warp.engine.completions[warp.operation] + 1)
        starts = engine.starts
        if len(starts) >= self.depth:
            t = max(t, starts[-self.depth] + 1)
        return t if engine.issued_at < t else t + 1

    def _attempt_engine(self, warp: Warp, t: int) -> bool:
        earliest = self._earliest(warp, t)
        if earliest > t:
            self._wake(warp, earliest)
            return False
        engine_name, name, registers, bits = warp.held[7]
        regs = warp.registers
        operands = [regs[r] & MASK for r in registers]
        for value, width in zip(operands, bits, strict=True):
            if value >> width:
                self._warp_fault(t, Cause.OPERAND, warp.index, warp.pc)
                return False
        engine, pc = self.engines[engine_name], warp.pc
        warp.stall_engine += t - warp.ready
        drain = engine.issue(t, warp.index, pc, name, operands, warp.parameters)
        warp.engine, warp.operation = engine, len(engine.starts) - 1
        done = engine.completions[-1]
        if engine is not self.storer and done < NEVER:
            self.events.append((done, warp.index, COMPLETE, pc))
        warp.issue(t)
        if drain is not None and self.storer.revise(drain):
            self._replan(warp, t)
        if engine.fault is not None or self.storer.fault is not None:
            cycles = [f.cycle for f in self.faults]
            cycles += [e.fault.cycle for e in self.engines.values() if e.fault is not None]
            self.stop = min(cycles)
        return True

    def _replan(self, issuer: Warp, t: int) -> None:
        """Plan again what a changed schedule of stores may hold: engine operations, next signals.

        The issuer has gone on; its next attempt to issue is planned afterwards.
        """
        for warp in self.warps.values():
            if warp is not issuer and warp.stop is HELD and warp.held[0] == p.ENGINE:
                self._wake(warp, self._earliest(warp, max(t, warp.ready)))
            if warp.pending and warp.pending[0].engine is self.storer:
                self._plan_fire(warp, t)

    def _plan_fire(self, warp: Warp, t: int) -> None:
        """Plan the fire of a warp's oldest pending signal, not before `t`."""
        first = warp.pending[0]
        cycle = max(t, first.cycle, warp.last_fire + 1)
        if first.engine is not None:
            cycle = max(cycle, first.engine.completions[first.operation])
        warp.fire_version += 1
        if cycle < NEVER:
            heapq.heappush(self.heap, (cycle, FIRE, warp.index, warp.fire_version))

    def _fire(self, warp: Warp, t: int) -> None:
        """Fire the oldest pending signal of a warp."""
        pending = warp.pending.popleft()
        warp.last_fire = t
        self.events.append((t, warp.index, SIGNAL, pending.pc))
        channel = self.channels[pending.channel]
        if channel.fired[0] == t:
            for index, pc in (channel.fired[1:], (warp.index, pending.pc)):
                self._warp_fault(t, Cause.CHANNEL_CONFLICT, index, pc)
        elif channel.count == self.config.channel_depth:
            self._warp_fault(t, Cause.CHANNEL_OVERFLOW, warp.index, pending.pc)
        channel.fired = (t, warp.index, pending.pc)
        channel.count += 1
        for waiting in channel.waiting:
            self._wake(waiting, t + 1)
        channel.waiting.clear()
        if warp.full:
            warp.full = False
            self._wake(warp, t + 1)
        if warp.pending:
            self._plan_fire(warp, t)

    def counters(self) -> dict[str, int]:
        """Values of the counter registers of `hw.csr`, by name."""
        found: dict[str, int] = {}
        for w in range(self.config.warps):
            warp = self.warps.get(w)
            found[f"WARP{w}_INSTRUCTIONS"] = len(warp.issues) if warp else 0
            found[f"WARP{w}_STALL_CHANNEL"] = warp.stall_channel if warp else 0
            found[f"WARP{w}_STALL_ENGINE"] = warp.stall_engine if warp else 0
        for name in ENGINES:
            engine = self.engines.get(name)
            prefix = name.upper()
            found[f"{prefix}_OPERATIONS"] = sum(c < NEVER for c in engine.completions) if engine else 0
            found[f"{prefix}_BUSY"] = engine.busy if engine else 0
            found[f"{prefix}_STALL_MEMORY"] = engine.stall_memory if engine else 0
            found[f"{prefix}_STALL_BANK"] = engine.stall_bank if engine else 0
        return {name: value & MASK for name, value in found.items()}


def predict(config: MachineConfig, job: Job) -> Outcome:
    """What the machine does with a job: events, cycles, error, counters; memory contents apart.

    Event cycles count from 0. With an error, events are those before its cycle, and counters may
    count beyond it. Raises `InputError` for programs that do not fit the machine or never end.
    Source: docs/machine.md.
    """
    if job.check_word is not None and not _check_word_is_right(config, job):
        return Outcome([], 0, MachineError(Cause.CHECK_WORD, 0, 0))
    collects = gc.isenabled()
    gc.disable()  # a fifth of the time goes to searching many small tuples, none of which is in a cycle
    try:
        machine = Machine(config, job)
        fault = machine.run()
        events = _events_of(machine, fault)
    finally:
        if collects:
            gc.enable()
    cycles = events[-1].cycle + 1 if events else 0
    return Outcome(events, cycles, fault.error if fault is not None else None, machine.counters())


def _events_of(machine: Machine, fault: Fault | None) -> list[Event]:
    """All events of a run that ended, in order; with a fault, those before it."""
    raw = machine.events
    for warp in machine.warps.values():
        raw += warp.issues
    stores = zip(machine.storer.stores, machine.storer.completions, strict=True)
    raw += [(c, s.warp, COMPLETE, s.pc) for s, c in stores]
    if fault is not None:
        raw = [e for e in raw if e[0] < fault.cycle]
    raw.sort()
    # tuple.__new__ spares the Python frame of Event._make: there are as many events as instructions
    return list(map(functools.partial(tuple.__new__, Event), raw))


def _check_word_is_right(config: MachineConfig, job: Job) -> bool:
    """Whether the job's check word is that of its programs, each loaded and checked on its own."""
    for words in job.programs.values():
        if zlib.crc32(b"".join(w.to_bytes(4, "little") for w in loaded(config, words))) != job.check_word:
            return False
    return True
