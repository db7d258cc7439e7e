"""Depthwise convolutions by the cycle model, in bands of output rows and in tiles of output channels.

    python -m bench.depthwise [--hw PRESET] [--sums] [--json]

Kernels are 3 x 3 and 5 x 5 with strides 1 and 2, with bias, scale per channel and Relu, or, with `--sums`,
with sums as results. `channels` is the form without bands, `compiled` the compiler's choice. The array's
share is the convolution's multiply-accumulates as a fraction of the array's peak. `bound` is the part that is
busy in most cycles, and its share of them. Exit code 1: the compiler's choice takes more cycles.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from dataclasses import dataclass

import click
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from cosim.jobs import job_of
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from hw.config import MachineConfig, load
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.frontend.network import import_model

#: Channels, and edge length of images.
IMAGES = (32, 112), (32, 56), (64, 28), (128, 14), (256, 14), (256, 7)
#: Counter names of the machine's parts.
PARTS = {"LOAD_A": "load A", "LOAD_B": "load B", "GEMM": "array", "CGRA": "CGRA", "STORE": "store"}


@dataclass(frozen=True)
class Row:
    """One convolution: cycles of both forms, array shares, and what bounds the compiler's form."""

    convolution: str
    channels: int
    compiled: int
    share_channels: float
    share_compiled: float
    bound: str
    busy: float


def model(channels: int, size: int, kernel: int, stride: int, sums: bool) -> onnx.ModelProto:
    """A depthwise convolution with padding: between quantisers, or with integer sums."""
    rng, out = np.random.default_rng(0), (size - 1) // stride + 1
    form = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "kernel_shape": [kernel] * 2}
    form["group"] = channels
    w = rng.integers(-127, 128, (channels, 1, kernel, kernel)).astype(np.int8)
    if sums:
        constants: dict[str, np.ndarray | np.generic] = {"w": w}
        nodes = [helper.make_node("ConvInteger", ["x", "w"], ["y"], **form)]
    else:
        scales = rng.uniform(0.001, 0.01, channels).astype(np.float32)
        bias = rng.integers(-999, 999, channels).astype(np.int32)
        constants = {"w": w, "ws": scales, "wz": np.zeros(channels, np.int8), "b": bias}
        constants |= {"bs": scales * np.float32(0.05), "bz": np.zeros(channels, np.int32)}
        constants |= {"xs": np.float32(0.05), "ys": np.float32(0.1), "z": np.int8(3)}
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "xs", "z"], ["xf"]),
            helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0),
            helper.make_node("DequantizeLinear", ["b", "bs", "bz"], ["bf"], axis=0),
            helper.make_node("Conv", ["xf", "wf", "bf"], ["yf"], **form),
            helper.make_node("Relu", ["yf"], ["rf"]),
            helper.make_node("QuantizeLinear", ["rf", "ys", "z"], ["y"]),
        ]
    kinds = TensorProto.INT8, TensorProto.INT32 if sums else TensorProto.INT8
    shapes = [1, channels, size, size], [1, channels, out, out]
    ends = [helper.make_tensor_value_info(n, k, s) for n, k, s in zip("xy", kinds, shapes, strict=True)]
    held = [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "depthwise", ends[:1], ends[1:], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measured(proto: onnx.ModelProto, config: MachineConfig, *, bands: bool) -> tuple[int, str, float]:
    """Cycles, and the part that is busy in most of them with its share."""
    (step,) = compile_network(import_model(proto), config, bands=bands)
    assert isinstance(step, Compiled)
    outcome = predict(config, job_of(step, {}, MemorySettings.of(config)), values=False)
    busy = {told: outcome.counters[f"{part}_BUSY"] for part, told in PARTS.items()}
    part = max(busy, key=lambda name: busy[name])
    return outcome.cycles, part, busy[part] / outcome.cycles


def row(channels: int, size: int, kernel: int, stride: int, sums: bool, config: MachineConfig) -> Row:
    """The figures of one convolution."""
    proto, out = model(channels, size, kernel, stride, sums), (size - 1) // stride + 1
    before, _, _ = measured(proto, config, bands=False)
    after, part, busy = measured(proto, config, bands=True)
    ideal = channels * out * out * kernel * kernel / config.macs_per_cycle
    name = f"{channels} x {size} x {size}, {kernel} x {kernel}, stride {stride}"
    return Row(name, before, after, ideal / before, ideal / after, part, busy)


def table(rows: list[Row]) -> Table:
    """A row for each convolution."""
    made = Table(box=None, header_style="dim")
    for column in ("convolution", "channels", "compiled", "times", "array before", "array", "bound", "busy"):
        made.add_column(column, justify="left" if column in ("convolution", "bound") else "right")
    for r in rows:
        made.add_row(
            r.convolution,
            f"{r.channels:,}",
            f"{r.compiled:,}",
            f"{r.channels / r.compiled:.2f}",
            f"{r.share_channels:.1%}",
            f"{r.share_compiled:.1%}",
            r.bound,
            f"{r.busy:.0%}",
        )
    return made


@click.command(help=__doc__)
@click.option("--hw", default="default", help="preset or file of the machine")
@click.option("--sums", is_flag=True, help="sums as results")
@click.option("--json", "as_json", is_flag=True, help="figures as JSON on stdout")
def main(hw: str, sums: bool, as_json: bool) -> None:
    """The command line."""
    config = load(hw)
    shapes = itertools.product((3, 5), (1, 2), IMAGES)
    rows = [row(*image, kernel, stride, sums, config) for kernel, stride, image in shapes]
    if as_json:
        print(json.dumps([dataclasses.asdict(r) for r in rows], indent=2))
    else:
        Console(width=130).print(table(rows))
    sys.exit(any(r.compiled > r.channels for r in rows))


if __name__ == "__main__":
    main()
