"""The zoo's arithmetic: multiply-accumulates, where they run, and when its table passes."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from bench.zoo import cells, multiply_accumulates, share_on_machine, verdict


def model() -> onnx.ModelProto:
    """A grouped convolution, a product, and something that needs no multiplications."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", group=2),
        helper.make_node("Flatten", ["c"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "v"], ["y"], name="gemm", transB=1),
    ]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {"x": (1, 4, 5, 5), "w": (6, 2, 3, 3), "v": (7, 54)}.items()
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 7))]
    return helper.make_model(
        helper.make_graph(nodes, "few", inputs, outputs), opset_imports=[helper.make_opsetid("", 13)]
    )


def test_multiply_accumulates_are_counted_by_node() -> None:
    assert multiply_accumulates(model()) == {"conv": 6 * 3 * 3 * 2 * 3 * 3, "gemm": 7 * 54}


def test_names_that_the_tools_give_are_those_of_the_model() -> None:
    counts = {"conv": 300, "gemm": 100}
    assert share_on_machine(counts, {"conv_quant", "flatten"}) == 0.75
    assert share_on_machine(counts, {"gemm", "conv"}) == 1.0
    assert share_on_machine(counts, set()) == 0.0


def row(name: str, share: float = 1.0, agrees: bool = True, **more: Any) -> dict[str, Any]:
    return {"model": name, "form": "qdq", "share": share, "agrees": agrees, **more}


@pytest.mark.parametrize(
    ("rows", "good"),
    [
        ([row("a"), row("b", 0.96)], True),
        ([row("a"), row("b", 0.94)], False),
        ([row("a"), row("b", agrees=False)], False),
        ([row("a"), row("a", agrees=False), row("b")], False),
        ([row("a", correct=False), row("b")], False),
        ([row("a"), {"model": "b", "form": "qdq", "missing": "no"}], False),
        ([row("a"), {"model": "a", "form": "dynamic", "missing": "no"}], True),
    ],
)
def test_the_table_is_right_where_models_run_and_agree(rows: list[dict[str, Any]], good: bool) -> None:
    assert verdict(rows)[1] is good


def test_rows_that_were_only_read_have_no_cycles() -> None:
    found: dict[str, Any] = {"model": "m", "form": "qdq", "share": 0.5, "on_machine": 3}
    found |= {"on_host": {"LSTM": 2}, "compile_seconds": 1.4, "agrees": True, "agreement": "", "cosine": 1.0}
    assert cells(found) == ["m", "qdq", "50.0 %", "3", "", "", "", "1", "yes (1.0000)", "LSTM 2"]
    found |= {"programs": 2, "cycles": 1234, "utilization": 0.25, "memory_bytes": 2e6}
    assert cells(found)[3:7] == ["3 in 2", "1,234", "25 %", "2.0"]
