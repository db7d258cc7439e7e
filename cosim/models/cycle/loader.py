"""A loader. Each operation has a closed form, since it waits only for its port and earlier operations."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from cosim.job import Window
from cosim.models.cycle.checks import (
    NEVER,
    byte_outside_buffer,
    permitted,
    row_outside_windows,
)
from cosim.models.cycle.engine import EngineModel
from cosim.models.cycle.memory_port import Port
from cosim.models.cycle.patches import GEOMETRY_INDICES, Geometry, Patches
from cosim.models.cycle.rows import RowBeats
from cosim.models.cycle.sharing import Operation
from hw.config import BufferShape, MachineConfig
from hw.isa import PARAMETERS, TIMING, Cause
from hw.semantics import MASK

STRIDE, PITCH, PAD_OUTER, PAD_INNER = (
    PARAMETERS[f"load_{x}"].index for x in ("stride", "pitch", "pad_outer", "pad_inner")
)


_KEY = itemgetter(STRIDE, PITCH, PAD_OUTER, PAD_INNER)
_PATCHES_KEY = itemgetter(*GEOMETRY_INDICES)
IN_FLIGHT = TIMING.in_flight


class LoadPlan(NamedTuple):
    """What an operation does, apart from its address (only the alignment matters).

    Rows start `stride` bytes apart; the last byte is `span` bytes after the first if addresses do not wrap.
    `fill` fill beats follow each row, and rows of `tail_beats` fill beats follow the last one. `after` beats
    in all follow the last memory beat; `moved` is the number of all beats. `outside` is the row and beat of
    the first byte outside the buffer.
    """

    wrong: bool
    stride: int
    span: int
    beats: RowBeats
    fill: int
    tail_beats: int
    after: int
    moved: int
    outside: tuple[int, int] | None

    @property
    def fails(self) -> bool:
        """Whether operands or the end of a buffer make it fail, whatever else happens."""
        return self.wrong or self.outside is not None


class LoaderModel(EngineModel):
    """The schedule of one loader; `busy`, `stall_memory` and `words` are its counters."""

    def __init__(self, name: str, config: MachineConfig, port: Port, windows: Sequence[Window]):
        super().__init__(name, config)
        d = config.derived
        shapes: dict[str, BufferShape] = {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}
        self.shape = shapes[name]
        self.width, self.port, self.windows = config.port_bytes(name), port, permitted(windows, write=False)
        self.always = port.period == 1
        self.busy = self.stall_memory = self.stall_bank = self.words = 0
        self._over = False  # a request error stops all requests
        self._free = 0  # the cycle after e of the last beat so far, or after the last step of patches
        self._passed = 0  # x of the last beat so far
        self._written = -1  # y of the last beat so far
        # Operations repeat, at other addresses.
        self._plans: dict[tuple[object, ...], LoadPlan | Patches | None] = {}

    def plan(
        self, operation: Operation, fetched: Sequence[int], params: Sequence[int]
    ) -> LoadPlan | Patches | None:
        """Plan an operation from its operands and the warp's parameters; None if an operand is too large."""
        memory, target, outer, inner = fetched
        name = operation.name
        patches = name == "load_b_conv"
        values = _PATCHES_KEY(params) if patches else _KEY(params)
        key = (name, memory % self.width, target, outer, inner, values)
        try:
            return self._plans[key]
        except KeyError:
            operands = operation.operands(fetched)
            plan: LoadPlan | Patches | None = None
            if operands is not None:
                if patches:
                    geometry = Geometry(memory % self.width, *operands[1:], *values)
                    plan = Patches(geometry, self.shape, self.width)
                else:
                    plan = self._plan(name, operands, *values)
            self._plans[key] = plan
            return plan

    def issue(self, t: int, warp: int, pc: int, plan: LoadPlan | Patches, fetched: Sequence[int]) -> None:
        """Add the operation that issues in cycle `t`."""
        starts, completions, memory, row = self.starts, self.completions, fetched[0] & MASK, None
        over = self._over
        if over:
            starts.append(NEVER)
            completions.append(NEVER)
            return
        start = t + TIMING.enqueue
        if start < self._free:
            start = self._free
        if len(completions) >= IN_FLIGHT and start <= completions[-IN_FLIGHT]:
            start = completions[-IN_FLIGHT] + 1
        starts.append(start)
        enter = start + TIMING.load_request - 1
        if enter < self._passed:
            enter = self._passed
        if isinstance(plan, Patches):
            self._issue_patches(plan, enter, memory, warp, pc)
            return
        for low, high in self.windows:
            if low <= memory and memory + plan.span <= high:
                break
        else:
            beats = plan.beats
            row = row_outside_windows(self.windows, memory, plan.stride, beats.size, beats.rows)
        if plan.wrong or plan.outside is not None or row is not None:
            self._find_faults(plan, enter, row, warp, pc)
            if self.fault is not None and enter + plan.moved > self.fault.cycle:
                self._over = True
            if self._over:
                completions.append(NEVER)
                return
        if self.always:
            self._free = self._passed = enter + plan.moved
        else:
            self._pass_port(plan, enter)
        self.busy += plan.moved
        self.words += plan.beats.total
        self._complete(self._passed + self.port.latency)

    def _complete(self, written: int) -> None:
        """Add the completion of an operation whose last beat is written in `written`; NEVER after a fault."""
        self._written = written
        self.completions.append(NEVER if self.fault is not None else written + TIMING.load_write)

    def _issue_patches(self, plan: Patches, enter: int, memory: int, warp: int, pc: int) -> None:
        """Add an operation that forms patches; its first step happens in cycle `enter`."""
        # Setup steps write nothing. `written` counts as if they did, so that step `conv_setup` is the first
        # write.
        outside, written = plan.outside, max(enter + 2, self._written + 1 - TIMING.conv_setup)
        if plan.wrong:
            self._refuse(enter, Cause.OPERAND, warp, pc)
        else:
            window = self._step_outside_windows(plan, memory)
            if outside is not None and (window is None or outside < window):
                self._fail_write(plan.written(self.port, enter, written, outside), warp, pc)
            if window is not None:
                self._refuse(plan.reach(self.port, enter, window), Cause.WINDOW, warp, pc)
        if self.fault is not None and enter + plan.steps > self.fault.cycle:
            self._over = True
        if self._over:
            self.completions.append(NEVER)
            return
        last, self._passed = plan.finish(self.port, enter)
        self._free = last + 1
        self.busy += plan.steps
        self.words += plan.words
        self.stall_memory += self._passed - enter - plan.steps
        last = self._passed + self.port.latency if plan.reads else written + plan.steps - 1
        self._complete(last)

    def _refuse(self, enter: int, cause: Cause, warp: int, pc: int) -> None:
        """Record an error of the beat or step that would enter in `enter`; nothing is taken after it."""
        self.fail(enter + TIMING.load_error, cause, warp, pc)
        self._over = True

    def _fail_write(self, written: int, warp: int, pc: int) -> None:
        """Record an error of a write in cycle `written`."""
        self.fail(written + TIMING.load_write - 1, Cause.BUFFER_RANGE, warp, pc)

    def _step_outside_windows(self, plan: Patches, memory: int) -> int | None:
        """The first step of an operation whose row is outside the windows."""
        first, last = memory + plan.low, memory + plan.high
        for low, high in self.windows:
            if low <= first and last <= high:
                return None
        return plan.outside_windows(self.windows, memory)

    def _find_faults(self, plan: LoadPlan, enter: int, row: int | None, warp: int, pc: int) -> None:
        """Find the errors of an operation; `row` is its first row outside the windows."""
        if plan.wrong:
            self._refuse(enter, Cause.OPERAND, warp, pc)
            return
        at = plan.outside
        if at is not None and (row is None or at < (row, 0)):
            # The write comes with the answer, so a later beat may be requested and fail before. In the same
            # cycle, the error of the write counts.
            x = self._reach(plan, enter, *at)
            in_memory = at[0] < plan.beats.rows and at[1] < plan.beats.count(at[0])
            x = self.port.after(x + 1, 1) if in_memory else x + 1
            self._fail_write(x + self.port.latency, warp, pc)
        if row is not None:
            self._refuse(self._reach(plan, enter, row, 0), Cause.WINDOW, warp, pc)

    def _plan(
        self, name: str, operands: Sequence[int], stride: int, pitch: int, pad_outer: int, pad_inner: int
    ) -> LoadPlan:
        """Plan an operation; `wrong` if its operands do not fit together."""
        memory, target, outer, inner = operands
        lanes, banks, width = self.shape.lanes, self.shape.banks, self.width
        transposed = name.endswith("_t")
        wrong = outer == 0 or inner == 0
        if transposed and inner + pad_inner > lanes and (pitch - lanes) % banks:
            wrong = True
        beats = RowBeats(memory, stride, max(1, inner), max(1, outer), width)
        outside = None
        size = outer + pad_outer, inner + pad_inner
        byte = None if wrong else byte_outside_buffer(self.shape, target, pitch, transposed, *size)
        if byte is not None:
            row, k = byte
            if row >= outer:
                outside = row, k // width
            elif k < inner:
                outside = row, ((memory + row * stride) % width + k) // width
            else:
                outside = row, beats.count(row) + (k - inner) // width
        fill, tail_beats = -(-pad_inner // width), -(-(inner + pad_inner) // width)
        after = fill + pad_outer * tail_beats
        moved = beats.total + (beats.rows - 1) * fill + after
        span = (outer - 1) * stride + inner - 1
        return LoadPlan(wrong, stride, span, beats, fill, tail_beats, after, moved, outside)

    def _pass_rows(self, plan: LoadPlan, x: int, rows: int) -> int:
        """Cycle in which the first `rows` rows and their fill beats have passed; the first enters in `x`."""
        beats, fill = plan.beats, plan.fill
        if rows == 0:
            return x
        if self.always:
            return x + beats.start(rows) + rows * fill
        if fill == 0:
            return self.port.after(x + 1, beats.start(rows))
        for row in range(rows):
            x = self.port.after(x + 1, beats.count(row)) + fill
        return x

    def _reach(self, plan: LoadPlan, x: int, row: int, beat: int) -> int:
        """The cycle in which a beat enters, if the first beat of the operation enters in `x`."""
        beats = plan.beats
        x = self._pass_rows(plan, x, min(row, beats.rows))
        if row >= beats.rows:
            return x + (row - beats.rows) * plan.tail_beats + beat
        from_memory = min(beat, beats.count(row))
        if from_memory:
            x = self.port.after(x + 1, from_memory)
        return x + beat - from_memory

    def _pass_port(self, plan: LoadPlan, enter: int) -> None:
        """Pass all beats of an operation through a port that does not accept one in every cycle."""
        beats = plan.beats
        x, count = enter, beats.total
        if plan.fill:
            last = beats.rows - 1
            x, count = self._pass_rows(plan, enter, last), beats.count(last)
        self._passed = self.port.after(x + 1, count) + plan.after
        if plan.after:
            self._free = self._passed
        else:
            self._free = (self.port.after(x + 1, count - 1) if count > 1 else x) + 1
        self.stall_memory += self._passed - enter - plan.moved
