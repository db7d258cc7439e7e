"""The steps of a `load_b_conv`: how many there are, which request a memory word, and which one fails.

Each image row that the kernel uses takes one step for every channel, every beat, and every kernel element
that lands on it. Only the first step of a beat can wait for memory. So an operation is described by its
number of steps and the positions of the memory beats among them; of the address, only the alignment matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cosim.models.cycle.checks import row_outside_windows
from cosim.models.cycle.memory_port import Port, RequestRun
from hw.config import BufferShape
from hw.isa import INSTRUCTIONS, PARAMETERS, SIZE_BITS, TIMING
from hw.semantics import MASK

#: Indices of the parameters that follow the operands in a `Geometry`, in its order.
GEOMETRY_INDICES = tuple(
    PARAMETERS[name].index for name in INSTRUCTIONS["load_b_conv"].parameters if name != "load_fill"
)


class Geometry(NamedTuple):
    """Operands and parameters of a `load_b_conv` as in docs/machine.md, without their prefixes.

    `memory` is the address modulo the port's bytes. `channels` and `inner` are the operands `outer` and
    `inner`. Lengths are in bytes, which are pixels.
    """

    memory: int
    target: int
    channels: int
    inner: int
    stride: int
    pitch: int
    line: int
    height: int
    width: int
    top: int
    left: int
    rows: int
    out_rows: int
    out_cols: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int


class Segment(NamedTuple):
    """Memory beats that follow one rule: steps of the first and last request, and the rule."""

    first: int
    last: int
    run: RequestRun


class Patches:
    """What a `load_b_conv` does, apart from its address (only the alignment matters).

    `wrong` operands, including sizes that are too large, are refused in the first step. The operation has
    `steps` steps; the first that leaves the buffer is `outside`; `reads` says whether it reads memory. The
    rows that windows must permit lie from `low` to `high` bytes after its address if addresses do not wrap (0
    and -1 if there are none). Source: docs/machine.md, "Patches (load_b_conv)".
    """

    __slots__ = (
        "_beats",
        "_first",
        "_memory_rows",
        "_passes",
        "_row_steps",
        "_rows",
        "_segments",
        "geometry",
        "high",
        "low",
        "outside",
        "reads",
        "steps",
        "words",
        "wrong",
    )

    def __init__(self, geometry: Geometry, shape: BufferShape, width: int):
        g = self.geometry = geometry
        self._passes: dict[int, tuple[int, int]] = {}  # for a periodic port, by phase in the period
        self.steps, self.low, self.high = TIMING.conv_setup, 0, -1
        self.outside: int | None = None
        self.reads = False
        depth = g.channels * g.kernel_h * g.kernel_w
        self.wrong = (
            0 in (g.channels, g.inner, g.height, g.width, *g[-8:])
            or g.stride % width != 0
            or g.line % width != 0
            or (g.pitch - shape.lanes) % shape.banks != 0
            or max(g.out_rows * g.out_cols, depth) >> SIZE_BITS > 0
        )
        if self.wrong:
            return
        shift = (g.memory - g.left) % width
        self._beats = -(-(shift + g.width) // width)
        self._first = (g.left + shift) // width
        reading = min(self._beats, (g.left + g.inner - 1 + shift) // width + 1) - self._first
        self._lay_out(reading)
        last = g.target + (g.out_rows * g.out_cols - 1) // shape.lanes * g.pitch + depth - 1
        if last >= shape.columns:
            self.outside = self._first_outside(shape, shift, width)

    def _lay_out(self, reading: int) -> None:
        """Lay out all steps; `reading` beats (maybe none) of each row in memory are read."""
        g, beats = self.geometry, self._beats
        uses = np.zeros(g.height, np.int64)
        for i in range(g.kernel_h):
            first = i * g.dilation_h
            uses[first : first + (g.out_rows - 1) * g.stride_h + 1 : g.stride_h] += 1
        finding = g.kernel_h + TIMING.conv_settle
        ends = np.cumsum(finding + uses * (g.channels * beats * g.kernel_w)) + TIMING.conv_setup
        self.steps = int(ends[-1])
        self._rows = np.flatnonzero(uses).tolist()
        #: For each row: its first step after those that find the kernel rows, and its steps per beat.
        self._row_steps: list[tuple[int, int]] = [
            (end - use * (g.channels * beats * g.kernel_w), use * g.kernel_w)
            for end, use in zip(ends.tolist(), uses.tolist(), strict=True)
        ]
        self._memory_rows = [y for y in self._rows if g.top <= y < g.top + g.rows]
        if self._memory_rows:
            self.low = (self._memory_rows[0] - g.top) * g.line
            self.high = (self._memory_rows[-1] - g.top) * g.line + (g.channels - 1) * g.stride + g.inner - 1
        self.reads = bool(self._memory_rows) and reading > 0
        self.words = len(self._memory_rows) * reading * g.channels if self.reads else 0
        self._segments: list[Segment] = []
        if self.reads:
            for y in self._memory_rows:
                at, gap = self._row_steps[y]
                self._segments.append(self._segment(at + self._first * gap, gap, reading, g.channels))
            if self._segments[-1].last == self.steps - 1:
                self._part_last()

    def _segment(self, first: int, gap: int, reading: int, channels: int) -> Segment:
        """The memory beats of `channels` channels of a row, starting with step `first`."""
        last = first + ((channels - 1) * self._beats + reading - 1) * gap
        if reading == self._beats or channels == 1:
            return Segment(first, last, RequestRun(gap, reading * channels, 0, 1))
        if reading == 1:
            return Segment(first, last, RequestRun(self._beats * gap, channels, 0, 1))
        return Segment(first, last, RequestRun(gap, reading, (self._beats - reading + 1) * gap, channels))

    def _part_last(self) -> None:
        """Give the very last beat a segment of its own, as the next operation is taken after it.

        It has a single step, so the gap between beats of its row is one step.
        """
        first, last, _ = self._segments.pop()
        reading = (last - first) % self._beats + 1
        if self.geometry.channels > 1:
            self._segments.append(self._segment(first, 1, reading, self.geometry.channels - 1))
        if reading > 1:
            self._segments.append(self._segment(last - reading + 1, 1, reading - 1, 1))
        self._segments.append(self._segment(last, 1, 1, 1))

    def _first_outside(self, shape: BufferShape, shift: int, width: int) -> int | None:
        """The first step that writes a column after the buffer's last, or None."""
        g = self.geometry
        edges = np.arange(self._beats)[:, None] * width - shift
        low, high = np.maximum(edges, 0), np.minimum(edges + width, g.width) - 1
        x = np.arange(g.kernel_w) * g.dilation_w
        col = np.minimum(
            (high - x) // g.stride_w, g.out_cols - 1
        )  # the last output column that beat and kernel column reach
        reached = (col >= 0) & (col * g.stride_w + x >= low)
        per_channel = g.kernel_h * g.kernel_w
        for y in self._rows:
            found, use = [], 0
            for i in range(g.kernel_h):
                row, rest = divmod(y - i * g.dilation_h, g.stride_h)
                if rest or not 0 <= row < g.out_rows:
                    continue
                place = (row * g.out_cols + col) // shape.lanes * g.pitch + np.arange(g.kernel_w)
                spare = shape.columns - g.target - i * g.kernel_w - place  # columns left for the channels
                channel = np.where(reached, np.maximum(0, -(-spare // per_channel)), g.channels)
                beat, j = divmod(int(channel.argmin()), g.kernel_w)
                found.append((int(channel[beat, j]), beat, use, j))
                use += 1
            worst, beat, use, j = min(found)
            if worst < g.channels:
                at, steps = self._row_steps[y]
                return at + (worst * self._beats + beat) * steps + use * g.kernel_w + j
        return None

    @property
    def fails(self) -> bool:
        """Whether operands or the end of the buffer make it fail, whatever else happens."""
        return self.wrong or self.outside is not None

    def outside_windows(self, windows: Sequence[tuple[int, int]], memory: int) -> int | None:
        """The first step whose row of a channel is in none of the windows (first and last bytes)."""
        g = self.geometry
        for y in self._memory_rows:
            address = memory + (y - g.top) * g.line & MASK
            channel = row_outside_windows(windows, address, g.stride, g.inner, g.channels)
            if channel is not None:
                at, steps = self._row_steps[y]
                return at + channel * self._beats * steps
        return None

    def memory_steps(self) -> Iterator[int]:
        """The steps that request a word of memory, in order."""
        for first, _, (gap, size, turn, turns) in self._segments:
            length = (size - 1) * gap + turn
            for group in range(turns):
                start = first + group * length
                yield from range(start, start + size * gap, gap)

    def reach(self, port: Port, enter: int, step: int) -> int:
        """The cycle of a step, if step 0 happens in cycle `enter`; slow."""
        at = 0
        for k in () if step < TIMING.conv_setup else self.memory_steps():
            if k >= step:
                break
            enter, at = port.after(enter + k - at + 1, 1), k + 1
        return enter + step - at

    def written(self, port: Port, enter: int, first: int, step: int) -> int:
        """The cycle in which a step writes, if step 0 happens in `enter` and writes in `first`; slow."""
        at = writes_at = 0
        for k in () if step < TIMING.conv_setup else self.memory_steps():
            if k > step:
                break
            enter, at = port.after(enter + k - at + 1, 1), k + 1
            first, writes_at = enter + port.latency, k
        return first + step - writes_at

    def finish(self, port: Port, enter: int) -> tuple[int, int]:
        """The cycles of the last step and of the step that would follow, if step 0 happens in `enter`.

        The latter is the acceptance of the beat if the last step requests one. A plan is used with one port
        only.
        """
        if not port.period:
            return self._walk(port, enter)
        phase = enter % port.period
        if phase not in self._passes:
            last, end = self._walk(port, phase)
            self._passes[phase] = last - phase, end - phase
        last, end = self._passes[phase]
        return enter + last, enter + end

    def _walk(self, port: Port, enter: int) -> tuple[int, int]:
        """Compute `finish` by going through all segments."""
        x, at, step, run_of = enter, 0, enter, port.run
        for first, last, run in self._segments:
            step = x + first - at
            x, at = run_of(step + 1, run), last + 1
        return (step, x) if at == self.steps else (x + self.steps - at - 1, x + self.steps - at)
