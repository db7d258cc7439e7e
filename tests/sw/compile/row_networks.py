"""Networks of softmax, layer normalisation and pooling, each on an input of its own, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sw.graph.network import Network, Operator, Tensor, View, whole
from sw.graph.requantise import LIMITS
from sw.operators.normalisation.operator import normalisation
from sw.operators.pools.operator import average_pool, max_pool
from sw.operators.softmax import softmax
from sw.patches import Axis


@dataclass
class Builder:
    """A network that grows; operators and their tensors have numbers."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    tensors: dict[str, Tensor] = field(default_factory=dict)
    operators: list[Operator] = field(default_factory=list)

    def network(self) -> Network:
        """All that was added; inputs and outputs in the order of the operators."""
        inputs = tuple(o.inputs[0].tensor for o in self.operators)
        outputs = tuple(o.output.tensor for o in self.operators)
        return Network("rows", self.tensors, tuple(self.operators), inputs, outputs)

    def softmax(self, shape: tuple[int, ...], element: str = "int8", result: str = "int8") -> None:
        """Softmax over the last axis."""
        name, x, y = self._tensors(shape, element, shape, result)
        zero = LIMITS[result][0]
        self.operators.append(
            softmax(
                name,
                "Softmax",
                (name,),
                y,
                x,
                element=element,
                x_scale=0.05,
                y_scale=1 / 256,
                y_zero=zero,
                result=result,
            )
        )

    def normalisation(
        self, shape: tuple[int, ...], element: str = "int8", result: str = "int8", x_zero: int | None = None
    ) -> None:
        """Layer normalisation over the last axis; with `x_zero` RMS normalisation."""
        name, x, y = self._tensors(shape, element, shape, result)
        gamma, beta = self.rng.normal(1, 0.3, shape[-1]), self.rng.normal(0, 0.3, shape[-1])
        self.operators.append(
            normalisation(
                name,
                "LayerNormalization" if x_zero is None else "RMSNormalization",
                (name,),
                y,
                x,
                element=element,
                x_scale=0.05,
                x_zero=x_zero,
                gamma=gamma,
                beta=beta,
                epsilon=1e-5,
                y_scale=0.03,
                y_zero=5,
                result=result,
            )
        )

    def pool(
        self,
        kind: Literal["max", "average"],
        planes: tuple[int, int],
        rows: Axis,
        cols: Axis,
        element: str = "int8",
        exchanged: bool = False,
        padded: int = 0,
    ) -> None:
        """Pooling of images and channels.

        `exchanged`: pixels of a column follow each other in memory, not those of a row. `padded`: elements of
        a row of the result's tensor behind those that are written.
        """
        shape = (*planes, rows.size, cols.size)
        result = (*planes, rows.outputs, cols.outputs)
        other = element if kind == "max" else ("uint8" if element == "int8" else "int8")
        held = (*result[:3], result[3] + padded)
        if exchanged:
            shape, held = (*planes, cols.size, rows.size), (*planes, cols.outputs, rows.outputs)
        name, x, y = self._tensors(shape, element, held, other)
        if exchanged:
            x, y = _exchanged(x), _exchanged(y)
        y = View(y.tensor, result, y.strides)
        if kind == "max":
            self.operators.append(max_pool(name, "MaxPool", (name,), y, x, rows, cols, element=element))
            return
        self.operators.append(
            average_pool(
                name,
                "AveragePool",
                (name,),
                y,
                x,
                rows,
                cols,
                element=element,
                x_scale=0.07,
                x_zero=10,
                y_scale=0.05,
                y_zero=3,
                result=other,
            )
        )

    def _tensors(
        self, shape: tuple[int, ...], element: str, out: tuple[int, ...], result: str
    ) -> tuple[str, View, View]:
        number = len(self.operators)
        x, y = Tensor(f"x{number}", shape, element), Tensor(f"y{number}", out, result)
        self.tensors |= {x.name: x, y.name: y}
        return f"operator{number}", whole(x), whole(y)


def _exchanged(view: View) -> View:
    (*shape, a, b), (*strides, c, d) = view.shape, view.strides
    return View(view.tensor, (*shape, b, a), (*strides, d, c))
