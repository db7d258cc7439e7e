"""A loader: every operation in closed form, since it waits for nothing but its port and its own past."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from cosim.job import Window
from cosim.model.checks import (
    NEVER,
    BufferUse,
    Fault,
    byte_outside_buffer,
    engine_fault,
    permitted,
    row_outside_windows,
)
from cosim.model.memory_port import AlwaysPort, Port
from cosim.model.rows import RowBeats
from hw.config import ENGINES, BufferShape, MachineConfig
from hw.isa import PARAMETERS, TIMING, Cause

STRIDE, PITCH, PAD_OUTER, PAD_INNER = (
    PARAMETERS[f"load_{x}"].index for x in ("stride", "pitch", "pad_outer", "pad_inner")
)


class Plan(NamedTuple):
    """What an operation does, apart from its address (of which only the alignment counts).

    `fill` fill beats follow each row; `tail_rows` rows of `tail_beats` fill beats follow the last one.
    `outside` is the row and beat of the first byte outside the buffer.
    """

    wrong: bool
    beats: RowBeats
    fill: int
    tail_rows: int
    tail_beats: int
    outside: tuple[int, int] | None


class Loader:
    """The schedule of one loader: `starts` and `completions` hold s and c of each operation.

    `fault` is the first error, `busy` and `stall_memory` count as the counters do.
    """

    def __init__(self, name: str, config: MachineConfig, port: Port, windows: Sequence[Window]):
        d = config.derived
        shapes: dict[str, BufferShape] = {"load_a": d.buffer_a, "load_b": d.buffer_b, "load_c": d.scratch}
        self.number, self.shape = ENGINES.index(name), shapes[name]
        self.width, self.port, self.windows = config.port_bytes(name), port, permitted(windows, write=False)
        self.always = isinstance(port, AlwaysPort)
        self.starts: list[int] = []
        self.completions: list[int] = []
        self.fault: Fault | None = None
        self.issued_at = -1
        self.busy = self.stall_memory = self.stall_bank = 0
        self._entered = 0  # e of the last beat so far
        self._passed = 0  # x of the last beat so far
        self._plans: dict[tuple[object, ...], Plan] = {}  # operations repeat, at other addresses

    def issue(
        self, t: int, warp: int, pc: int, name: str, operands: Sequence[int], params: Sequence[int]
    ) -> None:
        """Add the operation that issues in cycle `t`, with its operands and the warp's parameters."""
        self.issued_at = t
        start, done = NEVER, NEVER
        if self.fault is None:
            start = max(t + 1, self._entered)
            if len(self.completions) >= TIMING.in_flight:
                start = max(start, self.completions[-TIMING.in_flight] + 1)
            done = self._execute(start, warp, pc, name, operands, params)
        self.starts.append(start)
        self.completions.append(done)

    def _execute(
        self, s: int, warp: int, pc: int, name: str, operands: Sequence[int], params: Sequence[int]
    ) -> int:
        """Move the engine through an operation taken in `s`; returns its completion, or NEVER."""
        memory, target, outer, inner = operands
        stride = params[STRIDE]
        pads = params[PITCH], params[PAD_OUTER], params[PAD_INNER]
        key = (name, memory % self.width, target, outer, inner, stride, pads)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(name, operands, stride, *pads)
        if plan.wrong:
            self.fault = engine_fault(s, self.number, Cause.OPERAND, warp, pc)
            return NEVER
        enter = max(s + TIMING.load_request - 1, self._passed)
        row = row_outside_windows(self.windows, memory, stride, inner, outer)
        if row is not None or plan.outside is not None:
            cause, at = Cause.BUFFER_RANGE, plan.outside
            if row is not None and (at is None or (row, 0) <= at):
                cause, at = Cause.WINDOW, (row, 0)
            assert at is not None
            self.fault = engine_fault(self._reach(plan, enter, *at), self.number, cause, warp, pc)
            return NEVER
        return self._finish(plan, enter)

    def _plan(
        self, name: str, operands: Sequence[int], stride: int, pitch: int, pad_outer: int, pad_inner: int
    ) -> Plan:
        """What an operation does; `wrong` when its operands do not fit together."""
        memory, target, outer, inner = operands
        lanes, banks, width = self.shape.lanes, self.shape.banks, self.width
        transposed = name.endswith("_t")
        wrong = outer == 0 or inner == 0
        if transposed and inner + pad_inner > lanes and (pitch - lanes) % banks:
            wrong = True
        beats = RowBeats(memory, stride, max(1, inner), max(1, outer), width)
        outside = None
        use = BufferUse(lanes, self.shape.columns, target, pitch)
        byte = None if wrong else byte_outside_buffer(use, transposed, outer + pad_outer, inner + pad_inner)
        if byte is not None:
            row, k = byte
            if row >= outer:
                outside = row, k // width
            elif k < inner:
                outside = row, ((memory + row * stride) % width + k) // width
            else:
                outside = row, beats.count(row) + (k - inner) // width
        fill, tail_beats = -(-pad_inner // width), -(-(inner + pad_inner) // width)
        return Plan(wrong, beats, fill, pad_outer, tail_beats, outside)

    def _pass_rows(self, plan: Plan, x: int, rows: int) -> int:
        """Pass of the last beat of the first `rows` rows with their fill beats, the first entering in `x`."""
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

    def _reach(self, plan: Plan, x: int, row: int, beat: int) -> int:
        """The cycle in which a beat enters, when the first beat of the operation enters in `x`."""
        beats = plan.beats
        x = self._pass_rows(plan, x, min(row, beats.rows))
        if row >= beats.rows:
            return x + (row - beats.rows) * plan.tail_beats + beat
        from_memory = min(beat, beats.count(row))
        if from_memory:
            x = self.port.after(x + 1, from_memory)
        return x + beat - from_memory

    def _finish(self, plan: Plan, enter: int) -> int:
        """Pass all beats of an operation; returns its completion."""
        beats, fill = plan.beats, plan.fill
        last = beats.rows - 1
        if fill == 0 or self.always:  # memory beats in one run: fill beats between them only add cycles
            x, count = enter + last * fill, beats.total
        else:
            x, count = self._pass_rows(plan, enter, last), beats.count(last)
        x_memory = self.port.after(x + 1, count)
        tail = plan.tail_rows * plan.tail_beats
        after = fill + tail
        self._passed = x_memory + after
        if after:
            self._entered = self._passed - 1
        else:
            self._entered = self.port.after(x + 1, count - 1) if count > 1 else x
        moved = beats.total + beats.rows * fill + tail
        self.busy += moved
        self.stall_memory += self._passed - enter - moved
        return x_memory + self.port.latency + after + TIMING.load_write
