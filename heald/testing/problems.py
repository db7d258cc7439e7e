"""Products and convolutions: compiled, with lower bounds, and drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.job import Job, Outcome
from cosim.jobs import job_of
from cosim.settings import MemorySettings
from hw.config import PORTS, MachineConfig
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.convolution import Convolution
from sw.graph.problems import network_of
from sw.patches import Axis
from sw.problem import Product
from sw.tiling.blocking import Blocking


def compile_problem(
    problem: Product | Convolution,
    config: MachineConfig,
    *,
    name: str = "matmul",
    blocking: Blocking | None = None,
    **options: Any,
) -> Compiled:
    """The program of one product or convolution; `options` are passed to `sw.compiler.compile_network`.

    If registers, loops or instruction memory do not suffice for the best tiles, the next best are used.
    """
    chosen = None if blocking is None else {"C": blocking}
    (made,) = compile_network(network_of(problem, name), config, blockings=chosen, **options)
    assert isinstance(made, Compiled)
    return made


def problem_job(program: Compiled, a: np.ndarray, b: np.ndarray, settings: MemorySettings) -> Job:
    """The job that runs a problem's program on operands in their stored layout."""
    return job_of(program, {"A": a, "B": b}, settings)


def result(program: Compiled, outcome: Outcome) -> np.ndarray:
    """The int32 result that a problem's program left."""
    return program.outputs["C"].extract(outcome.outputs[0])


def bounds(
    problem: Product | Convolution, program: Compiled, bandwidth: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Lower bounds of cycles by resource: the array (`gemm`) and every port; of images, the used pixels."""
    config, homes = program.config, program.memory.homes
    tensors = {"load_a": homes["A"], "load_b": homes["B"], "store": homes["C"]}
    moved = {port: home.rows * home.row * home.itemsize for port, home in tensors.items()}
    if isinstance(problem, Convolution):
        moved["load_b"] = problem.images * problem.channels * problem.rows.used * problem.cols.used
    rate = {port: (bandwidth or {}).get(port, config.port_bytes(port)) for port in moved}
    ports = {port: -(-count // rate[port]) for port, count in moved.items()}
    return {"gemm": -(-problem.macs // config.macs_per_cycle)} | ports


@dataclass(frozen=True)
class Case:
    """One product or convolution, the seed of its operands, and its memories."""

    problem: Product | Convolution
    settings: MemorySettings
    seed: int


def draw(config: MachineConfig, seed: str) -> Case:
    """A random case: 1 to 300 per dimension, types, zero points, layouts, latency, bandwidth, stalls."""
    r = random.Random(seed)

    def size() -> int:
        return r.choice([r.randint(1, 12), r.randint(1, 64), r.randint(1, 300)])

    typed = _operands(r)
    problem = Product(size(), size(), size(), *typed, r.random() < 0.5, r.random() < 0.5)
    return Case(problem, memories(config, r), r.randrange(1 << 32))


def draw_convolution(config: MachineConfig, seed: str) -> Case:
    """A random convolution: kernels, strides, padding, dilation, groups, images, types, zero points."""
    r = random.Random(seed)
    kernel_most = min(config.buffer_a_bytes // config.rows, config.buffer_b_bytes // config.cols) // 4

    def axis() -> Axis:
        kernel, dilation = r.choice([1, 2, 3, 3, 5, 7]), r.choice([1, 1, 2, 3])
        before, after = (r.choice([0, 0, 1, kernel // 2, r.randint(0, 9)]) for _ in range(2))
        least = max(1, (kernel - 1) * dilation + 1 - before - after)
        size = max(least, r.choice([r.randint(1, 9), r.randint(1, 40), r.randint(30, 120)]))
        return Axis(size, kernel, r.choice([1, 1, 2, 3, 7]), before, after, dilation)

    while True:
        rows, cols = axis(), axis()
        groups, images = r.choice([1, 1, 2]), r.choice([1, 1, 2])
        channels, out = groups * r.randint(1, 24), groups * r.randint(1, 24)
        size = images * out * channels * rows.outputs * cols.outputs * rows.kernel * cols.kernel // groups
        if size < 30_000 * config.macs_per_cycle and rows.kernel * cols.kernel < kernel_most:
            break
    problem = Convolution(images, channels, rows, cols, out, *_operands(r), groups)
    return Case(problem, memories(config, r), r.randrange(1 << 32))


def _operands(r: random.Random) -> tuple[str, str, int, int]:
    """Random types and zero points of two operands."""
    types = [r.choice(["int8", "uint8"]) for _ in "ab"]
    zeros = [r.choice([0, r.randint(*((-128, 127) if t == "int8" else (0, 255)))]) for t in types]
    return types[0], types[1], zeros[0], zeros[1]


def memories(config: MachineConfig, r: random.Random) -> MemorySettings:
    """Memories with random latencies, and sometimes random bandwidths and stalls."""
    return MemorySettings.of(
        config,
        latency={p: r.randint(1, 100) for p in PORTS},
        bandwidth={p: r.randint(1, config.port_bytes(p)) for p in PORTS} if r.random() < 0.4 else None,
        stall_seed=r.randrange(1 << 32) if r.random() < 0.5 else None,
        stall_rate=r.choice([16, 64, 128]),
    )
