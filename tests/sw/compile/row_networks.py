"""Networks of softmax, layer normalisation and pooling for tests, each on its own input."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from sw.graph.network import Network, Operator, Tensor, View, whole
from sw.graph.requantise import LIMITS
from sw.graph.views import transposed
from sw.operators.column_softmax import column_softmax
from sw.operators.normalisation.operator import normalisation
from sw.operators.pools.operator import MaxPool
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

    def column_softmax(
        self,
        shape: tuple[int, int, int, int],
        element: str = "int8",
        result: str = "int8",
        moved: bool = False,
    ) -> None:
        """Softmax down the rows of images and channels; `moved`: rows of the result have channels."""
        images, channels, rows, columns = shape
        out = (images, rows, channels, columns) if moved else shape
        name, x, y = self._tensors(shape, element, out, result)
        order = (0, 2, 3, 1) if moved else (0, 1, 3, 2)
        self.operators.append(
            column_softmax(
                name,
                "Softmax",
                (name,),
                transposed(y, order),
                transposed(x, (0, 1, 3, 2)),
                element=element,
                x_scale=0.05,
                y_scale=1 / 256,
                y_zero=LIMITS[result][0],
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
        self, planes: tuple[int, int], rows: Axis, cols: Axis, element: str = "int8", padded: int = 0
    ) -> None:
        """The greatest pixels of windows of images and channels.

        `padded`: elements of a row of the result's tensor behind those that are written.
        """
        shape, result = (*planes, rows.size, cols.size), (*planes, rows.outputs, cols.outputs)
        name, x, y = self._tensors(shape, element, (*result[:3], result[3] + padded), element)
        y = View(y.tensor, result, y.strides)
        self.operators.append(MaxPool(name, "MaxPool", (name,), y, x, element, rows, cols))

    def _tensors(
        self, shape: tuple[int, ...], element: str, out: tuple[int, ...], result: str
    ) -> tuple[str, View, View]:
        number = len(self.operators)
        x, y = Tensor(f"x{number}", shape, element), Tensor(f"y{number}", out, result)
        self.tensors |= {x.name: x, y.name: y}
        return f"operator{number}", whole(x), whole(y)
