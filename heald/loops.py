"""Map the loops of a Python function to a CGRA, and run them on the RTL."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosim.backends import simulator
from cosim.job import Simulator
from cosim.session.arguments import arguments, function_of
from cosim.session.kernel import (
    KernelResult,
    PreparedKernel,
    base_machine,
    chosen_fabric,
    machine,
    prepare_kernel,
)
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
from sw.cgra.search import SearchEvent, SearchResult, map_graph
from sw.compiler import Observer
from sw.dfg.graph import Graph
from sw.dfg.kernel import Kernel
from sw.dfg.python import from_function, kernel_of
from sw.dfg.text import FunctionText

#: Default limit of the search for one loop, in seconds.
TIMEOUT = 120.0


@dataclass(kw_only=True, repr=False)
class KernelRun(Run):
    """The run of a function's loops on the CGRA."""

    results: Sequence[KernelResult]

    @property
    def result(self) -> KernelResult:
        """The result of its one program."""
        return self.results[0]

    @property
    def inputs(self) -> dict[str, Any]:
        """Arguments by name: shape, type, whether given or random, and the values of scalars."""
        return self.result.kernel.given.as_dict()

    @property
    def configurations(self) -> Mapping[str, Sequence[str]]:
        """Bitstreams of the CGRA by name, with the differences between each and its loop."""
        return {mapped.graph.name: mapped.differences for mapped in self.result.configurations}

    def page(self) -> RunReport:
        """The contents of the report."""
        return of_kernel(self._page(), self.result)

    def _predictor(self) -> None:
        """None: launches are compiled for one CGRA."""

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
            "inputs": self.inputs,
        }


def _configuration(mapped: SearchResult) -> dict[str, Any]:
    """An entry of `launches` in the JSON of a run."""
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
    """Run a kernel and verify it; `options` are those of `heald.run.run_prepared`."""
    options |= {"compile_seconds": prepared.map_seconds, "reference": "the function in 32-bit arithmetic"}
    return run_prepared(prepared, simulator, KernelRun, **options)


