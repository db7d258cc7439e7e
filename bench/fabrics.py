"""Fabrics side by side: the II of every operator's loop, and the LUTs of the PEs.

    python -m bench.fabrics [FABRIC...] [--hw tiny] [--models N] [--bounds]

The loops are those that the compiler makes for a machine: for the BERT layer of the demo, a bottleneck of
ResNet-50, and random models of every kind. Each is mapped to every fabric with the compiler's effort. LUTs
come from the area model. `--bounds` shows only the MII, which is instant. Exit code 1 if a loop cannot be
mapped to a fabric.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.layers import bert_small, bottleneck
from heald.testing.models import draw
from heald.testing.operators import KINDS
from heald.testing.views import IMAGES, VIEWS
from hw.area.model import load as load_model
from hw.area.parts import parts
from hw.config import MachineConfig, load
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import load as load_fabric
from sw.cgra.bounds import bound
from sw.cgra.legal import prepare
from sw.cgra.search import map_graph
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.dfg.graph import Graph
from sw.frontend.network import import_model
from sw.kernels.configuration import graph_of
from sw.kernels.mappings import BUDGET, structure


def models(count: int) -> Iterator[Any]:
    """Files and models of ONNX."""
    with tempfile.TemporaryDirectory() as folder:
        for write in (bert_small, bottleneck):
            path = Path(folder) / f"{write.__name__}.onnx"
            write(path)
            yield path
    for kind, how in {**KINDS, **VIEWS, **IMAGES}.items():
        for number in range(count):
            yield draw(f"{kind}/{number}", {kind: how})[0]


def loops(config: MachineConfig, count: int, console: Console) -> list[Graph]:
    """The loops that the compiler chooses for the models, each structure once."""
    assert config.cgra is not None
    found: dict[Graph, None] = {}
    for model in track(models(count), "models", console=console):
        try:
            steps = compile_network(import_model(model), config)
        except InputError:  # A random model may be refused.
            continue
        for step in steps:
            for part in step.parts if isinstance(step, Compiled) else ():
                for configured in part.configured:
                    found.setdefault(structure(prepare(graph_of(configured.kernel), config.cgra)))
    return list(found)


def luts(config: MachineConfig, fabric: Fabric) -> int:
    """LUTs of all PEs and their control, by the area model of ECP5."""
    weights = load_model("ecp5").coefficients
    return round(
        sum(
            part.count * sum(weights[part.kind]["luts"].get(name, 0) * v for name, v in part.features.items())
            for part in parts(config.replace(cgra=fabric))
            if part.kind in ("pe", "grid_control", "grid_ports")
        )
    )


def interval(graph: Graph, fabric: Fabric, bounds: bool) -> int:
    """The II of a mapping or the MII; 0 if there is none."""
    try:
        if bounds:
            return bound(graph, fabric).mii
        return map_graph(graph, fabric, budget=BUDGET).found.ii
    except (InputError, AssertionError):
        return 0


@click.command()
@click.argument("fabrics", nargs=-1)
@click.option("--hw", default="tiny", show_default=True, help="The machine that loops are made for.")
@click.option("--models", "count", default=1, show_default=True, help="Random models of each kind.")
@click.option("--bounds", is_flag=True, help="MII alone.")
def main(fabrics: tuple[str, ...], hw: str, count: int, bounds: bool) -> None:
    """Print a row for each fabric."""
    config, console = load(hw), Console(stderr=True)
    graphs = loops(config, count, console)
    table = Table(
        *("fabric", "PEs", "links", "LUTs", "MII" if bounds else "II", "to the first", "without a place"),
        title=f"{len(graphs)} loops of {hw}",
    )
    first: list[int] = []
    failed = False
    for name in fabrics or ("compact4x4", "small3x3"):
        fabric = load_fabric(name)
        found = [interval(graph, fabric, bounds) for graph in track(graphs, name, console=console)]
        first = first or found
        both = [(a, b) for a, b in zip(found, first, strict=True) if a and b]
        ratio = sum(a for a, _ in both) / sum(b for _, b in both)
        failed |= 0 in found
        numbers = fabric.size, len(fabric.links), luts(config, fabric), sum(found)
        table.add_row(name, *(f"{n:,}" for n in numbers), f"{ratio:.3f}", str(found.count(0)))
    Console(width=100).print(table)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
