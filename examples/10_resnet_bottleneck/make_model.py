"""Writes a quantised bottleneck block of ResNet-50: float with random weights, quantised by onnxruntime.

Three convolutions, 1x1, 3x3 and 1x1, with ReLU behind each, and the residual added before the last one (He et
al., 2016). Batch normalisations count as folded into the convolutions. Scales are per output channel.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from quantising import quantise


def block(size: int, channels: int, inner: int, seed: int) -> onnx.ModelProto:
    """The float model for images of size x size."""
    rng = np.random.default_rng(seed)
    nodes: list[Any] = []
    constants: list[Any] = []

    def convolution(x: str, name: str, inputs: int, outputs: int, kernel: int) -> str:
        scale = np.sqrt(2 / (inputs * kernel * kernel))
        weights = rng.normal(0, scale, (outputs, inputs, kernel, kernel)).astype(np.float32)
        bias = rng.normal(0, 0.1, outputs).astype(np.float32)
        names = [f"{name}.weight", f"{name}.bias"]
        constants.extend(numpy_helper.from_array(a, n) for a, n in zip((weights, bias), names, strict=True))
        pads = [kernel // 2] * 4
        nodes.append(helper.make_node("Conv", [x, *names], [name], name=name, pads=pads))
        return name

    def node(op: str, inputs: list[str], output: str) -> str:
        nodes.append(helper.make_node(op, inputs, [output], name=output))
        return output

    first = node("Relu", [convolution("input", "conv_1", channels, inner, 1)], "relu_1")
    second = node("Relu", [convolution(first, "conv_2", inner, inner, 3)], "relu_2")
    third = convolution(second, "conv_3", inner, channels, 1)
    node("Relu", [node("Add", [third, "input"], "residual")], "result")
    shape = [1, channels, size, size]
    graph = helper.make_graph(
        nodes,
        "resnet_bottleneck",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, shape)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("bottleneck.onnx"))
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--inner", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    quantise(block(given.size, given.channels, given.inner, given.seed), given.output, given.seed, True)


if __name__ == "__main__":
    main()
