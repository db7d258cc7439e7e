"""The maximum of words and 0, over runs of a tensor: the first step of DynamicQuantizeLinear.

The bits of non-negative float32 numbers compare like the numbers. With the sign flipped, this finds the
minimum.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sw.compile.forms import HALVES, size
from sw.compile.launches import LaunchWriter
from sw.compile.writer import AddressMap, ChipSpace
from sw.frontend.importer import Importer
from sw.frontend.node import OnnxNode
from sw.graph.network import Operator, Tensor, View
from sw.ir.expression import Op, fold
from sw.ir.program import Statement
from sw.kernels.configuration import configure
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.passes import Pass, Span, Value, balanced, loop, numbered
from sw.operators.copies import Copies
from sw.operators.registry import LoweringContext, legalise, lower
from sw.operators.rows import launches
from sw.operators.tiles import DOWN, nest, nested, place, turn

#: Words of a run, and words per iteration.
RUN, WORDS = 1024, 8


@dataclass(frozen=True)
class Extreme(Operator):
    """For each run of `RUN` elements of `x`, which has one axis: the maximum of its words and 0.

    The words are first XORed with `flip`.
    """

    x: View
    flip: int

    @property
    def inputs(self) -> tuple[View, ...]:
        """The operand."""
        return (self.x,)

    def reference(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        """The maximum of every run."""
        words = np.ascontiguousarray(arrays[0]).view(np.int32) ^ np.int32(self.flip)
        runs = np.pad(words, (0, -len(words) % RUN)).reshape(-1, RUN)
        found: np.ndarray = np.maximum(runs.max(axis=1), 0)
        return found


def extreme(importer: Importer, node: OnnxNode, x: View, flip: int, hint: str) -> View:
    """The maximum of the words of a one-dimensional view and 0, as one element."""
    element = importer.tensors[x.tensor].element
    while True:
        output = importer.tensor(hint, (-(-x.elements // RUN),), element)
        importer.operators.append(Extreme(node.name, node.op, (node.name,), output, x, flip))
        if output.elements == 1:
            return dataclasses.replace(output, shape=(), strides=())
        x, flip = output, 0


@functools.cache
def _greatest() -> GridKernel:
    inputs = tuple(Stream(name, "scratch", "int32", 4 * i) for i, name in enumerate(numbered("a", WORDS)))
    words = [f"(a{i}[x] ^ flip)" for i in range(WORDS)]
    lines = [f"most = max(most, {balanced(words, 'max({}, {})')})", f"x = x + {WORDS}", "top[y] = most"]
    streams = (*inputs, Stream("top", "out", "int32"))
    return loop("greatest", streams, ("x", "y", "flip"), "\n".join(lines), "most = 0", per_iteration=WORDS)


class LoweredExtreme:
    """One launch per run."""

    blobs: tuple[Tensor, ...] = ()

    def __init__(self, operator: Extreme, context: LoweringContext) -> None:
        self.operator = operator
        self.configured = (configure(_greatest(), context.config),)
        self.loops = nest(operator.x, 1, ((DOWN, operator.x.elements, RUN),))

    def emit(self, launcher: LaunchWriter, scratch: ChipSpace, out: ChipSpace) -> list[Statement]:
        """The load, the launch and the store of every run."""
        operator, writer, places = self.operator, launcher.writer, HALVES if self.loops else 1
        which, x, y = turn(self.loops, places), operator.x, operator.output
        longest = min(RUN, x.elements)
        behind = 4 * (-x.elements % WORDS)
        run = place(scratch, which, places, 4 * longest + behind)
        result = place(out, which, places, 4)
        words = size(self.loops, DOWN, x.elements, RUN)
        walk = AddressMap(self.loops, {DOWN: RUN}, x.offset)
        load = writer.load_scratch(x, walk, 1, 0, words, run, 4 * RUN, None, (behind, 0))
        scalars: dict[str, Value] = {
            "x": fold(Op.DIV, run, 4),
            "y": fold(Op.DIV, result, 4),
            "flip": operator.flip,
        }
        iterations = fold(Op.DIV, words + (WORDS - 1), WORDS)
        reads, writes = (Span("scratch", run, 4 * longest + behind),), (Span("out", result, 4),)
        made = launches(launcher, (Pass(_greatest(), iterations, scalars, reads, writes),), self.configured)
        target = AddressMap(self.loops, {DOWN: 1}, y.offset)
        store = writer.store_out(y, target, 1, 0, 1, result, writer.config.store_bytes)
        return nested(self.loops, [load, *made, store])


lower.register(Extreme, LoweredExtreme)


@legalise.register
def _(operator: Extreme, copies: Copies) -> None:
    x = operator.x if operator.x.strides == (1,) else copies.copy(operator, operator.x, "operand")
    copies.append(dataclasses.replace(operator, x=x), True)
