"""The layers that every tool is asked about: shapes from `layers.toml`, as problems of the compiler."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sw.convolution import Convolution
from sw.patches import Axis
from sw.problem import Product

DATA = Path(__file__).with_name("layers.toml")


@dataclass(frozen=True)
class Layer:
    """One shape of a network, and how often it occurs there.

    Every layer is `groups` independent products of m x k by k x n. Those of a convolution multiply weights
    with patches of the image: m are output channels, n output pixels.
    """

    network: str
    name: str
    count: int
    problem: Product | Convolution

    @property
    def title(self) -> str:
        """Network and layer, for matching with `--layers`."""
        return f"{self.network} {self.name}"

    @property
    def shape(self) -> str:
        """The sizes, equal for identical layers."""
        return str(self.problem)

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Groups, m, k, n."""
        p = self.problem
        groups = p.groups if isinstance(p, Convolution) else (p.batch or (1,))[0]
        return groups, p.m, p.k, p.n

    @property
    def kind(self) -> str:
        """The class of layers in which it is summarised."""
        p = self.problem
        if isinstance(p, Product):
            return "attention" if p.batch else "one row" if p.m == 1 else "GEMM"
        if p.groups > 1:
            return "depthwise"
        return f"convolution {p.rows.kernel}x{p.rows.kernel}" + ("" if p.rows.stride == 1 else " with stride")


def _problem(values: Mapping[str, Any]) -> Product | Convolution:
    if "gemm" in values:
        m, k, n = values["gemm"]
        batch = (values["batch"],) if "batch" in values else ()
        # Keys are stored like queries, a row per position, so the product reads them transposed.
        return Product(m, k, n, transposed_b=values["name"] == "scores", batch_a=batch, batch_b=batch)
    size, channels, out, kernel, stride, pad = values["conv"]
    axis = Axis(size, kernel, stride, pad, pad)
    return Convolution(1, channels, axis, axis, out, groups=values.get("groups", 1))


def layers() -> Sequence[Layer]:
    """All layers, in the order of the file."""
    data = tomllib.loads(DATA.read_text("utf-8"))
    return [
        Layer(network, values["name"], values["count"], _problem(values))
        for network, about in data.items()
        for values in about["layers"]
    ]
