"""The tile program of a kernel: loads, launches of the CGRA in their loops, stores (docs/kernels.md).

Read-only arrays are in the scratchpad, and written ones in the output buffer. Nothing can load into the
output buffer, so the CGRA itself copies the initial contents of a written array if they matter.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.bitstream import ELEMENTS, OUT, SCRATCH, ArrayEntry
from hw.fabric.operations import LOADS, STORES
from sw.cgra.launch_arrays import ArrayExtent, copied_arrays
from sw.cgra.launch_plan import LaunchPlan, PlannedLaunch, launches_of, unused
from sw.cgra.launcher import HeldConfiguration, launch_operands
from sw.cgra.search import SearchEvent, SearchResult, map_graphs
from sw.dfg.graph import Edge, Graph, Memory, Node, arrays_of
from sw.ir.builder import BufferValue, ProgramBuilder
from sw.ir.expression import Const, Expr
from sw.ir.program import Assign, For, Program, Statement
from sw.tile_programs import Bound, bind

_SPACES = {"scratch": SCRATCH, "out": OUT}
#: Arrays of the graph that copies words, and the number of words it copies per iteration.
SOURCE, TARGET, COPIED = "source", "target", 2


def _copy() -> Graph:
    """Builds a graph that copies words from one array to another, `COPIED` per iteration."""
    nodes, edges = [Node("i", "add", const=COPIED)], [Edge("i", "i", 1, "I1", initial=(-COPIED,))]
    for k in range(COPIED):
        index = f"i{k}" if k else "i"
        if k:
            nodes.append(Node(index, "add", const=k))
            edges.append(Edge("i", index))
        load, store = f"load{k}", f"store{k}"
        nodes += [Node(load, "load", memory=Memory(SOURCE)), Node(store, "store", memory=Memory(TARGET))]
        edges += [Edge(index, load), Edge(index, store), Edge(load, store, 0, "I2")]
    return Graph("copy", tuple(nodes), tuple(edges))


#: The graph that copies words.
COPY = _copy()


@dataclass(frozen=True)
class KernelProgram:
    """A kernel as a tile program for a machine.

    `memory` holds the buffers in memory with their purpose, and `contents` those of configurations. `results`
    is the buffer of the kernel's return values, if the CGRA computes them.
    """

    plan: LaunchPlan
    program: Program
    bound: Bound
    mapped: Mapping[Graph, SearchResult]
    memory: Mapping[str, tuple[str, ArrayExtent]]
    contents: Mapping[str, np.ndarray]
    results: str | None

    def inputs(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The contents of all buffers in memory at the start."""
        given = {**arrays, **self.contents}
        if self.results is not None:
            given[self.results] = np.zeros(self.memory[self.results][1].length, np.int32)
        return {self.memory[name][0]: self.memory[name][1].image(array) for name, array in given.items()}

    def array(self, name: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """An array from the final contents of the buffers."""
        buffer, extent = self.memory[name]
        found: np.ndarray = values[buffer].reshape(-1)[: extent.length]
        return found

    def returned(self, values: Mapping[str, np.ndarray]) -> tuple[int, ...]:
        """The kernel's return values, from the final contents of the buffers."""
        words = [] if self.results is None else self.array(self.results, values).tolist()
        return tuple(r.value if isinstance(r, Const) else words[r] for r in self.plan.results)


def build(
    plan: LaunchPlan,
    arrays: Mapping[str, ArrayExtent],
    machine: Callable[[int, int], MachineConfig],
    *,
    seed: int = 0,
    timeout: float | None = None,
    report: Callable[[Graph, SearchEvent], None] | None = None,
) -> KernelProgram:
    """The tile program of a plan for arrays of these extents.

    `machine` returns the machine for given sizes of scratchpad and output buffer; its CGRA must not depend on
    them. Raises `InputError` for anything that the machine or its CGRA cannot do.
    """
    fabric = machine(0, 0).cgra
    if fabric is None:
        raise InputError(f"a kernel needs a machine with a CGRA, {machine(0, 0).name!r} has none")
    copied = copied_arrays(plan, arrays)
    graphs = [launch.graph for launch in plan.launches] + ([COPY] if copied else [])
    mapped = map_graphs(graphs, fabric, seed=seed, timeout=timeout, report=report)
    writer = _ProgramWriter(plan, arrays, mapped, copied)
    bound = bind(writer.program, machine(writer.bytes["scratch"], writer.bytes["out"]))
    memory = {name: (buffer.declared.name, writer.extents[name]) for name, buffer in writer.memory.items()}
    return KernelProgram(plan, writer.program, bound, mapped, memory, writer.contents(bound), writer.results)


class _ProgramWriter:
    """Writes the program. Its own names contain a space, which no array's name does."""

    def __init__(
        self,
        plan: LaunchPlan,
        arrays: Mapping[str, ArrayExtent],
        mapped: Mapping[Graph, SearchResult],
        copied: Sequence[str],
    ):
        self.plan, self.mapped, self.copied = plan, mapped, copied
        self.bytes: Counter[str] = Counter()
        self.taken = set(plan.names)
        self.there = HeldConfiguration()
        name = plan.kernel.name
        self.b = ProgramBuilder(name if name not in self.taken else f"{name}_")
        self.written = {a.name for a in plan.kernel.arrays if a.written} | {plan.words}
        self.extents = {**arrays, plan.words: ArrayExtent("int32", plan.word_count)}
        #: Configurations with their graphs: one per launched graph, one per copied array.
        self.graphs = {self._copier(array): COPY for array in copied}
        self.configurations = {g: f"configuration {i}" for i, g in enumerate(mapped) if g != COPY}
        self.graphs |= {name: graph for graph, name in self.configurations.items()}
        for name, graph in self.graphs.items():
            self.extents[name] = ArrayExtent("uint32", len(mapped[graph].words()))
        self.memory: dict[str, BufferValue] = {}
        #: On-chip buffers: arrays where they are used, configurations, and initial contents to be copied.
        self.held: dict[str, BufferValue] = {}
        self.sources: dict[str, BufferValue] = {}
        self.results = "the results" if any(isinstance(r, int) for r in plan.results) else None
        self._buffers()
        self._loads()
        for array in copied:
            words, source, target = self._as_words(array).length, self.sources[array], self.held[array]
            self._launch(self._copier(array), words // COPIED, [], [source], [target])
        self._steps(plan.body)
        self.program = self.b.build()

    def _buffers(self) -> None:
        """Buffers in memory and on the chip."""
        names = [a.name for a in self.plan.kernel.arrays]
        for name in [*names, *self.graphs]:
            self.memory[name] = self._buffer(name, name, "memory")
        for name in [*names, *([self.plan.words] if self.plan.word_count else [])]:
            if name in self.written:
                self.held[name] = self._buffer(f"{name}_out", name, "out")
            if name not in self.written or name in self.copied:
                where = self._buffer(f"{name}_in", name, "scratch")
                (self.sources if name in self.written else self.held)[name] = where
        for name in self.graphs:
            self.held[name] = self._buffer(f"{name}_in", name, "scratch")
        self.grid = self.b.buffer(unused("grid", self.taken), 1, space="grid")
        if self.results is not None:
            returned = {r for r in self.plan.results if isinstance(r, int)}
            self.extents[self.results] = ArrayExtent("int32", len(returned))
            self.memory[self.results] = self._buffer("results", self.results, "memory")

    def _buffer(self, name: str, what: str, space: str) -> BufferValue:
        """A buffer for a purpose, with a name like this."""
        extent, name = self.extents[what], unused(name.replace(" ", ""), self.taken)
        self.bytes[space] += extent.bytes
        return self.b.buffer(name, *extent.shape, element=extent.element, space=space)

    def _copier(self, array: str) -> str:
        """The configuration that copies the initial contents of an array."""
        return f"copy {array}"

    def _as_words(self, array: str) -> ArrayExtent:
        """The bytes of an array as words."""
        return ArrayExtent("int32", self.extents[array].bytes // 4)

    def contents(self, bound: Bound) -> dict[str, np.ndarray]:
        """The contents of the buffers of configurations."""

        def entry(buffer: BufferValue, extent: ArrayExtent) -> ArrayEntry:
            space, base = buffer.declared.space or "", bound.places[buffer.declared.name].base
            return ArrayEntry(_SPACES[space], ELEMENTS.index(extent.element), base, extent.length)

        # A buffer that the program does not use has no address.
        used = [n for n, at in self.held.items() if n not in self.graphs and at.declared.name in bound.places]
        places = {name: entry(self.held[name], self.extents[name]) for name in used}
        copies = {
            self._copier(array): {
                SOURCE: entry(self.sources[array], self._as_words(array)),
                TARGET: entry(self.held[array], self._as_words(array)),
            }
            for array in self.copied
        }
        return {
            name: np.array(self.mapped[graph].words(copies.get(name, places)), np.uint32)
            for name, graph in self.graphs.items()
        }

    def _loads(self) -> None:
        """All loads, in the order in which they are needed."""
        order = dict.fromkeys(name for array in self.copied for name in (self._copier(array), array))
        for launch in self.plan.launches:
            order[self.configurations[launch.graph]] = None
            used = arrays_of(launch.graph, *LOADS, *STORES)
            order |= dict.fromkeys(name for name in used if name not in self.written)
        for name in order:
            target = self.sources.get(name) or self.held[name]
            label = unused(f"load_{name.replace(' ', '')}", self.taken)
            self.b.instruction("load_c", memory=self.memory[name], target=target, label=label)

    def _stores(self, names: Iterable[str]) -> None:
        """Stores results that no later step changes."""
        for name in names:
            kept = self.results if name == self.plan.words and self.results else name
            for region in self.extents[kept].regions:
                source, memory = self.held[name][region], self.memory[kept][region]
                label = unused(f"store_{name}", self.taken)
                self.b.instruction("store_out", source=source, memory=memory, label=label)

    def _steps(self, steps: Sequence[Statement]) -> None:
        """All steps, and stores as early as possible."""
        last = {
            name: i
            for i, step in enumerate(steps)
            for launch in launches_of([step])
            for name in arrays_of(launch.graph, *STORES)
        }
        stored = [n for n in self.held if n in self.written and (n in last or n in self.copied)]
        stored = [n for n in stored if n != self.plan.words or self.results is not None]
        self._stores(n for n in stored if n not in last)
        for i, step in enumerate(steps):
            self._step(step)
            self._stores(n for n in stored if last.get(n) == i)

    def _step(self, step: Statement) -> None:
        """One step."""
        match step:
            case Assign(name, value):
                self.b.assign(name, value)
            case PlannedLaunch(graph=graph):
                reads, writes = ([self.held[n] for n in arrays_of(graph, *ops)] for ops in (LOADS, STORES))
                count, *given = (value for _, value in step.operands if isinstance(value, Expr))
                self._launch(self.configurations[graph], count, given, reads, writes)
            case For():
                self._loop(step)

    def _loop(self, step: For) -> None:
        """A loop; if all launches in it share a configuration, it is loaded before."""
        needed = {self.configurations[launch.graph] for launch in launches_of(step.body)}
        if len(needed) == 1:
            (only,) = needed
            if self.there.current != only:
                self._launch(only, 0, [], [], [])
        else:
            self.there.forget()
        with self.b.loop(step.stop, name=step.variable):
            for inner in step.body:
                self._step(inner)
        if len(needed) > 1:
            self.there.forget()

    def _launch(
        self,
        configuration: str,
        count: Expr | int,
        scalars: Sequence[Expr],
        reads: Sequence[BufferValue],
        writes: Sequence[BufferValue],
    ) -> None:
        """One launch; it keeps the current configuration if that is the right one."""
        kept = self.there.keeps(configuration)
        operands = launch_operands(self.held[configuration], count, scalars, kept)
        self.b.instruction(
            "cgra",
            read=[*reads, *([self.grid] if kept else [])],
            write=[*writes, *([] if kept else [self.grid])],
            warp=None,
            when=None,
            label=unused(f"launch_{self.graphs[configuration].name}", self.taken),
            **operands,
        )
