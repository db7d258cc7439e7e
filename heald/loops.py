"""Loops on the CGRA from Python: a function mapped to a fabric, and run on the RTL with given arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosim.backends import simulator
from cosim.job import Simulator
from cosim.session.arguments import arguments
from cosim.session.kernel import KernelResult, PreparedKernel, base_machine, machine, prepare_kernel
from cosim.session.mapped_loop import MappedLoop, graphs_of, loops_of
from heald.files import write_text
from heald.hardware import Machine
from heald.progress import Progress, shown
from heald.report.html.data import RunReport
from heald.report.html.pages import of_kernel
from heald.run import Run, run_prepared
from heald.session import memories
from hw.errors import InputError, whole_number
from hw.fabric import Fabric
from hw.fabric import load as load_fabric
from sw.cgra.draw import to_svg
from sw.cgra.search import SearchResult, map_graph
from sw.dfg.graph import Graph
from sw.dfg.kernel import Kernel
from sw.dfg.python import kernel_of
from sw.dfg.text import FunctionText

#: Seconds after which the search for one loop ends.
TIMEOUT = 120.0


@dataclass(kw_only=True)
class KernelRun(Run):
    """The run of a function's loops; `result` is the one of its program."""

    results: Sequence[KernelResult]

    @property
    def result(self) -> KernelResult:
        """What became of the function."""
        return self.results[0]

    @property
    def configurations(self) -> Mapping[str, Sequence[str]]:
        """Configurations of the CGRA by name, with where their words do not mean their loop."""
        return {mapped.graph.name: mapped.differences for mapped in self.result.configurations}

    def page(self) -> RunReport:
        """What the page of the run shows."""
        return of_kernel(self._page(), self.result)

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald cgra run --json` prints (docs/kernels.md)."""
        result, kernel, config = self.result, self.result.kernel, self.config
        assert config.cgra is not None
        return {
            "correct": self.correct,
            "cycles": self.cycles,
            "model_cycles": self.model_cycles,
            "first_divergence": self.divergence and self.divergence.as_dict(),
            "ii": result.main.found.ii,
            "mii": result.main.bound.mii,
            "difference": result.difference,
            "returned": list(result.returned),
            "launches": [_configuration(m) for m in result.configurations],
            "events": self.events,
            "stores": len(result.observed.stored),
            "counters": {k.lower(): v for k, v in result.observed.counters.items() if k.startswith("CGRA_")},
            "fabric": {
                "name": config.cgra.name,
                "rows": config.cgra.rows,
                "cols": config.cgra.cols,
                "hash": f"{config.cgra.hash:08x}",
            },
            "scratch_bytes": config.scratch_bytes,
            "out_bytes": config.out_bytes,
            "map_seconds": kernel.map_seconds,
            "model_seconds": self.model_seconds,
            "build_seconds": self.build_seconds,
            "sim_seconds": self.sim_seconds,
            "hw": config.hash,
            "program": str(kernel.program.program),
            "programs": {str(w): text for w, text in result.compiled.texts.items()},
            "checked": result.checked.as_dict(),
        }


def _configuration(mapped: SearchResult) -> dict[str, Any]:
    """One entry of `launches` in the JSON of a run."""
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


def run_kernel(prepared: PreparedKernel, simulator: Callable[[], Simulator], **options: Any) -> KernelRun:
    """Run a kernel and compare everything; `options` are those of `heald.run.run_prepared`."""
    fields: dict[str, Any] = {
        "compile_seconds": prepared.map_seconds,
        "reference": "what the function means",
    }
    return run_prepared(prepared, simulator, KernelRun, **fields, **options)


@dataclass(frozen=True)
class MappedKernel:
    """The loops of a function on a fabric; `loops` has one entry for each, in the order of the text.

    `kernel` is None for a graph of a file, which can be mapped but not run.
    """

    loops: tuple[MappedLoop, ...]
    fabric: Fabric
    kernel: Kernel | None
    unroll: int = 1
    seed: int = 0

    @property
    def main(self) -> MappedLoop:
        """The loop with the most operations."""
        return max(self.loops, key=lambda loop: loop.operators)

    @property
    def ii(self) -> int | None:
        """The initiation interval of the main loop; None where it could not be mapped."""
        mapping = self.main.outcome.mapping
        return None if mapping is None else mapping.ii

    @property
    def mii(self) -> int:
        """The least initiation interval that resources and recurrences of the main loop allow."""
        return self.main.outcome.bound.mii

    @property
    def verified(self) -> bool:
        """Whether every loop has a mapping whose bitstream, decoded again, is its graph."""
        return all(loop.ok for loop in self.loops)

    @property
    def failure(self) -> str:
        """Why a loop has no mapping; empty where all have one."""
        return next((loop.failure for loop in self.loops if loop.failure), "")

    def svg(self, file: str | Path | None = None) -> str:
        """A picture of the main loop's mapping, a panel per context, also written to `file` if given.

        Raises `InputError` where there is no mapping.
        """
        mapping = self.main.outcome.mapping
        if mapping is None:
            raise InputError(self.failure)
        text = to_svg(mapping)
        if file is not None:
            write_text(Path(file), text)
        return text

    def run(
        self,
        *,
        on: str = "verilator",
        hw: Any = None,
        stall: int | None = None,
        bandwidth: dict[str, int] | None = None,
        latency: dict[str, int] | None = None,
        progress: Progress | None = None,
        **values: Any,
    ) -> KernelRun:
        """Run the function on the RTL and compare values and cycles with what it means and the model.

        `values` are arrays and scalars by the names of the function's parameters; what is missing is random,
        drawn from the seed. Raises `InputError` for names that are no parameters, and for what the machine
        cannot do.
        """
        if self.kernel is None:
            raise InputError(f"{self.main.name}: a graph cannot be run, only a function can")
        given = arguments(self.kernel, {n: np.asarray(v) for n, v in values.items()}, None, self.seed)
        around = hw.config if isinstance(hw, Machine) else hw
        make = machine(base_machine(around), self.fabric)
        prepared = prepare_kernel(
            self.kernel,
            given,
            make,
            lambda config: memories(config, latency, bandwidth, stall),
            times=self.unroll,
            seed=self.seed,
        )
        with shown(progress) as say:
            return run_kernel(prepared, lambda: simulator(prepared.config, on), sim=on, progress=say)

    def _repr_html_(self) -> str:
        return self.failure or self.svg()


def map_loop(
    loop: Callable[..., Any] | str,
    fabric: str | Fabric = "mesh4x4",
    *,
    size: tuple[int, int] | None = None,
    unroll: int = 1,
    seed: int = 0,
    timeout: float = TIMEOUT,
    progress: Progress | None = None,
) -> MappedKernel:
    """Map the loops of a function to a fabric with the least initiation interval (docs/map.md).

    `loop` is a Python function, which is read and never called, or as text `FILE.py:FUNCTION` or
    `GRAPH.json`. `fabric` is a preset, a TOML file or a `Fabric`, `size` its rows and columns. Raises
    `InputError` with file, line and column for what cannot be a loop; where there is no mapping, `ii` is None
    and `failure` says why.
    """
    target = fabric if isinstance(fabric, Fabric) else load_fabric(fabric, size)
    kernel: Kernel | None = None
    if not callable(loop) and not isinstance(loop, str):
        raise InputError(f"a loop must be a function, FILE.py:FUNCTION or GRAPH.json, not {loop!r}")
    whole_number("unroll", unroll, 1)
    whole_number("seed", seed, 0)
    if callable(loop):
        kernel = kernel_of(FunctionText.from_function(loop))
    elif not loop.endswith(".json"):
        file, _, name = loop.rpartition(":")
        kernel = kernel_of(FunctionText.from_file(file, name)) if file else None
    graphs = loops_of(str(loop), unroll) if kernel is None else graphs_of(kernel, unroll)
    with shown(progress) as say:
        found = tuple(_mapped(graph, target, seed, timeout, say) for graph in graphs)
    return MappedKernel(found, target, kernel, unroll, seed)


def _mapped(graph: Graph, fabric: Fabric, seed: int, timeout: float, say: Progress) -> MappedLoop:
    say(f"mapping {graph.name}: {len(graph.nodes)} operations")
    return MappedLoop(map_graph(graph, fabric, seed=seed, timeout=timeout), fabric)
