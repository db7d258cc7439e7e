"""Operations, engines and loaders of the slow machine (`stepping`): beats and steps one by one."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from cosim.job import MachineError, Window
from hw.config import MachineConfig
from hw.isa import TIMING, Cause


@dataclass
class Op:
    """An operation somewhere between issue and completion."""

    t: int
    warp: int
    pc: int
    name: str
    operands: list[int]
    params: dict[str, int]
    beats: list = field(default_factory=list)
    start: int = -1
    done: int = -1


@dataclass
class Step:
    """A beat, or a step of load_b_conv: whether it asks memory for a word, ends its operation, must fail.

    What is requested fails with `cause`; `outside` says that what is written does not lie in the buffer.
    `entered` is the cycle in which it enters the request register, or passes by.
    """

    memory: bool = False
    last: bool = False
    cause: Cause | None = None
    outside: bool = False
    entered: int = -1


class Base:
    """What engines share: a queue, the operations taken, the operations completed."""

    def __init__(self, config: MachineConfig):
        self.config = config
        self.queue: deque[Op] = deque()
        self.taken: list[Op] = []
        self.busy = self.stall_memory = self.stall_bank = self.words = 0

    def full(self, t: int) -> bool:
        """Whether the queue is full in cycle t, before the engine takes anything in it."""
        return len(self.queue) >= self.config.queue_depth

    def offered(self, t: int) -> bool:
        """Whether the queue has an operation for the engine in cycle t."""
        if self.taken and t < self.taken[-1].start + TIMING.next_offer:
            return False
        return bool(self.queue) and self.queue[0].t + TIMING.enqueue <= t

    def in_flight(self, t: int) -> int:
        return sum(op.done == -1 or op.done >= t for op in self.taken)

    def complete(self, t: int) -> list[Op]:
        return [op for op in self.taken if op.done == t]


class SlowLoader(Base):
    """A loader with one request register; load_b_conv goes through steps, any other load through beats.

    Requesting and writing halves keep a list each of what is left. The writing half does one thing in a
    cycle, and what memory answers it must take in that cycle.
    """

    def __init__(
        self, config: MachineConfig, name: str, latency: int, free: np.ndarray, windows: tuple[Window, ...]
    ):
        super().__init__(config)
        self.width, self.latency, self.free = config.port_bytes(name), latency, free
        self.windows = [w for w in windows if w.read]
        self.shape = config.derived.buffer_b  # of the patches
        self.todo: deque[tuple[Op, Step]] = deque()
        self.writes: deque[tuple[Op, Step]] = deque()
        self.stepped = -1  # the latest beat or step
        self.register: Op | None = None
        self.fills = False  # what the register holds
        self.answers: deque[int] = deque()
        self.error: MachineError | None = None
        self.told: list[tuple[int, MachineError]] = []  # errors, and the cycle of each
        self.over = False  # nothing enters any more
        self.wrong: Op | None = None  # what was written beside the buffer

    def fail(self, t: int, op: Op, cause: Cause) -> None:
        """Keep an error of cycle t, behind those of earlier cycles and of what was found sooner."""
        self.told.append((t, MachineError(cause, op.warp, op.pc)))
        self.told.sort(key=lambda told: told[0])

    def make(self, op: Op) -> list[Step]:
        memory, _, outer, inner = op.operands
        p, w = op.params, self.width
        kinds = []
        for row in range(outer):
            at = (memory + row * p["load_stride"]) % 2**32 % w
            kinds += [True] * -(-(at + inner) // w) + [False] * -(-p["load_pad_inner"] // w)
        kinds += [False] * (p["load_pad_outer"] * -(-(inner + p["load_pad_inner"]) // w))
        return [Step(memory) for memory in kinds]

    def refused(self, op: Op) -> bool:
        """Whether the operands of a load_b_conv are wrong."""
        g = {name.removeprefix("conv_"): value for name, value in op.params.items()}
        nonzero = ["height", "width", "out_rows", "out_cols", "kernel_h", "kernel_w"]
        nonzero += ["stride_h", "stride_w", "dilation_h", "dilation_w"]
        if 0 in op.operands[2:] or any(g[name] == 0 for name in nonzero):
            return True
        if g["load_stride"] % self.width or g["line"] % self.width:
            return True
        if max(g["out_rows"] * g["out_cols"], op.operands[2] * g["kernel_h"] * g["kernel_w"]) >= 2**16:
            return True
        return g["load_pitch"] % self.shape.banks != self.shape.lanes % self.shape.banks

    def make_patches(self, op: Op) -> list[Step]:
        """The steps of a load_b_conv, pixel by pixel."""
        memory, target, outer, inner = op.operands
        g = {name.removeprefix("conv_"): value for name, value in op.params.items()}
        w, lanes = self.width, self.shape.lanes
        steps = [Step() for _ in range(TIMING.conv_setup)]
        shift = (memory - g["left"]) % w
        beats = -(-(shift + g["width"]) // w)
        in_memory = range(g["left"], g["left"] + inner)
        for y in range(g["height"]):
            steps += [Step() for _ in range(g["kernel_h"] + TIMING.conv_settle)]
            uses = [
                (i, r)
                for i in range(g["kernel_h"])
                for r in range(g["out_rows"])
                if y == r * g["stride_h"] + i * g["dilation_h"]
            ]
            row_in_memory = g["top"] <= y < g["top"] + g["rows"]
            for channel, b, (i, r), j in product(range(outer), range(beats), uses, range(g["kernel_w"])):
                step = Step()
                pixels = range(b * w - shift, b * w - shift + w)
                if (i, j) == (uses[0][0], 0):
                    step.memory = row_in_memory and any(x in in_memory for x in pixels)
                    address = (memory + channel * g["load_stride"] + (y - g["top"]) * g["line"]) % 2**32
                    if b == 0 and row_in_memory and not self.permitted(address, address + inner - 1):
                        step.cause = Cause.WINDOW
                for c in range(g["out_cols"]):
                    x = c * g["stride_w"] + j * g["dilation_w"]
                    place, depth = r * g["out_cols"] + c, (channel * g["kernel_h"] + i) * g["kernel_w"] + j
                    column = target + place // lanes * g["load_pitch"] + depth
                    if x in pixels and x < g["width"] and column >= self.shape.columns:
                        step.outside = True
                steps.append(step)
                if step.cause:
                    return steps  # nobody gets further
        return steps

    def permitted(self, first: int, last: int) -> bool:
        return any(w.first <= first and last <= w.last for w in self.windows)

    def step(self, t: int) -> None:
        if self.told and self.told[0][0] == t:
            self.error = self.error or self.told.pop(0)[1]
        self.request(t)
        self.write(t)
        rests = self.stepped == t  # what is behind it is taken a cycle later
        room = not self.todo and not rests and not self.over and self.in_flight(t) < TIMING.in_flight
        if self.offered(t) and room:
            op = self.queue.popleft()
            op.start = t
            self.taken.append(op)
            if op.name == "load_b_conv" and self.refused(op):
                steps = [Step(cause=Cause.OPERAND) for _ in range(TIMING.conv_setup)]
            else:
                steps = self.make_patches(op) if op.name == "load_b_conv" else self.make(op)
            steps[-1].last = True
            self.todo.extend((op, step) for step in steps)
            # Steps of the setup are not written.
            written = steps[TIMING.conv_setup :] if op.name == "load_b_conv" else steps
            self.writes.extend((op, step) for step in written)

    def request(self, t: int) -> None:
        """Present what the register holds, then let the next beat or step in if there is room."""
        if self.register is not None:
            if self.fills or self.free[t]:
                self.busy += self.register.name != "load_b_conv"
                if not self.fills:
                    self.words += 1
                    self.answers.append(t + self.latency)
                self.register = None
            else:
                self.stall_memory += 1
        if self.over:
            return
        if self.register is None and self.todo and self.todo[0][0].start + TIMING.load_request <= t + 1:
            op, step = self.todo.popleft()
            step.entered = t
            patches = op.name == "load_b_conv"
            self.busy += patches
            self.stepped = t
            if step.cause:
                self.fail(t + TIMING.load_error, op, step.cause)
                self.over = True
            elif step.memory or not patches:
                self.register, self.fills = op, not step.memory

    def write(self, t: int) -> None:
        """Write what is due: an answer, or what needs none."""
        if self.answers and self.answers[0] == t:
            assert self.writes[0][1].memory, "the writing half is late"
        if not self.writes:
            return
        op, step = self.writes[0]
        if step.memory:
            if not self.answers or self.answers[0] != t:
                return
            self.answers.popleft()
        elif not 0 <= step.entered <= t - 2:
            return
        self.writes.popleft()
        if step.outside:
            if self.wrong is None:
                self.fail(t + TIMING.load_write - 1, op, Cause.BUFFER_RANGE)
            self.wrong = op
        elif step.last:
            op.done = t + TIMING.load_write
