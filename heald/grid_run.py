"""Runs a kernel on the grid of a machine: RTL against model and against the meaning of its loops."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cosim.compare import Divergence
from cosim.job import Simulator
from cosim.settings import MemorySettings
from heald.grid_inputs import Arguments
from heald.program_run import Prepared, ProgramResult, prepare, run_prepared
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

#: The machine around the grid where none is named: a small one, with ports wide enough for several banks.
BASE, BASE_SETTINGS = "test", {"load_c_bytes": 32, "store_bytes": 16}
#: The grid where neither a command nor the machine names one.
FABRIC = "mesh4x4"
#: Scratchpad and output buffer have at least so many bytes, so that kernels share machines.
BUFFER_BYTES = 1 << 15
#: Instruction words of a warp: a launch may have many scalars.
IMEM_WORDS = 1024


def base_machine(
    source: str | MachineConfig | None = None, settings: Mapping[str, Any] | None = None
) -> MachineConfig:
    """The machine around the grid: a preset or file, `BASE` where none is named, with single settings."""
    own = BASE_SETTINGS if source is None else {}
    return load(source or BASE, own | dict(settings or {}))


def chosen_fabric(base: MachineConfig, source: str | None, size: tuple[int, int] | None) -> Fabric:
    """The grid: a preset or file in the given size; where none is named the machine's own, or `FABRIC`."""
    if source is None and base.cgra is not None:
        if size is not None:
            raise InputError(f"--grid needs --fabric: the machine has the grid {base.cgra.name!r} already")
        return base.cgra
    return load_fabric(source or FABRIC, size)


def machine(base: MachineConfig, fabric: Fabric) -> Callable[[int, int], MachineConfig]:
    """The machine with a grid whose scratchpad and output buffer hold so many bytes."""

    def grown(field: str, size: int) -> int:
        own: int = getattr(base, field)
        most: int = FIELDS[field].metadata["high"]
        if size > most:
            what = FIELDS[field].metadata["meaning"]
            raise InputError(f"{field} ({what}) must be at most {most} bytes, not {size} for this kernel")
        return max(own, BUFFER_BYTES, 1 << (max(1, size) - 1).bit_length())

    def made(scratch: int, out: int) -> MachineConfig:
        return base.replace(
            cgra=fabric,
            scratch_bytes=grown("scratch_bytes", scratch),
            out_bytes=grown("out_bytes", out),
            imem_words=max(base.imem_words, IMEM_WORDS),
        )

    return made


