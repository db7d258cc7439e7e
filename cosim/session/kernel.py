"""Prepares a kernel of the CGRA to run on the RTL, and compares it with the meaning of its loops."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.job import Outcome
from cosim.session.arguments import Arguments
from cosim.session.driver import Prepared
from cosim.session.tile_program import PreparedProgram, ProgramResult, prepare
from cosim.settings import MemorySettings
from hw.config import FIELDS, MachineConfig, load
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import load as load_fabric
from sw.cgra.launch_arrays import ArrayExtent
from sw.cgra.launch_plan import plan
from sw.cgra.launch_program import KernelProgram, build
from sw.cgra.search import SearchEvent, SearchResult
from sw.compiler import Observer
from sw.dfg.graph import Graph
from sw.dfg.interpret import Results, run
from sw.dfg.kernel import Kernel

#: Default size of scratchpad and output buffer, so that kernels share one machine.
BUFFER_BYTES = 1 << 15
#: Default machine around the CGRA: a small one, with ports wide enough for several banks.
BASE, BASE_SETTINGS = (
    "test",
    {"load_c_bytes": 32, "store_bytes": 16, "scratch_bytes": BUFFER_BYTES, "out_bytes": BUFFER_BYTES},
)
#: Default fabric, if neither the command nor the machine names one.
FABRIC = "mesh4x4"
#: Instruction words per warp: a launch may have many scalars.
IMEM_WORDS = 1024


def base_machine(
    source: str | MachineConfig | None = None, settings: Mapping[str, Any] | None = None
) -> MachineConfig:
    """The machine around the CGRA: a preset or file (default `BASE`), with single settings changed."""
    own = load(BASE, {"name": BASE, **BASE_SETTINGS}) if source is None else source
    return load(own, settings)


def chosen_fabric(base: MachineConfig, source: str | None, size: tuple[int, int] | None) -> Fabric:
    """The fabric: a preset or file in the given size, or else the machine's own, or else `FABRIC`."""
    if source is None and base.cgra is not None:
        if size is not None:
            raise InputError(f"--grid needs --fabric: the machine already has the CGRA {base.cgra.name!r}")
        return base.cgra
    return load_fabric(source or FABRIC, size)


def machine(base: MachineConfig, fabric: Fabric) -> Callable[[int, int], MachineConfig]:
    """A function that builds the machine: `base` with this fabric, given the bytes of the CGRA's two buffers.

    It has at least as many columns as the fabric has lanes, and both buffers have at least the given size.
    """

    def grown(field: str, size: int) -> int:
        own: int = getattr(base, field)
        most: int = FIELDS[field].metadata["high"]
        if size > most:
            what = FIELDS[field].metadata["meaning"]
            raise InputError(f"{field} ({what}) must be at most {most} bytes, not {size} for this kernel")
        return max(own, 1 << (max(1, size) - 1).bit_length())

    def made(scratch: int, out: int) -> MachineConfig:
        return base.replace(
            cgra=fabric,
            cols=max(base.cols, fabric.lanes),
            scratch_bytes=grown("scratch_bytes", scratch),
            out_bytes=grown("out_bytes", out),
            imem_words=max(base.imem_words, IMEM_WORDS),
        )

    return made


@dataclass(frozen=True, kw_only=True)
class PreparedKernel(Prepared["KernelResult"]):
    """A kernel with its prepared tile program and the expected results."""

    kernel: Kernel
    given: Arguments
    program: KernelProgram
    prepared: PreparedProgram
    expected: Results
    map_seconds: float

    def judged(self, outcomes: Sequence[Outcome]) -> KernelResult:
        """The result: arrays and scalars compared with what the function computes."""
        ran = self.prepared.judged(outcomes)
        memory = ran.compiled.bound.memory
        held = {n: at.extract(ran.memory[at.address : at.address + at.size]) for n, at in memory.items()}
        arrays = {name: self.program.array(name, held) for name in self.expected.arrays}
        returned = self.program.returned(held)
        wrong = self._difference(ran, arrays, returned)
        values = {**arrays, "returned": np.array(returned, np.int32)} if returned else arrays
        found = {**ran.given(), "correct": wrong is None, "values": values}
        return KernelResult(**found, kernel=self, arrays=arrays, returned=returned, difference=wrong)

    def _difference(
        self, ran: ProgramResult, arrays: Mapping[str, np.ndarray], returned: tuple[int, ...]
    ) -> str | None:
        """The first value that differs from what the kernel computes."""
        error = ran.observed.error
        if error is not None:
            return f"error {error.text}"
        for name, array in self.expected.arrays.items():
            wrong = np.flatnonzero(array != arrays[name])
            if wrong.size:
                i = int(wrong[0])
                return f"{name}[{i}]: expected {array[i]}, got {arrays[name][i]}"
        if returned != self.expected.scalars:
            return f"returned: expected {list(self.expected.scalars)}, got {list(returned)}"
        return None if ran.correct else "bytes beside the results"


@dataclass
class KernelResult(ProgramResult):
    """The result of a kernel on the RTL; `arrays` and `returned` are the values that it left.

    `difference` is the first value that differs from what the kernel computes.
    """

    kernel: PreparedKernel
    arrays: Mapping[str, np.ndarray]
    returned: tuple[int, ...]
    difference: str | None

    @property
    def failure(self) -> str:
        """What is wrong with its results, or empty."""
        return self.difference or ""

    @property
    def configurations(self) -> list[SearchResult]:
        """The mapped loops of the kernel."""
        return list(self.kernel.program.mapped.values())

    @property
    def verified(self) -> bool:
        """Whether results, cycles, warps and configurations passed their checks."""
        return super().verified and not any(mapped.differences for mapped in self.configurations)

    @property
    def main(self) -> SearchResult:
        """The kernel's loop with the most operations."""
        loops = {launch.graph.name for launch in self.kernel.kernel.loops}
        mapped = self.kernel.program.mapped.items()
        found = [m for graph, m in mapped if graph.name.removesuffix(".rest") in loops]
        return max(found or self.configurations, key=lambda m: len(m.graph.nodes))


def prepare_kernel(
    kernel: Kernel,
    given: Arguments,
    machine: Callable[[int, int], MachineConfig],
    settings: Callable[[MachineConfig], MemorySettings] = MemorySettings.of,
    *,
    times: int = 1,
    seed: int = 0,
    timeout: float | None = None,
    report: Callable[[Graph, SearchEvent], None] | None = None,
    after: Observer | None = None,
) -> PreparedKernel:
    """Plan, map, compile and predict a kernel, and compute its expected results.

    `times` is the unroll factor of loops. Raises `InputError` for what the machine or its CGRA cannot do.
    """
    expected = run(kernel, given.arrays, given.scalars)
    extents = {name: ArrayExtent(str(array.dtype), len(array)) for name, array in given.arrays.items()}
    begin = time.perf_counter()
    made = build(
        plan(kernel, given.scalars, times), extents, machine, seed=seed, timeout=timeout, report=report
    )
    seconds = time.perf_counter() - begin
    config = made.bound.config
    prepared = prepare(
        made.program, config, settings(config), made.inputs(given.arrays), seed=seed, after=after
    )
    return PreparedKernel(
        jobs=prepared.jobs,
        prediction=prepared.prediction,
        model_seconds=prepared.model_seconds,
        kernel=kernel,
        given=given,
        program=made,
        prepared=prepared,
        expected=expected,
        map_seconds=seconds,
    )
