"""Products and convolutions: as programs with their operands in memory, and drawn at random."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.job import Job
from cosim.jobs import job_of
from cosim.refine import part_of
from cosim.settings import MemorySettings
from hw.config import PORTS, MachineConfig
from sw.compile.images import convolution_problem
from sw.compile.legal import layouts, legal
from sw.compile.matrices import product_problem
from sw.compile.memory import plan_memory
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.convolution import Convolution
from sw.graph.network import ImageConvolution, MatrixProduct
from sw.graph.problems import network_of
from sw.ir.program import Program
from sw.layout import MEMORY_BYTES
from sw.patches import Axis
from sw.problem import Product
from sw.tiling.blocking import Blocking, Extent


@dataclass(frozen=True)
class ProblemProgram:
    """What the compiler made of one product or convolution."""

    problem: Product | Convolution
    compiled: Compiled

    @property
    def name(self) -> str:
        """What it is called."""
        return self.compiled.network.name

    @property
    def config(self) -> MachineConfig:
        """The machine."""
        return self.compiled.config

    @property
    def programs(self) -> dict[int, list[int]]:
        """Instruction words by warp."""
        return self.compiled.programs

    @property
    def instructions(self) -> dict[int, int]:
        """Number of instruction words by warp."""
        return {warp: len(words) for warp, words in self.programs.items()}

    @property
    def source(self) -> Program:
        """The sequential tile program."""
        return self.compiled.source

    @property
    def blocking(self) -> Blocking:
        """The tiles."""
        return part_of(self.compiled).nest.blocking

    @property
    def extent(self) -> Extent:
        """What was tiled."""
        return part_of(self.compiled).problem.extent

    @property
    def windows(self) -> tuple[tuple[int, int, bool, bool], ...]:
        """First byte, last byte, read permission, write permission."""
        return self.compiled.memory.windows

    def memory(self, a: np.ndarray, b: np.ndarray) -> tuple[tuple[int, np.ndarray], ...]:
        """Address and bytes of the operands; raises `InputError` for arrays of another shape or type."""
        self.problem.check(a, b)
        homes = self.compiled.inputs
        return tuple((homes[n].address, homes[n].image(x)) for n, x in (("A", a), ("B", b)))

    @property
    def output(self) -> tuple[int, int]:
        """Address and bytes of the result in memory."""
        home = self.compiled.outputs["C"]
        return home.address, home.size

    def extract(self, data: np.ndarray) -> np.ndarray:
        """The result, int32, out of the bytes of `output`."""
        return self.compiled.outputs["C"].extract(data)

    def bounds(self, bandwidth: Mapping[str, int] | None = None) -> dict[str, int]:
        """Least cycles by what limits them: the array (`gemm`) and every port; of images, used pixels."""
        homes = self.compiled.memory.homes
        moved = {port: homes[n].rows * homes[n].row * homes[n].itemsize for port, n in _PORTS.items()}
        if isinstance(self.problem, Convolution):
            c = self.problem
            moved["load_b"] = c.images * c.channels * c.rows.used * c.cols.used
        rate = {port: (bandwidth or {}).get(port, self.config.port_bytes(port)) for port in moved}
        ports = {port: -(-count // rate[port]) for port, count in moved.items()}
        return {"gemm": -(-self.problem.macs // self.config.macs_per_cycle)} | ports

    def bound_cycles(self, bandwidth: Mapping[str, int] | None = None) -> int:
        """No machine of this array and these ports can be quicker."""
        return max(self.bounds(bandwidth).values())


def extent_of(
    problem: Product | Convolution, config: MachineConfig, memory_bytes: int = MEMORY_BYTES
) -> Extent:
    """What is tiled of a problem."""
    network = legal(network_of(problem), config)
    homes = plan_memory(network, network.operators, layouts(network, config), config, memory_bytes).homes
    operator = next(o for o in network.operators if o.output.tensor == "C")
    if isinstance(operator, ImageConvolution):
        return convolution_problem(operator, homes, config).extent
    assert isinstance(operator, MatrixProduct)
    return product_problem(operator, homes, config).extent


#: The tensor that each port moves.
_PORTS = {"load_a": "A", "load_b": "B", "store": "C"}


def compile_problem(
    problem: Product | Convolution,
    config: MachineConfig,
    *,
    name: str = "matmul",
    blocking: Blocking | None = None,
    **options: Any,
) -> ProblemProgram:
    """The program of one product or convolution; `options` as in `sw.compiler.compile_network`.

    Where registers, loops or instruction memory do not suffice for the best tiles, the next best are taken.
    """
    chosen = None if blocking is None else {"C": blocking}
    (made,) = compile_network(network_of(problem, name), config, blockings=chosen, **options)
    assert isinstance(made, Compiled)
    return ProblemProgram(problem, made)


def problem_job(
    program: ProblemProgram, a: np.ndarray, b: np.ndarray, settings: MemorySettings, name: str = ""
) -> Job:
    """The job that runs a program on operands as stored; raises `InputError` for arrays that do not fit."""
    program.problem.check(a, b)
    return job_of(program.compiled, {"A": a, "B": b}, settings, name)


@dataclass(frozen=True)
class Case:
    """One product or convolution, its operands' seed and its memories."""

    problem: Product | Convolution
    settings: MemorySettings
    seed: int


def draw(config: MachineConfig, seed: str) -> Case:
    """A random case: 1 to 300 per dimension, types, zero points, layouts, latency, bandwidth, stalls."""
    r = random.Random(seed)

    def size() -> int:
        return r.choice([r.randint(1, 12), r.randint(1, 64), r.randint(1, 300)])

    types = {x: r.choice(["int8", "uint8"]) for x in "ab"}
    zeros = {x: r.choice([0, r.randint(*((-128, 127) if types[x] == "int8" else (0, 255)))]) for x in "ab"}
    problem = Product(
        size(),
        size(),
        size(),
        types["a"],
        types["b"],
        zeros["a"],
        zeros["b"],
        r.random() < 0.5,
        r.random() < 0.5,
    )
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
    types = {x: r.choice(["int8", "uint8"]) for x in "ab"}
    zeros = {x: r.choice([0, r.randint(*((-128, 127) if types[x] == "int8" else (0, 255)))]) for x in "ab"}
    problem = Convolution(
        images, channels, rows, cols, out, types["a"], types["b"], zeros["a"], zeros["b"], groups
    )
    return Case(problem, memories(config, r), r.randrange(1 << 32))


def memories(config: MachineConfig, r: random.Random) -> MemorySettings:
    """Random latencies, and for some bandwidths and stalls."""
    return MemorySettings.of(
        config,
        latency={p: r.randint(1, 100) for p in PORTS},
        bandwidth={p: r.randint(1, config.port_bytes(p)) for p in PORTS} if r.random() < 0.4 else None,
        stall_seed=r.randrange(1 << 32) if r.random() < 0.5 else None,
        stall_rate=r.choice([16, 64, 128]),
    )
