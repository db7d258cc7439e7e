"""Ask Stream about the files of this directory; `answer.json` gets the fields of its estimate.

Where the mapping that it proposes does not fit the core, tiles of one block of the array are proposed to
it, of ever smaller depth.
"""

import json
import logging
import math
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
    blocks = [(first, math.gcd(m, asked["block"][0])), (first + 2, math.gcd(n, asked["block"][1]))]
    attempts: list[list[dict[str, object]] | None] = [None]
    depth = k
    while depth >= SHALLOWEST:
        tiles = blocks + ([(first + 1, depth)] if depth < k else [])
        attempts.append([{"dim": f"layer.D{axis}", "tile": size} for axis, size in tiles])
        depth = depth // 2 if depth % 2 == 0 else 0
    for number, tiling in enumerate(attempts):
        try:
            found = ask(tiling)
            break
        except InfeasibleAllocationError:
            if number == len(attempts) - 1:
                raise
    answer = {"cycles": found.cycles, "group_cycles": found.group_cycles, "attempt": number}
    answer["dispatch_cycles"] = found.dispatch_cycles
    Path("answer.json").write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
