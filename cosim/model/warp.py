"""The sequencer of one warp: runs ahead through everything that nothing holds.

Registers, parameters, loops and jumps depend on nothing outside the warp, so issue cycles up to the
next `wait`, `signal` or engine operation follow at once; the machine decides when those issue.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Generator
from typing import Any, NamedTuple

from cosim.job import EventKind
from cosim.model import program as p
from hw.config import MachineConfig
from hw.errors import InputError
from hw.isa import PARAMETERS, Cause

MASK = 0xFFFFFFFF
#: More issued instructions than this in one warp count as a program that does not end.
INSTRUCTION_LIMIT = 10_000_000
#: Instructions after which other warps get their turn, in case the program does not end.
TURN = 20_000


class Stop(enum.Enum):
    """Why a warp stopped running ahead."""

    HELD = "at a wait, a signal or an engine operation"
    TURN = "other warps come first"
    HALT = "halted"
    FAULT = "error"


class Pending(NamedTuple):
    """A signal that has issued and not fired; it follows operation `operation` of `engine`."""

    cycle: int
    channel: int
    pc: int
    engine: Any
    operation: int


class Warp:
    """State of a warp between two decisions of the machine.

    `ready` is the first cycle in which the instruction at `pc` may issue; `version` distinguishes the
    valid attempt to issue from outdated ones, `fire_version` does so for the next signal.
    """

    def __init__(self, index: int, config: MachineConfig, words: list[int]):
        self.index = index
        self.issues: list[tuple[int, int, EventKind, int]] = []  # events
        self.code = p.decode(config, words)
        self.imem_words, self.loop_depth = config.imem_words, config.loop_depth
        self.pc = self.ready = 0
        self.registers = [0] * config.registers
        self.parameters = [0] * len(PARAMETERS)
        self.loops: list[list[int]] = []  # first, last, turns left
        self.held: p.Decoded = p.ILLEGAL_WORD
        self.stop = Stop.TURN
        self.cause = Cause.NONE
        self.engine: Any = None  # that of the latest operation
        self.operation = -1
        self.pending: deque[Pending] = deque()
        self.last_fire = -1
        self.full = False  # a signal waits for room
        self.version = self.fire_version = 0
        self.stall_channel = self.stall_engine = 0
        self._player = self._play()

    def start(self) -> Stop:
        """Run ahead from the start, or from where other warps got their turn."""
        self.stop = next(self._player)
        return self.stop

    def issue(self, cycle: int) -> Stop:
        """Issue the instruction that is held, in `cycle`, and run ahead behind it."""
        self.stop = self._player.send(cycle)
        return self.stop

    def _loop_end(self) -> int:
        """The pc after the last instruction of the innermost loop."""
        loop = self.loops[-1]
        loop[2] -= 1
        if loop[2] > 0:
            return loop[0]
        self.loops.pop()
        return (loop[1] + 1) % self.imem_words

    def _play(self) -> Generator[Stop, int, None]:
        """Execute until something may hold the warp; go on with the cycle in which it issues."""
        code, size, loops = self.code, len(self.code), self.loops
        regs, params = self.registers, self.parameters
        emit, index, issue = self.issues.append, self.index, EventKind.ISSUE
        fine, held = Cause.NONE, Stop.HELD  # names of members cost a look-up in every instruction
        pc = t = 0
        while len(self.issues) < INSTRUCTION_LIMIT:
            for _ in range(TURN):
                kind, guard, sense, a, b, c, cycles, extra = word = code[pc] if pc < size else p.ILLEGAL_WORD
                cause = fine
                following = pc + 1
                if kind == p.ILLEGAL:
                    cause = Cause.ILLEGAL_INSTRUCTION
                elif guard >= 0 and (regs[guard] != 0) != sense:
                    cycles = 1
                elif kind >= p.WAIT:
                    self.pc, self.ready, self.held = pc, t, word
                    t = yield held
                elif kind == p.BINARY or kind == p.BINARY_I:
                    try:
                        value = extra(regs[b], regs[c] if kind == p.BINARY else c)
                        regs[a] = (value + 0x80000000 & MASK) - 0x80000000
                    except ZeroDivisionError:
                        cause = Cause.DIVIDE_BY_ZERO
                elif kind == p.PARAM or kind == p.PARAM_I:
                    value = params[a] = (regs[b] if kind == p.PARAM else b) & MASK
                    if value >> extra:
                        cause = Cause.OPERAND
                elif kind == p.LOOP:
                    if regs[a] <= 0:
                        emit((t, index, issue, pc))
                        t, pc = t + 1, (following + b) % self.imem_words
                        continue
                    if len(loops) == self.loop_depth:
                        cause = Cause.LOOP_DEPTH
                    else:
                        emit((t, index, issue, pc))
                        loops.append([pc + 1, pc + b, regs[a]])
                        t, pc = t + 1, following
                        continue
                elif kind == p.JUMP:
                    emit((t, index, issue, pc))
                    t, pc = t + 1, (following + a) % self.imem_words
                    continue
                elif kind == p.HALT:
                    emit((t, index, issue, pc))
                    yield Stop.HALT
                elif kind != p.NOP:
                    self._move(kind, a, b, c, extra)
                if cause is not fine:
                    self.pc, self.ready, self.cause = pc, t, cause
                    yield Stop.FAULT
                regs[0] = 0
                emit((t, index, issue, pc))
                t += cycles
                pc = self._loop_end() if loops and loops[-1][1] == pc else following % self.imem_words
            self.ready = t
            yield Stop.TURN
        raise InputError(f"warp {index} must end within {INSTRUCTION_LIMIT} instructions, and does not")

    def _move(self, kind: int, a: int, b: int, c: int, extra: Any) -> None:
        """`li`, `lih` and `select`."""
        regs = self.registers
        if kind == p.LI:
            value = b
        elif kind == p.LIH:
            value = regs[a] << 15 | b & 0x7FFF
        else:
            value = regs[c] if regs[b] != 0 else regs[extra]
        regs[a] = (value + 0x80000000 & MASK) - 0x80000000
