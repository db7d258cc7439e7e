"""Ask Stream about the files of this directory; `answer.json` gets the fields of its estimate.

Beside the mapping that it proposes itself, it is asked about tiles of one block of the array, of the greatest
depth that fits; the quicker one counts. Its own tiles are often narrower than the array, or do not fit.
"""

import json
import logging
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from stream.api import MappingEstimate, SolveOptions, evaluate_mapping
from stream.ir.infeasibility import InfeasibleAllocationError

#: Least depth of a tile.
SHALLOWEST = 16


def model(groups: int, m: int, k: int, n: int) -> onnx.ModelProto:
    """A product of a batch, whose B are weights where it is one."""
    batch = [groups] if groups > 1 else []
    shapes = {"x": [*batch, m, k], "w": [*batch, k, n]}
    inputs = [helper.make_tensor_value_info(t, TensorProto.INT8, s) for t, s in shapes.items()]
    weights = [] if batch else [helper.make_tensor("w", TensorProto.INT8, [k, n], bytes(k * n), raw=True)]
    output = helper.make_tensor_value_info("y", TensorProto.INT32, [*batch, m, n])
    node = helper.make_node("MatMul" if batch else "Gemm", ["x", "w"], ["y"], name="layer")
    graph = helper.make_graph([node], "layer", inputs if batch else inputs[:1], [output], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def ask(tiling: list[dict[str, object]] | None) -> MappingEstimate:
    """One attempt; None: Stream's own tiles."""
    more = {} if tiling is None else {"intra_core_tiling": tiling}
    options = SolveOptions(artifacts=False, stage_options=more)
    return evaluate_mapping("machine.yaml", "layer.onnx", "out", options=options)


def main() -> None:
    """Its own mapping first."""
    logging.disable(logging.WARNING)
    asked = json.loads(Path("layer.json").read_text(encoding="utf-8"))
    groups, m, k, n = asked["sizes"]
    onnx.save(model(groups, m, k, n), "layer.onnx")
    first = 1 if groups > 1 else 0
    # Tiles must divide.
    rows, cols = (
        max(d for d in range(1, edge + 1) if size % d == 0)
        for size, edge in zip((m, n), asked["block"], strict=True)
    )
    blocks = [(first, rows), (first + 2, cols)]
    attempts: list[list[dict[str, object]] | None] = [None]
    depth = k
    while depth >= SHALLOWEST:
        tiles = blocks + ([(first + 1, depth)] if depth < k else [])
        attempts.append([{"dim": f"layer.D{axis}", "tile": size} for axis, size in tiles])
        depth = depth // 2 if depth % 2 == 0 else 0
    found: dict[int, MappingEstimate] = {}
    for number, tiling in enumerate(attempts):
        try:
            found[number] = ask(tiling)
        except InfeasibleAllocationError:
            if number == len(attempts) - 1 and not found:
                raise
        if number and number in found:
            break
    number, best = min(found.items(), key=lambda item: item[1].cycles)
    answer = {"cycles": best.cycles, "group_cycles": best.group_cycles, "attempt": number}
    answer["dispatch_cycles"] = best.dispatch_cycles
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
