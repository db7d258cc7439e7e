"""Convolutions inside their model and alone: cycles by the cycle model, and the tiles of both.

    python -m bench.alone [yolov8n] [resnet50] [--first N] [--count N] [--form FORM] [--hw PRESET]

Alone means a network with only the convolution and what is fused to it. `--first` and `--count` choose
operators of the model, counting those on the machine from 0. Exit code 1: one takes over 3 % more cycles
inside.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click
import numpy as np

from bench.zoo_models import ENTRIES, FORMS, quantised
from cosim.models.cycle import predict
from cosim.session.machine_program import machine_program
from cosim.session.network import job_of
from cosim.session.operators import ModelProgramPrediction, OperatorResult
from cosim.settings import MemorySettings
from heald.sources import OnnxSource
from hw.config import MachineConfig, load
from sw.check import Verdict
from sw.compile.array_tiles import LoweredProduct
from sw.compile.memory import Kind
from sw.compile.program import Part
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.graph.host import HostOperator
from sw.graph.network import ImageConvolution, Network, Operator

#: Allowed excess of cycles inside the model, as a fraction of the cycles alone.
MORE = 0.03
#: Warps are not checked here.
UNCHECKED = Verdict(True, "none")


def part_of(network: Network, operators: Sequence[Operator]) -> Network:
    """A network of some operators of another one; tensors that they read from others become inputs."""
    names = dict.fromkeys(v.tensor for o in operators for v in (*o.inputs, o.output))
    tensors = {n: network.tensors[n] for n in names}
    written = dict.fromkeys(o.output.tensor for o in operators)
    inputs = tuple(n for n in names if n not in written and tensors[n].constant is None)
    read = {v.tensor for o in operators for v in o.inputs}
    outputs = tuple(n for n in written if n not in read)
    return Network(network.name, tensors, tuple(operators), inputs, outputs)


def measured(network: Network, config: MachineConfig) -> list[tuple[OperatorResult, Part]]:
    """The operators of a network by the cycle model, each with its tiles."""
    found: list[tuple[OperatorResult, Part]] = []
    for step in (s for s in compile_network(network, config) if isinstance(s, Compiled)):
        program = machine_program(step)
        inputs = [(n, h.tensor) for n, h in program.homes.items() if h.kind is Kind.INPUT]
        arrays = {n: np.zeros(t.shape, t.element) for n, t in inputs}
        job = job_of(program, arrays, MemorySettings.of(config), network.name)
        made = ModelProgramPrediction.of(program, job, predict(config, job, values=False), UNCHECKED)
        found += zip(made.operators(0, 0), step.parts, strict=True)
    return found


def shape_of(o: ImageConvolution) -> str:
    """Channels, image, kernel and stride."""
    size = "x".join(map(str, (o.w.shape[1] * o.groups, *o.x.shape[2:])))
    return f"{size} to {o.w.shape[0]}, {o.rows.kernel}x{o.cols.kernel}/{o.rows.stride}"


def tiles_of(part: Part) -> str:
    """Tiles of a product, and its epilogue's loop: the II and the elements per iteration."""
    if not isinstance(part, LoweredProduct):
        return ""
    t = part.nest.blocking
    made = f"{t.partition_m}x{t.partition_n}x{t.partition_k} in {t.tile_m}x{t.tile_n}"
    if part.chosen is not None:
        loop = part.chosen
        made += f", II {loop.configured.ii} for {loop.elementwise.per_iteration}"
        made += f" = {loop.cycles_per_element:.3f}"
    return made + (", rows with gaps" if part.nest.problem.segmented else "")


@click.command()
@click.argument("models", nargs=-1)
@click.option("--form", default="qdq-channel", type=click.Choice(FORMS))
@click.option("--hw", default="default", help="Preset or file of the machine.")
@click.option("--first", default=0, help="First operator.")
@click.option("--count", default=1 << 16, help="Operators at most.")
def main(models: tuple[str, ...], form: str, hw: str, first: int, count: int) -> None:
    """Measure and compare."""
    config, more = load(hw), 0
    for entry in (e for e in ENTRIES if e.name in (models or ("yolov8n", "resnet50"))):
        network = OnnxSource(entry.name, quantised(entry, form), allow_host=True).network()
        operators = [o for o in network.operators if not isinstance(o, HostOperator)]
        network = part_of(network, operators[first : first + count])
        convolutions = {o.name: o for o in network.operators if isinstance(o, ImageConvolution)}
        for inside, part in measured(network, config):
            operator = convolutions.get(inside.name)
            if operator is None:
                print(f"{entry.name} | {inside.name} | {inside.op} | {inside.cycles:,}", flush=True)
                continue
            ((alone, own),) = measured(part_of(network, [operator]), config)
            more += inside.cycles > alone.cycles * (1 + MORE)
            figures = f"{inside.cycles:,} | {alone.cycles:,} | {inside.cycles / alone.cycles:.3f}"
            tiles = f"{tiles_of(part)} | {tiles_of(own)}"
            print(f"{entry.name} | {inside.name} | {shape_of(operator)} | {figures} | {tiles}", flush=True)
    print(f"{more} convolutions take over {MORE:.0%} more inside of their model")
    sys.exit(more > 0)


if __name__ == "__main__":
    main()
