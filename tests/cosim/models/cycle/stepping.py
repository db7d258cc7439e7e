"""A slow machine that steps through cycles: the oracle for the event-driven model.

It keeps the state that the hardware would keep (request registers, pipeline stages, queues, counts) and
examines it in every cycle. Errors: those of channels and of load_b_conv, and a deadlock.
"""

from __future__ import annotations

from collections import Counter, deque

import numpy as np

from cosim.job import Event, EventKind, Job, MachineError
from hw import isa
from hw.assembly import Code, decode
from hw.config import MachineConfig
from hw.isa import TIMING, Cause
from tests.cosim.models.cycle.stepping_grid import SlowGrid
from tests.cosim.models.cycle.stepping_loader import Base, Op, SlowLoader

HORIZON = 1 << 17
#: Of the storer: operation, what is read (space, bank of the accumulator), whether it is the last.
Beat = tuple[Op, tuple[int, int] | None, bool]
SCALAR = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "lt": lambda x, y: int(x < y),
}


class SlowGemm(Base):
    """The array: counts down the columns of a block, notes in which cycles it reads which bank."""

    def __init__(self, config: MachineConfig):
        super().__init__(config)
        self.blocks: deque[tuple[Op, int, int, bool]] = deque()  # operation, block row, column, last
        self.left = 0
        self.earliest = 0
        self.draining = 0  # the array's results leave until here
        self.reads: set[tuple[int, int]] = set()

    def step(self, t: int) -> None:
        if self.left == 0 and self.blocks and self.blocks[0][0].start + TIMING.gemm_first <= t:
            op, i, j, last = self.blocks[0]
            first = i == 0 and j == 0
            k = op.operands[3]
            if t >= (self.draining + TIMING.gemm_turn - k if first else self.earliest):
                self.blocks.popleft()
                self.left = k
                rows = min(self.config.rows, op.params["gemm_m"] - i * self.config.rows)
                self.earliest = t + max(k, rows)
                self.draining = t + k + rows
                for r in range(rows):
                    at = op.operands[2] + (i * self.config.rows + r) * op.params["gemm_c_pitch"] + j
                    bank = at // self.config.derived.acc_bank_words
                    self.reads.add((t + k + TIMING.gemm_drain + r, bank))
                if last:
                    op.done = t + k + TIMING.gemm_drain + rows - 1 + TIMING.acc_write
        if self.left:
            self.busy += 1
            self.left -= 1
        if self.offered(t) and not self.blocks and self.left == 0:
            op = self.queue.popleft()
            op.start = t
            self.taken.append(op)
            down, right = (
                -(-op.params["gemm_m"] // self.config.rows),
                -(-op.params["gemm_n"] // self.config.cols),
            )
            for i in range(down):
                for j in range(right):
                    self.blocks.append((op, i, j, (i, j) == (down - 1, right - 1)))


class SlowStorer(Base):
    """Read, choose, align, output: they stand still when memory refuses what the output holds."""

    def __init__(self, config: MachineConfig, latency: int, free: np.ndarray, gemm: SlowGemm):
        super().__init__(config)
        self.latency, self.free, self.gemm = latency, free, gemm
        self.todo: deque[Beat] = deque()
        self.chosen: Beat | None = None
        self.align: Beat | None = None
        self.output: Beat | None = None
        self.prepared = False  # whether the first operation of the queue was seen in the cycle before
        self.reads: set[tuple[int, int, int]] = set()  # cycle, space, bank of the accumulator

    def make(self, op: Op) -> None:
        memory, source, rows, size = op.operands
        w = self.config.store_bytes
        per_word, bank_words = 4 * self.config.cols // w, self.config.derived.acc_bank_words
        for row in range(rows):
            at = (memory + row * op.params["store_stride"]) % 2**32 % w
            for q in range(-(-(at + size) // w)):
                word = source + row * op.params["store_pitch"] + q // per_word
                space = ("store", "store_scratch", "store_out").index(op.name)
                bank = word // bank_words if space == 0 else 0
                op.beats.append((space, bank) if q < -(-size // w) else None)

    def step(self, t: int) -> None:
        moves = True
        if self.output is not None:
            if self.free[t]:
                self.busy += 1
                self.words += 1
                if self.output[2]:
                    self.output[0].done = t + self.latency + TIMING.store_response
            else:
                moves = False
                self.stall_memory += 1
        if moves:
            self.output, self.align, self.chosen = self.align, self.chosen, None
            if self.todo and self.todo[0][0].start < t:
                read = self.todo[0][1]
                if read is not None and read[0] == 0 and (t, read[1]) in self.gemm.reads:
                    self.stall_bank += 1
                else:
                    self.chosen = self.todo.popleft()
                    if read is not None:
                        self.reads.add((t, *read))
        if not self.prepared or self.todo or self.in_flight(t) >= TIMING.in_flight:
            self.prepared = self.offered(t)
            return
        op, self.prepared = self.queue.popleft(), False
        self.make(op)
        op.start = t
        self.taken.append(op)
        self.todo.extend((op, read, i == len(op.beats) - 1) for i, read in enumerate(op.beats))


class SlowWarp:
    """One sequencer; `step` issues the instruction at pc when nothing holds it."""

    def __init__(self, index: int, config: MachineConfig, words: list[int]):
        self.index, self.config = index, config
        self.code: list[Code] = [c for c in map(decode, words) if c is not None]
        self.pc = self.ready = 0
        self.regs = [0] * config.registers
        self.params = dict.fromkeys(isa.PARAMETERS, 0)
        self.loops: list[list[int]] = []
        self.halted = False
        self.ops: list[tuple[Base, Op]] = []
        self.signals: deque[tuple[int, int, list[Op]]] = deque()  # channel, pc, operations before
        self.stalls: Counter[str] = Counter()

    def advance(self, t: int, turns: int = 1, target: int | None = None) -> None:
        """Go on to the next instruction."""
        self.ready = t + turns * self.config.derived.period
        if target is None and self.loops and self.loops[-1][1] == self.pc:
            self.loops[-1][2] -= 1
            if self.loops[-1][2]:
                self.pc = self.loops[-1][0]
                return
            self.loops.pop()
        self.pc = self.pc + 1 if target is None else target

    def scalar(self, code: Code, t: int) -> None:
        """Execute anything that nothing holds."""
        f, regs = code.fields, self.regs
        target = None
        if code.name == "halt":
            self.halted = True
        elif code.name == "li":
            regs[f["rd"]] = f["imm"]
        elif code.name == "lih":
            regs[f["rd"]] = regs[f["rd"]] << 15 | f["imm"] & 0x7FFF
        elif code.name == "loop":
            if regs[f["rs1"]] > 0:
                self.ready, self.pc = t + 1, self.pc + 1
                self.loops.append([self.pc, self.pc + f["length"] - 1, regs[f["rs1"]]])
                return
            target = self.pc + 1 + f["length"]
        elif code.name == "jump":
            target = self.pc + 1 + f["offset"]
        elif code.name != "nop":
            second = f["imm"] if "imm" in f else regs[f["rs2"]]
            regs[f["rd"]] = SCALAR[code.name.removesuffix("i")](regs[f["rs1"]], second)
        regs[0] = 0
        self.advance(t, code.spec.turns, target)


class Stepping:
    """The machine; `run` gives events, counters and the error."""

    def __init__(self, config: MachineConfig, job: Job):
        self.config, self.job = config, job
        s = job.settings
        free = {p: s.available(p, np.arange(HORIZON)) for p in s.ports}
        self.engines: dict[str, Base] = {
            n: SlowLoader(config, n, s.ports[n].latency, free[n], job.windows)
            for n in ("load_a", "load_b", "load_c")
        }
        gemm = SlowGemm(config)
        storer = SlowStorer(config, s.ports["store"].latency, free["store"], gemm)
        self.engines |= {"gemm": gemm, "store": storer}
        self.grid: SlowGrid | None = None
        if config.cgra is not None:
            self.grid = self.engines["cgra"] = SlowGrid(config, job, storer, gemm)
        self.warps = [SlowWarp(i, config, words) for i, words in sorted(job.programs.items())]
        self.tokens = [0] * config.channels
        self.events: list[Event] = []
        self.errors: list[MachineError] = []
        self.failed = -1  # the cycle of the first error

    def run(self) -> tuple[list[Event], MachineError | None]:
        t = idle = 0
        while idle < 3000:
            before = len(self.events)
            busy = any(e.queue or e.in_flight(t) for e in self.engines.values())
            self.cycle(t)
            failed = [
                e.error for e in self.engines.values() if isinstance(e, SlowLoader | SlowGrid) and e.error
            ]
            if self.errors or failed:
                self.failed = t
                if self.grid is not None:
                    self.grid.outputs = [output for output in self.grid.outputs if output.cycle < t]
                events = [e for e in self.events if e.cycle < t]
                return sorted(events), min(
                    self.errors, key=lambda e: e.warp, default=next(iter(failed), None)
                )
            t += 1
            idle = 0 if busy or len(self.events) > before else idle + 1
            if not busy and all(w.halted and not w.signals for w in self.warps):
                return sorted(self.events), None
        held = next(w for w in self.warps if not w.halted)
        return sorted(self.events), MachineError(Cause.WATCHDOG, held.index, held.pc)

    def cycle(self, t: int) -> None:
        full = {name: e.full(t) for name, e in self.engines.items()}
        for engine in self.engines.values():
            engine.step(t)
            for op in engine.complete(t):
                self.events.append(Event(t, op.warp, EventKind.COMPLETE, op.pc))
                if self.grid is not None and engine is not self.grid:
                    self.grid.perform(op)
        tokens = list(self.tokens)
        for warp in self.warps:
            if warp.index != t % self.config.derived.period:
                continue
            room = len(warp.signals) < TIMING.pending_signals
            taken = None
            if not warp.halted and warp.ready <= t:
                taken = self.issue(warp, t, full, tokens, room)
            if warp.signals and all(-1 < op.done < t for op in warp.signals[0][2]):
                self.fire(warp, t, tokens, taken)

    def issue(self, warp, t, full, tokens, room) -> int | None:
        """Try the instruction of a warp in its turn; returns the channel of which it took a token."""
        code = warp.code[warp.pc]
        pc = warp.pc
        f = code.fields
        kind, taken = EventKind.ISSUE, None
        if (warp.regs[code.predicate] != 0) != code.sense:
            kind = EventKind.VOID
            warp.advance(t)
        elif code.name == "wait":
            channel = f["channel"]
            if tokens[channel] == 0:
                warp.stalls["channel"] += 1
                return None
            taken = channel
            self.tokens[channel] -= 1
            warp.advance(t)
        elif code.name == "signal":
            if not room:
                warp.stalls["engine"] += 1
                return None
            warp.signals.append((f["channel"], pc, [op for _, op in warp.ops]))
            warp.advance(t)
        elif code.spec.engine is not None:
            name = code.spec.engine
            engine = self.engines[name]
            other = any(e is not engine and (op.done == -1 or op.done >= t) for e, op in warp.ops)
            if other or full[name]:
                warp.stalls["engine"] += 1
                return None
            values = [warp.regs[f[x.name]] & 0xFFFFFFFF for x in code.spec.fields]
            op = Op(t, warp.index, pc, code.name, values, dict(warp.params))
            engine.queue.append(op)
            warp.ops.append((engine, op))
            warp.advance(t)
        elif code.name in ("param", "parami"):
            value = warp.regs[f["rs1"]] if code.name == "param" else f["imm"]
            warp.params[isa.BY_PARAMETER[f["parameter"]].name] = value & 0xFFFFFFFF
            warp.advance(t)
        else:
            warp.scalar(code, t)
        self.events.append(Event(t, warp.index, kind, pc))
        return taken

    def fire(self, warp, t, tokens, taken) -> None:
        channel, pc, _ = warp.signals.popleft()
        if tokens[channel] == self.config.channel_depth and channel != taken:
            self.errors.append(MachineError(Cause.CHANNEL_OVERFLOW, warp.index, pc))
        self.tokens[channel] += 1
        self.events.append(Event(t, warp.index, EventKind.SIGNAL, pc))

    def counters(self) -> dict[str, int]:
        """Counters as `hw.csr` names them, for the warps and engines that exist."""
        found = {}
        for w in self.warps:
            issued = [e for e in self.events if e.warp == w.index and e.kind <= EventKind.VOID]
            found[f"WARP{w.index}_INSTRUCTIONS"] = len(issued)
            found[f"WARP{w.index}_STALL_CHANNEL"] = w.stalls["channel"]
            found[f"WARP{w.index}_STALL_ENGINE"] = w.stalls["engine"]
        for name, e in self.engines.items():
            found[f"{name.upper()}_OPERATIONS"] = len(e.taken)
            found[f"{name.upper()}_BUSY"] = e.busy
            found[f"{name.upper()}_STALL_MEMORY"] = e.stall_memory
            found[f"{name.upper()}_STALL_BANK"] = e.stall_bank
            found[f"{name.upper()}_WORDS"] = e.words
        return found
