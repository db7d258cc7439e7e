"""The four tools: how a machine and a layer are described to each, and where its answer has the cycles.

Files are text, written to a directory in which the tool's program in `workers/` runs, in its own environment.
The tool's output is read here. README.md has the mapping of fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers import machines
from bench.peers.layers import Layer
from hw.config import MachineConfig
from sw.convolution import Convolution

ROOT = Path(__file__).parent
#: Files by name.
Files = Mapping[str, str]


@dataclass(frozen=True)
class Tool:
    """A tool: how to describe a layer to it, the answer file it leaves, and how to read cycles from it.

    `cycles` takes the text of the file `answer`. `python` is the oldest supported Python.
    """

    name: str
    title: str
    python: tuple[int, int]
    describe: Callable[[MachineConfig, Layer], Files]
    answer: str
    cycles: Callable[[str, Layer], float]

    @property
    def requirements(self) -> Path:
        """The pinned versions of its environment."""
        return ROOT / "requirements" / f"{self.name}.txt"

    @property
    def worker(self) -> Path:
        """The program that runs it."""
        return ROOT / "workers" / f"ask_{self.name}.py"

    @property
    def version(self) -> str:
        """The tool's own version, from the first requirement."""
        lines = self.requirements.read_text("utf-8").splitlines()
        return next(line for line in lines if not line.startswith("#")).partition("==")[2]