@dataclass(frozen=True, repr=False)
class MappedKernel:
    """The loops of a function mapped to a fabric; `loops` holds them in the order of the source text.

    `kernel` is None for a graph read from a file, which can be mapped but not run.
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
        """The initiation interval of the main loop; None if it could not be mapped."""
        mapping = self.main.outcome.mapping
        return None if mapping is None else mapping.ii

    @property
    def mii(self) -> int:
        """The lower bound of the main loop's initiation interval, from resources and recurrences."""
        return self.main.outcome.bound.mii

    @property
    def verified(self) -> bool:
        """Whether every loop was mapped to a bitstream that decodes to its graph."""
        return all(loop.ok for loop in self.loops)

    @property
    def failure(self) -> str:
        """Why a loop has no mapping; empty if all have one."""
        return next((loop.failure for loop in self.loops if loop.failure), "")

    def svg(self, file: str | Path | None = None) -> str:
        """Draw the mapping of the main loop as SVG, one panel per context; with `file`, also write it there.

        Raises `InputError` if there is no mapping.
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
        bandwidth: Mapping[str, int] | None = None,
        latency: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        **values: Any,
    ) -> KernelRun:
        """Run the function on the RTL and verify its results and cycles.

        `values` are arrays and scalars by the names of the function's parameters; missing ones are random,
        drawn from the seed. `hw` is the machine around the CGRA; the other arguments are as for `Model.run`.
        """
        if self.kernel is None:
            raise InputError(f"{self.main.name}: a graph cannot be run, only a function can")
        return run_loop(
            self.kernel,
            values,
            fabric=self.fabric,
            hw=hw,
            unroll=self.unroll,
            seed=self.seed,
            on=on,
            stall=stall,
            bandwidth=bandwidth,
            latency=latency,
            progress=progress,
        )

    def as_dict(self) -> dict[str, Any]:
        """The JSON that `heald map --json` prints: the main loop, and all loops if there are several."""
        main = self.main.as_dict()
        if len(self.loops) == 1:
            return main
        return main | {"launches": [loop.as_dict() for loop in self.loops]}

    def __repr__(self) -> str:
        return f"<{self.main.name} on {self.fabric.name}: {self.failure or f'II {self.ii}, MII {self.mii}'}>"

    def _repr_html_(self) -> str:
        return self.failure or self.svg()


def run_loop(
    loop: Callable[..., Any] | str | Kernel,
    inputs: Mapping[str, Any] | None = None,
    *,
    fabric: str | Fabric | None = None,
    size: tuple[int, int] | None = None,
    hw: Any = None,
    iterations: int | None = None,
    unroll: int = 1,
    seed: int = 0,
    timeout: float | None = None,
    on: str = "verilator",
    stall: int | None = None,
    bandwidth: Mapping[str, int] | None = None,
    latency: Mapping[str, int] | None = None,
    after: Observer | None = None,
    progress: Progress | None = None,
) -> KernelRun:
    """Map the loops of a function, run them on the RTL, and verify results and cycles.

    `inputs` are arrays and scalars by the names of the function's parameters; missing ones are random, drawn
    from `seed`. `iterations` is the trip count of the outermost loop. `hw` is the machine around the CGRA.
    `fabric` and `size` describe the CGRA itself; by default it is the machine's own. Raises `InputError` for
    unknown parameters and for loops that the machine cannot execute.
    """
    kernel = loop if isinstance(loop, Kernel) else _kernel(loop)
    given = arguments(kernel, {n: np.asarray(v) for n, v in (inputs or {}).items()}, iterations, seed)
    around = base_machine(hw.config if isinstance(hw, Machine) else hw)
    target = fabric if isinstance(fabric, Fabric) else chosen_fabric(around, fabric, size)
    with shown(progress) as say:
        if given.drawn:
            say(f"drawn from seed {seed}: {given.drawn_text}")
        prepared = prepare_kernel(
            kernel,
            given,
            machine(around, target),
            lambda config: memories(config, latency, bandwidth, stall),
            times=unroll,
            seed=seed,
            timeout=timeout,
            report=_telling(say),
            after=after,
        )
        return run_kernel(prepared, lambda: simulator(prepared.prediction.config, on), sim=on, progress=say)


def _kernel(loop: Callable[..., Any] | str) -> Kernel:
    if callable(loop):
        return kernel_of(FunctionText.from_function(loop))
    return from_function(*function_of(loop, "a kernel must be FILE.py:FUNCTION"))


def _telling(say: Progress) -> Callable[[Graph, SearchEvent], None]:
    """Report which graph is being mapped, once per II tried."""
    last: tuple[str, int] | None = None

    def report(graph: Graph, event: SearchEvent) -> None:
        nonlocal last
        if last != (graph.name, event.ii):
            last = graph.name, event.ii
            say(f"mapping {graph.name}: {len(graph.nodes)} operations, II {event.ii}")

    return report


def map_loop(
    loop: Callable[..., Any] | str | Path,
    fabric: str | Path | Fabric = "mesh4x4",
    *,
    size: tuple[int, int] | None = None,
    unroll: int = 1,
    seed: int = 0,
    timeout: float = TIMEOUT,
    flat: bool = False,
    progress: Progress | None = None,
) -> MappedKernel:
    """Map the loops of a function to a fabric with the smallest initiation interval (docs/map.md).

    `loop` is a Python function, whose source is read and never called, or a string `FILE.py:FUNCTION` or
    `GRAPH.json`. `fabric` is a preset, a TOML file or a `Fabric`; `size` is its rows and columns. `timeout`
    is in seconds per loop. `flat` places without grouping PEs. Raises `InputError` with file, line and column
    if the source is not a loop. If no mapping was found, `ii` is None and `failure` says why.
    """
    kernel: Kernel | None = None
    loop = str(loop) if isinstance(loop, Path) else loop
    if not callable(loop) and not isinstance(loop, str):
        raise InputError(f"a loop must be a function, FILE.py:FUNCTION or GRAPH.json, not {loop!r}")
    if not isinstance(fabric, str | Path | Fabric):
        raise InputError(f"fabric must be a preset, a TOML file or a Fabric, not {fabric!r}")
    if size is not None and (not isinstance(size, tuple | list) or len(size) != 2):
        raise InputError(f"size must be rows and columns, not {size!r}")
    if not isinstance(timeout, int | float) or isinstance(timeout, bool):
        raise InputError(f"timeout must be seconds, not {timeout!r}")
    target = fabric if isinstance(fabric, Fabric) else load_fabric(str(fabric), size)
    whole_number("unroll", unroll, 1)
    whole_number("seed", seed, 0)
    if callable(loop) or not loop.endswith(".json"):
        kernel = _kernel(loop)
    graphs = loops_of(str(loop), unroll) if kernel is None else graphs_of(kernel, unroll)
    with shown(progress) as say:
        report = _telling(say)
        found = tuple(
            MappedLoop(
                map_graph(
                    graph,
                    target,
                    seed=seed,
                    timeout=timeout,
                    flat=flat,
                    report=functools.partial(report, graph),
                ),
                target,
            )
            for graph in graphs
        )
    return MappedKernel(found, target, kernel, unroll, seed)
