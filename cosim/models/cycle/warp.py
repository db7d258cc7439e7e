"""One warp, which runs ahead through everything that no other warp can delay.

Registers, loops and jumps depend on nothing outside the warp. Channels that it does not share depend only on
what is already known (see `sharing`). The issue cycles of such instructions follow at once; the machine
decides about all others.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from cosim.job import OperationWork
from cosim.models.cycle import program as p
from cosim.models.cycle.checks import NEVER
from cosim.models.cycle.program import BINARY, LI, SIGNAL, WAIT
from cosim.models.cycle.sharing import Channel, Pending
from hw.config import MachineConfig
from hw.errors import InputError
from hw.isa import PARAMETERS, TIMING, Cause
from hw.semantics import MASK, SEMANTICS, wrap

SMALL = 1 << 29  # one digit inside CPython; comparing such numbers is fast
PENDING_SIGNALS = TIMING.pending_signals
#: A warp that issues more instructions than this counts as a program that does not end.
INSTRUCTION_LIMIT = 10_000_000
#: Instructions after which other warps get a chance, in case the program does not end.
TURN = 20_000


class Stop(enum.Enum):
    """Why a warp stopped running ahead."""

    HELD = "at a wait, a signal or an engine operation"
    TURN = "other warps come first"
    HALT = "halted"
    FAULT = "error"


class Log:
    """Events of one kind in a warp, in time order: their cycles, and the pc of each."""

    __slots__ = ("cycles", "pcs")

    def __init__(self) -> None:
        self.cycles: list[int] = []
        self.pcs: list[int] = []

    def add(self, cycle: int, pc: int) -> None:
        """Append an event."""
        self.cycles.append(cycle)
        self.pcs.append(pc)


class Warp:
    """State of a warp between two decisions of the machine.

    `ready` is the first cycle in which the instruction at `pc` may issue. `version` tells the valid attempt
    to issue from outdated ones; `fire_version` does so for the next signal. `engine` is the engine of the
    latest operation. `done` is its completion; if that may still change, `late` is the operation's number
    instead. `woken` is the machine's list of warps that now issue the instruction they were held at, with the
    cycle.
    """

    def __init__(
        self,
        index: int,
        config: MachineConfig,
        code: list[p.Decoded],
        plan_fire: Callable[[Warp], None],
        woken: list[tuple[Warp, int]],
    ):
        self.index = index
        self.issues, self.completions, self.fires = Log(), Log(), Log()
        self.work: list[OperationWork | None] = []
        self.voids: list[int] = []  # indices in `issues` of instructions with a false predicate
        self.imem_words, self.loop_depth = config.imem_words, config.loop_depth
        self.code = [*code, *[p.ILLEGAL_WORD] * (self.imem_words - len(code)), p.WRAP_WORD]
        self.period = config.derived.period
        self.pc, self.ready = 0, index
        self.registers = [0] * (config.registers + 1)  # the last takes writes to register 0
        self.parameters = [0] * len(PARAMETERS)
        self.fetched: tuple[int, ...] = ()  # operands of the held operation, and its plan
        self.plan: Any = None
        self.held: p.Decoded = p.ILLEGAL_WORD
        self.stop = Stop.TURN
        self.cause = Cause.NONE
        self.engine: Any = None
        self.done, self.late = -1, -1
        self.pending: deque[Pending] = deque()
        self.last_fire = -1
        self.full = False  # a signal waits for room
        self.version = self.fire_version = 0
        self.stall_channel = self.stall_engine = 0
        self._plan_fire, self._woken = plan_fire, woken
        self._player = self._play()
        #: Issues the held instruction in the given cycle, and runs ahead; returns why the warp stops.
        self.issue = self._player.send

    def turn(self, cycle: int) -> int:
        """The first turn of this warp in `cycle` or later."""
        return cycle + (self.index - cycle) % self.period

    def start(self) -> None:
        """Run ahead from the start, or from where the warp gave way to others."""
        self.stop = next(self._player)

    def close(self) -> None:
        """End the warp."""
        self._player.close()

    def _signal(self, t: int, channel: Channel, pc: int) -> int:
        """Issue a signal in the first cycle from `t` on with room, which is known; returns the cycle."""
        pending, last, fires = self.pending, self.last_fire, self.fires
        if last >= t:
            room, cycles = PENDING_SIGNALS - len(pending), fires.cycles
            if len(cycles) >= room and cycles[-room] >= t:
                self.stall_engine += cycles[-room] + self.period - t
                t = cycles[-room] + self.period
        cycle = t if t > self.done else self.turn(self.done + 1)
        if channel.private and not pending and self.late < 0 and cycle < NEVER:
            fire = cycle if cycle > last else last + self.period
            if len(channel.tokens) + len(channel.ahead) < channel.depth or not channel.full(fire):
                self.last_fire = fire
                fires.cycles.append(fire)
                fires.pcs.append(pc)
                channel.tokens.append(fire)
                if channel.waiting:
                    channel.waiting.pop().take(channel)
                return t
        pending.append(Pending(cycle, channel, pc, self.engine, self.late))
        if len(pending) == 1:
            self._plan_fire(self)
        return t

    def take(self, channel: Channel) -> None:
        """End a wait, as a token has come, and add the warp to `woken`."""
        cycle = self.turn(channel.tokens.popleft() + 1)
        if cycle < self.ready:
            cycle = self.ready
        channel.ahead.append(cycle)
        self.stall_channel += cycle - self.ready
        self._woken.append((self, cycle))

    def _fault(self, pc: int, cycle: int, cause: Cause) -> Stop:
        self.pc, self.ready, self.cause = pc, cycle, cause
        return Stop.FAULT

    def _play(self) -> Generator[Stop, int, None]:
        """Execute until something may hold the warp; the machine sends the cycle in which that issues."""
        code, size, regs, pending = self.code, self.imem_words, self.registers, self.pending
        issue_cycle, issue_pc, held = self.issues.cycles.append, self.issues.pcs.append, Stop.HELD
        loops: list[list[int]] = []  # first, last, turns left
        pc, t, index, period = 0, self.index, self.index, self.period
        last = -1  # the last pc of the innermost loop
        while len(self.issues.pcs) < INSTRUCTION_LIMIT:
            for _ in range(TURN):
                kind, guard, sense, a, b, c, turns, extra = code[pc]
                if guard >= 0 and (regs[guard] != 0) != sense:
                    turns = 1
                    self.voids.append(len(self.issues.pcs))
                elif kind >= WAIT:
                    if kind == WAIT and extra.alone and extra.tokens:
                        token = extra.tokens.popleft()
                        if token >= t:
                            token += 1 + (index - token - 1) % period
                            self.stall_channel += token - t
                            t = token
                        extra.ahead.append(t)
                    elif kind == SIGNAL and len(pending) < PENDING_SIGNALS:
                        t = self._signal(t, extra, pc)
                    elif kind in (p.PARAM, p.PARAM_I):
                        value = self.parameters[a] = (regs[b] if kind == p.PARAM else b) & MASK
                        if value >> extra:
                            yield self._fault(pc, t, Cause.OPERAND)
                    elif kind == p.ILLEGAL:
                        yield self._fault(pc, t, Cause.ILLEGAL_INSTRUCTION)
                    elif kind == p.WRAP:
                        pc = 0
                        continue
                    else:
                        self.pc, self.ready, self.held = pc, t, code[pc]
                        t = yield held
                        if kind == SIGNAL:
                            self._signal(t, extra, pc)
                elif kind >= BINARY:
                    try:
                        value = extra(regs[b], regs[c] if kind == BINARY else c)
                    except ZeroDivisionError:
                        yield self._fault(pc, t, Cause.DIVIDE_BY_ZERO)
                    if not -SMALL < value < SMALL:
                        value = wrap(value)
                    regs[a] = value
                elif kind == LI:
                    regs[a] = b
                elif kind == p.JUMP or (kind == p.LOOP and regs[a] <= 0):
                    issue_cycle(t)
                    issue_pc(pc)
                    t, pc = t + period, (pc + 1 + b) % size
                    continue
                elif kind == p.LOOP:
                    if len(loops) == self.loop_depth:
                        yield self._fault(pc, t, Cause.LOOP_DEPTH)
                    issue_cycle(t)
                    issue_pc(pc)
                    last = pc + b
                    loops.append([pc + 1, last, regs[a]])
                    t, pc = t + period, pc + 1
                    continue
                elif kind == p.HALT:
                    issue_cycle(t)
                    issue_pc(pc)
                    yield Stop.HALT
                elif kind != p.NOP:
                    self._move(kind, a, b, c, extra)
                issue_cycle(t)
                issue_pc(pc)
                t += turns * period
                if pc != last:
                    pc += 1
                    continue
                loop = loops[-1]
                loop[2] -= 1
                if loop[2]:
                    pc = loop[0]
                    continue
                loops.pop()
                pc, last = last + 1, loops[-1][1] if loops else -1
            self.pc, self.ready = pc, t
            yield Stop.TURN
        raise InputError(f"warp {self.index} must end within {INSTRUCTION_LIMIT} instructions, and does not")

    def _move(self, kind: int, a: int, b: int, c: int, extra: Any) -> None:
        """Execute `lih` or `select`."""
        regs = self.registers
        if kind == p.LIH:
            regs[a] = SEMANTICS["lih"].value(regs[a], b)
        else:
            regs[a] = regs[c] if regs[b] != 0 else regs[extra]