@dataclass(frozen=True)
class PreparedKernel:
    """All of a run but the RTL."""

    kernel: Kernel
    program: KernelProgram
    prepared: Prepared
    expected: Results
    map_seconds: float

    @property
    def config(self) -> MachineConfig:
        """The machine."""
        return self.prepared.compiled.bound.config


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
    """Plan, map, compile and predict a kernel, and compute what it means.

    `times` is how often loops are unrolled. Raises `InputError` for what the machine or its grid cannot do.
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
    return PreparedKernel(kernel, made, prepared, expected, seconds)


@dataclass(frozen=True)
class KernelResult:
    """What became of a kernel on the RTL; `arrays` and `returned` are what it left there."""

    kernel: PreparedKernel
    result: ProgramResult
    arrays: Mapping[str, np.ndarray]
    returned: tuple[int, ...]
    build_seconds: float = 0.0

    @property
    def difference(self) -> str | None:
        """The first value that is not what the kernel means."""
        expected = self.kernel.expected
        error = self.result.observed.error
        if error is not None:
            return f"error {error.cause.name.lower()}, warp {error.warp}, pc {error.pc}"
        for name, array in expected.arrays.items():
            wrong = np.flatnonzero(array != self.arrays[name])
            if wrong.size:
                i = int(wrong[0])
                return f"{name}[{i}]: expected {array[i]}, got {self.arrays[name][i]}"
        if self.returned != expected.scalars:
            return f"returned: expected {list(expected.scalars)}, got {list(self.returned)}"
        return None if self.result.correct else "bytes beside the results"

    @property
    def cycles(self) -> int:
        """Cycles that were observed on the RTL."""
        return self.result.observed.cycles

    @property
    def model_cycles(self) -> int:
        """Cycles that the cycle model predicted."""
        return self.result.predicted.cycles

    @property
    def divergence(self) -> Divergence | None:
        """Where model and RTL differ first; None if they agree."""
        return self.result.divergence

    @property
    def outputs(self) -> Mapping[str, np.ndarray]:
        """The arrays as the run left them, and what the function returned."""
        if not self.returned:
            return self.arrays
        return {**self.arrays, "returned": np.array(self.returned, np.int32)}

    @property
    def correct(self) -> bool:
        """Whether all values are what the kernel means, and all bytes what the program means."""
        return self.difference is None

    @property
    def proven(self) -> bool:
        """Whether results and cycles are as they must be, warps and configurations passed their checks."""
        return (
            self.correct
            and self.result.divergence is None
            and self.result.checked.ok
            and not any(mapped.differences for mapped in self.kernel.program.mapped.values())
        )

    @property
    def main(self) -> SearchResult:
        """The loop of the kernel with the most operations."""
        loops = {launch.graph.name for launch in self.kernel.kernel.loops}
        found = [m for g, m in self.kernel.program.mapped.items() if g.name.removesuffix(".rest") in loops]
        return max(found or self.kernel.program.mapped.values(), key=lambda m: len(m.graph.nodes))

    def as_dict(self) -> dict[str, Any]:
        """The JSON of a run."""
        divergence = self.result.divergence
        counters = self.result.observed.counters
        config = self.kernel.config
        assert config.cgra is not None
        return {
            "correct": self.correct,
            "cycles": self.result.observed.cycles,
            "model_cycles": self.result.predicted.cycles,
            "first_divergence": divergence and divergence.as_dict(),
            "ii": self.main.found.ii,
            "mii": self.main.bound.mii,
            "difference": self.difference,
            "returned": list(self.returned),
            "launches": [_configuration(m) for m in self.kernel.program.mapped.values()],
            "events": len(self.result.observed.events),
            "stores": len(self.result.observed.stored),
            "counters": {k.lower(): v for k, v in counters.items() if k.startswith("CGRA_")},
            "fabric": {
                "name": config.cgra.name,
                "rows": config.cgra.rows,
                "cols": config.cgra.cols,
                "hash": f"{config.cgra.hash:08x}",
            },
            "scratch_bytes": config.scratch_bytes,
            "out_bytes": config.out_bytes,
            "map_seconds": self.kernel.map_seconds,
            "model_seconds": self.kernel.prepared.model_seconds,
            "build_seconds": self.build_seconds,
            "sim_seconds": self.result.observed.seconds,
            "hw": config.hash,
            "program": str(self.kernel.program.program),
            "programs": {str(w): text for w, text in self.result.compiled.texts.items()},
            "checked": self.result.checked.as_dict(),
        }


def _configuration(mapped: SearchResult) -> dict[str, Any]:
    """What is told of a configuration."""
    return {
        "name": mapped.graph.name,
        "operators": len(mapped.graph.nodes),
        "ii": mapped.found.ii,
        "mii": mapped.bound.mii,
        "depth": mapped.found.depth,
        "proved_minimal": mapped.proved_minimal,
        "verified": not mapped.differences,
        "seconds": mapped.seconds,
    }


def run_kernels(prepared: Sequence[PreparedKernel], simulator: Simulator) -> list[KernelResult]:
    """Run kernels as jobs of one simulation of the machine that they were all prepared for."""
    results = run_prepared([p.prepared for p in prepared], simulator)
    made = []
    for p, result in zip(prepared, results, strict=True):
        memory = result.compiled.bound.memory
        held = {n: at.extract(result.memory[at.address : at.address + at.size]) for n, at in memory.items()}
        arrays = {name: p.program.array(name, held) for name in p.expected.arrays}
        made.append(KernelResult(p, result, arrays, p.program.returned(held), simulator.build_seconds))
    return made
