"""Writes an ONNX model of the matrix products of one BERT layer, quantised: uint8 activations, int8 weights.

The defaults are BERT-large (hidden 1024, 16 heads, feed-forward 4096) at sequence length 128. Every product
takes its activations from an input of the model, so that each runs and is proved on its own (example 9 is a
whole layer); the weights are drawn from a seed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def layer(sequence: int, hidden: int, heads: int, feed_forward: int, seed: int) -> onnx.ModelProto:
    """The model: 8 MatMulInteger nodes, two of them batched over the heads."""
    rng = np.random.default_rng(seed)
    depth = hidden // heads
    inputs: list[onnx.ValueInfoProto] = []
    nodes: list[onnx.NodeProto] = []
    outputs: list[onnx.ValueInfoProto] = []
    constants = [
        numpy_helper.from_array(np.array(128, np.uint8), "zero_128"),
        numpy_helper.from_array(np.array(0, np.uint8), "zero_0"),
        numpy_helper.from_array(np.array(0, np.int8), "symmetric"),
    ]

    def activation(name: str, *shape: int) -> str:
        inputs.append(helper.make_tensor_value_info(name, TensorProto.UINT8, shape))
        return name

    def weight(name: str, rows: int, columns: int) -> str:
        values = np.clip(np.round(rng.normal(0, 30, (rows, columns))), -127, 127).astype(np.int8)
        constants.append(numpy_helper.from_array(values, name))
        return name

    def product(name: str, a: str, b: str, shape: tuple[int, ...], zero_a: str, zero_b: str) -> None:
        result = f"{name}_result"
        nodes.append(helper.make_node("MatMulInteger", [a, b, zero_a, zero_b], [result], name=name))
        outputs.append(helper.make_tensor_value_info(result, TensorProto.INT32, shape))

    x = activation("x", sequence, hidden)
    for name in ("query", "key", "value"):
        w = weight(f"w_{name}", hidden, hidden)
        product(name, x, w, (sequence, hidden), "zero_128", "symmetric")
    q, k, v = (activation(f"{n}_heads", heads, sequence, depth) for n in ("query", "key", "value"))
    nodes.append(helper.make_node("Transpose", [k], ["key_transposed"], perm=[0, 2, 1], name="transpose"))
    product("scores", q, "key_transposed", (heads, sequence, sequence), "zero_128", "zero_128")
    probabilities = activation("probabilities", heads, sequence, sequence)
    product("context", probabilities, v, (heads, sequence, depth), "zero_0", "zero_128")
    for name, size_in, size_out in (
        ("output", hidden, hidden),
        ("feed_forward_1", hidden, feed_forward),
        ("feed_forward_2", feed_forward, hidden),
    ):
        a, w = activation(f"{name}_input", sequence, size_in), weight(f"w_{name}", size_in, size_out)
        product(name, a, w, (sequence, size_out), "zero_128", "symmetric")

    graph = helper.make_graph(nodes, "bert_layer", inputs, outputs, constants)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 13)], producer_name="heald example"
    )
    model.ir_version = 8
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sequence", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=1024)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--feed-forward", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args()
    model = layer(given.sequence, given.hidden, given.heads, given.feed_forward, given.seed)
    given.output.write_bytes(model.SerializeToString())


if __name__ == "__main__":
    main()