def packed(rows: int, cols: int, lanes: int) -> tuple[int, int]:
    """Rows and columns of outputs that fill the array's columns best, in the fewest steps."""
    shapes = [(lanes // x, x) for x in range(1, min(lanes, cols) + 1)]
    return min(shapes, key=lambda s: (-(-rows // s[0]) * -(-cols // s[1]), -s[1]))


def zigzag(config: MachineConfig, layer: Layer) -> Files:
    """A convolution if its kernel has more than one element, else a product."""
    p = layer.problem
    precision = {"W": machines.OPERAND, "I": machines.OPERAND, "O": machines.SUM, "O_final": machines.SUM}
    work: dict[str, Any] = {"id": 0, "name": "layer", "operand_precision": precision, "operand_source": {}}
    links = {"O": "O", "W": "I1", "I": "I2"}
    if isinstance(p, Convolution) and p.patches.kernel > 1:
        y, x = packed(p.rows.outputs, p.cols.outputs, config.cols)
        work |= {
            "operator_type": "Conv",
            "equation": "O[g][k][oy][ox]+=W[g][k][c][fy][fx]*I[g][c][iy][ix]",
            "dimension_relations": [f"ix={p.cols.stride}*ox+1*fx", f"iy={p.rows.stride}*oy+1*fy"],
            "loop_dims": ["G", "K", "C", "OY", "OX", "FY", "FX"],
            "loop_sizes": [
                *(p.groups, p.m, p.patches.channels, p.rows.outputs, p.cols.outputs),
                *(p.rows.kernel, p.cols.kernel),
            ],
        }
        spatial = {"D1": [f"K, {config.rows}"], "D2": [f"OX, {x}", *([f"OY, {y}"] if y > 1 else [])]}
    else:
        groups, m, k, n = layer.sizes
        work |= {
            "operator_type": "Gemm",
            "equation": "O[b][m][n]+=W[b][m][k]*I[b][k][n]",
            "loop_dims": ["B", "M", "N", "K"],
            "loop_sizes": [groups, m, n, k],
        }
        spatial = {"D1": [f"M, {config.rows}"], "D2": [f"N, {config.cols}"]}
    mapping = [{"name": "default", "spatial_mapping": spatial, "memory_operand_links": links}]
    return {
        "machine.yaml": machines.export("zigzag", config),
        "mapping.yaml": machines.text(mapping),
        "workload.yaml": machines.text([work]),
    }


def stream(config: MachineConfig, layer: Layer) -> Files:
    """A core and external memory, joined by a link; the layer is a product."""
    described = machines.zigzag(config)
    memory = described["memories"].pop("memory")
    none: dict[str, Any] = {"unit_energy": 0, "unit_area": 0, "dimensions": machines.SIDES}
    core = {
        "name": "array",
        "type": "zigzag.compute",
        "memories": described["memories"],
        "operational_array": none | {"sizes": [config.rows, config.cols]},
        "operand_precision": {"input": "int8", "accumulator": "int32"},
    }
    outside = {
        "name": "outside",
        "type": "zigzag.offchip",
        "memories": {"memory": memory},
        "operational_array": none | {"sizes": [0, 0]},
    }
    link = {"type": "link", "cores": [0, 1], "bandwidth": 8 * min(config.load_a_bytes, config.load_b_bytes)}
    system = {
        "name": config.name,
        "cores": {0: "./array.yaml", 1: "./outside.yaml"},
        "core_coordinates": {0: [0, 0], 1: [1, 0]},
        "offchip_core_id": 1,
        "unit_energy_cost": 0,
        "core_connectivity": [link],
    }
    return {
        "machine.yaml": machines.text(system),
        "array.yaml": machines.text(core),
        "outside.yaml": machines.text(outside),
        "layer.json": json.dumps({"sizes": layer.sizes, "block": [config.rows, config.cols]}),
    }


def accelforge(config: MachineConfig, layer: Layer) -> Files:
    """A product for each group; its pixels are one rank."""
    ranks = dict(zip("gmkn", layer.sizes, strict=True))
    tensors = [("A", "gmk", {}), ("B", "gkn", {}), ("C", "gmn", {"output": True})]
    einsum = {
        "name": "layer",
        "tensor_accesses": [{"name": t, "projection": list(ranks), **more} for t, ranks, more in tensors],
        "renames": {t.lower(): t for t, _, _ in tensors},
    }
    workload = {
        "iteration_space_shape": {rank: f"0 <= {rank} < {size}" for rank, size in ranks.items()},
        "bits_per_value": {"A": machines.OPERAND, "B": machines.OPERAND, "C": machines.SUM},
        "einsums": [einsum],
    }
    return {
        "machine.yaml": machines.export("accelforge", config),
        "workload.yaml": machines.text({"workload": workload}),
    }


#: Bytes of SCALE-Sim's kB.
KILO = 1024


def scalesim(config: MachineConfig, layer: Layer) -> Files:
    """A convolution of one group, or a product of one batch; result words are 4-byte sums."""
    p = layer.problem
    if isinstance(p, Convolution):
        padded = [axis.size + axis.before + axis.after for axis in (p.rows, p.cols)]
        row = [*padded, p.rows.kernel, p.cols.kernel, p.patches.channels, p.m, p.rows.stride]
        head = "Layer,IFMAP height,IFMAP width,Filter height,Filter width,Channels,Filters,Strides,Sparsity,"
    else:
        row, head = [p.m, p.n, p.k], "Layer,M,N,K,Sparsity,"
    # SCALE-Sim maps pixels to rows and channels to columns, like A and B of a product.
    a, b = ("b", "a") if isinstance(p, Convolution) else ("a", "b")
    size = {t: getattr(config, f"buffer_{t}_bytes") for t in "ab"}
    width = {t: config.port_bytes(f"load_{t}") for t in "ab"}
    sections = {
        "general": {"run_name": "run"},
        "architecture_presets": {
            "ArrayHeight": config.cols if isinstance(p, Convolution) else config.rows,
            "ArrayWidth": config.rows if isinstance(p, Convolution) else config.cols,
            "IfmapSramSzkB": max(1, size[a] // KILO),
            "FilterSramSzkB": max(1, size[b] // KILO),
            "OfmapSramSzkB": max(1, config.acc_bytes // 4 // KILO),
            **{"IfmapOffset": 0, "FilterOffset": 10_000_000, "OfmapOffset": 20_000_000},
            **{"Bandwidth": config.store_bytes // 4, "Dataflow": "os", "MemoryBanks": 1},
            **{"ReadRequestBuffer": 32, "WriteRequestBuffer": 32},
        },
        "layout": {
            f"{name}{key}": value
            for name, operand in (("Ifmap", a), ("Filter", b))
            for key, value in {
                "CustomLayout": False,
                "SRAMBankBandwidth": width[operand],
                "SRAMBankNum": 1,
                "SRAMBankPort": 2,
            }.items()
        },
        "sparsity": {"SparsitySupport": "false"},
        # With USER, a layer of BERT-base took 341 s, and operands were fetched 16 times (README.md).
        "run_presets": {"InterfaceBandwidth": "CALC", "UseRamulatorTrace": False},
    }
    lines = [f"[{s}]\n" + "".join(f"{k} = {v}\n" for k, v in about.items()) for s, about in sections.items()]
    return {
        "machine.cfg": "\n".join(lines),
        "layer.csv": f"{head}\nlayer,{','.join(map(str, row))},1:1,\n",
        "layout.csv": "Layer,\n",
        "form": "conv" if isinstance(p, Convolution) else "gemm",
    }


def zigzag_cycles(text: str, layer: Layer) -> float:
    """`overall_simple.json`: latency, including what comes before and after the layer."""
    return float(json.loads(text)["latency"])


def stream_cycles(text: str, layer: Layer) -> float:
    """The fields of its `MappingEstimate`."""
    return float(json.loads(text)["cycles"])


def accelforge_cycles(text: str, layer: Layer) -> float:
    """The columns of its `Mappings`; at one step per second, its seconds are cycles."""
    return float(json.loads(text)["Total<SEP>latency"])


def scalesim_cycles(text: str, layer: Layer) -> float:
    """Cycles of one group; groups follow each other."""
    return layer.sizes[0] * float(json.loads(text)["cycles"])


TOOLS: Mapping[str, Tool] = {
    t.name: t
    for t in (
        Tool("zigzag", "ZigZag", (3, 11), zigzag, "dump/overall_simple.json", zigzag_cycles),
        Tool("stream", "Stream", (3, 12), stream, "answer.json", stream_cycles),
        Tool("accelforge", "AccelForge", (3, 12), accelforge, "answer.json", accelforge_cycles),
        Tool("scalesim", "SCALE-Sim", (3, 11), scalesim, "answer.json", scalesim_cycles),
    )
}
