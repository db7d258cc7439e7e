"""Writes an ONNX model of the convolutions of a residual network, quantised: uint8 activations, int8 weights.

Between the convolutions of a real network stand operations that the machine does not have yet, so every one
takes its activations from an input of the model; the weights are drawn from a seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def network(size: int, channels: int, seed: int) -> onnx.ModelProto:
    """The model: 6 ConvInteger nodes on images of about `size` x `size` with `channels` channels."""
    rng = np.random.default_rng(seed)
    inputs: list[onnx.ValueInfoProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    nodes: list[onnx.NodeProto] = []
    constants = [numpy_helper.from_array(np.array(128, np.uint8), "zero")]

    def convolution(
        name: str, size: int, channels: int, out: int, kernel: int, group: int = 1, **attributes: Any
    ) -> None:
        shape = (out, channels // group, kernel, kernel)
        weights = np.clip(np.round(rng.normal(0, 30, shape)), -127, 127).astype(np.int8)
        constants.append(numpy_helper.from_array(weights, f"w_{name}"))
        x, result = f"x_{name}", f"{name}_result"
        inputs.append(helper.make_tensor_value_info(x, TensorProto.UINT8, (1, channels, size, size)))
        outputs.append(helper.make_tensor_value_info(result, TensorProto.INT32, [None] * 4))
        nodes.append(
            helper.make_node(
                "ConvInteger", [x, f"w_{name}", "zero"], [result], name=name, group=group, **attributes
            )
        )

    c = channels
    convolution("first", 4 * size, 3, c, 7, strides=[2, 2], pads=[3, 3, 3, 3])
    convolution("three_by_three", size, c, c, 3, pads=[1, 1, 1, 1])
    convolution("strided", size, c, 2 * c, 3, strides=[2, 2], pads=[1, 1, 1, 1])
    convolution("dilated", size, c, c, 3, dilations=[2, 2], auto_pad="SAME_UPPER")
    convolution("one_by_one", size, c, 4 * c, 1)
    convolution("grouped", size, c, c, 3, group=max(1, c // 4), pads=[1, 1, 1, 1])
    graph = helper.make_graph(nodes, "convolutions", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=56)
    parser.add_argument("--channels", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("convolutions.onnx"))
    given = parser.parse_args()
    given.output.write_bytes(network(given.size, given.channels, given.seed).SerializeToString())
    print(f"wrote {given.output}")


if __name__ == "__main__":
    main()
