"""The tile program of a kernel: loads, launches of the grid in their loops, stores (docs/kernels.md).

Arrays that are only read lie in the scratchpad, those that are written in the output buffer. Nothing loads
into the output buffer, so the grid itself copies what a written array holds at the start, where that matters.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.bitstream import ELEMENTS, OUT, SCRATCH, ArrayEntry, encode
from sw.cgra.launch_arrays import Extent, copied_arrays
from sw.cgra.launch_map import COPIED, COPY, COPY_PLACES, Mapped, arrays_of, map_graphs
from sw.cgra.launch_plan import SCALARS, Plan, Planned, Repeat, Run, Scalar
from sw.cgra.search import Event
from sw.dfg.graph import Graph
from sw.ir.builder import BufferValue, ProgramBuilder, Value
from sw.ir.expression import Const, Expr, const, substitute
from sw.ir.intrinsics import KEEP
from sw.ir.parse import ENTRY, RESERVED
from sw.ir.program import Program
from sw.tile_programs import Bound, bind

_SPACES = {"scratch": SCRATCH, "out": OUT}


@dataclass(frozen=True)
class GridProgram:
    """A kernel as a tile program for a machine.

    `extents` are its arrays and those that it makes, `buffers` the names of their buffers in memory;
    `contents` is what the configurations hold. `results` is the array of what the kernel returns, if the grid
    computes it.
    """

    plan: Plan
    program: Program
    bound: Bound
    mapped: Mapping[Graph, Mapped]
    extents: Mapping[str, Extent]
    buffers: Mapping[str, str]
    contents: Mapping[str, np.ndarray]
    results: str | None

    def inputs(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The contents of all buffers in memory at the start."""
        given = {**arrays, **self.contents}
        if self.results is not None:
            given[self.results] = np.zeros(self.extents[self.results].length, np.int32)
        return {self.buffers[name]: self.extents[name].image(array) for name, array in given.items()}

    def array(self, name: str, values: Mapping[str, np.ndarray]) -> np.ndarray:
        """An array out of the contents of the buffers at the end."""
        found: np.ndarray = values[self.buffers[name]].reshape(-1)[: self.extents[name].length]
        return found

    def returned(self, values: Mapping[str, np.ndarray]) -> tuple[int, ...]:
        """What the kernel returns, out of the contents of the buffers at the end."""
        words = [] if self.results is None else self.array(self.results, values).tolist()
        return tuple(r.value if isinstance(r, Const) else words[r] for r in self.plan.results)


def build(
    plan: Plan,
    arrays: Mapping[str, Extent],
    machine: Callable[[int, int], MachineConfig],
    *,
    seed: int = 0,
    timeout: float | None = None,
    report: Callable[[Graph, Event], None] | None = None,
) -> GridProgram:
    """The tile program of a plan for arrays of these extents.

    `machine` gives the machine for so many bytes of the scratchpad and the output buffer; it must have a
    grid, the same for all sizes. Raises `InputError` for what the machine or its grid cannot do.
    """
    fabric = machine(0, 0).cgra
    if fabric is None:
        raise InputError(f"a kernel needs a machine with a grid, {machine(0, 0).name!r} has none")
    copied = copied_arrays(plan, arrays)
    graphs = [run.graph for run in plan.runs] + ([COPY] if copied else [])
    mapped = map_graphs(graphs, fabric, seed=seed, timeout=timeout, report=report)
    writer = _Writer(plan, dict(arrays), mapped, copied)
    first = writer.program({})
    bound = bind(first, machine(writer.room("scratch"), writer.room("out")))
    places = {
        name: ArrayEntry(
            _SPACES[place.space], ELEMENTS.index(place.buffer.element), place.base, writer.length(name)
        )
        for name, place in bound.places.items()
        if place.space in _SPACES and place.buffer.element in ELEMENTS
    }
    program = writer.program(places)
    buffers = {name: buffer.declared.name for name, buffer in writer.memory.items()}
    contents = writer.contents(places)
    return GridProgram(plan, program, bound, mapped, writer.extents, buffers, contents, writer.results)


@dataclass
class _Writer:
    """Makes the program, once without and once with the places of its arrays.

    What it makes itself has names with a space, which no array has.
    """

    plan: Plan
    extents: dict[str, Extent]
    mapped: Mapping[Graph, Mapped]
    copied: Sequence[str]
    results: str | None = None
    places: Mapping[str, ArrayEntry] = field(default_factory=dict)
    #: Buffers by what they hold: arrays on the chip, configurations there.
    held: dict[str, BufferValue] = field(default_factory=dict)
    sources: dict[str, BufferValue] = field(default_factory=dict)
    memory: dict[str, BufferValue] = field(default_factory=dict)
    configurations: dict[Graph, str] = field(default_factory=dict)
    #: The configuration that the grid holds where the next statement stands, if that is known.
    current: Graph | None = None
    variables: dict[str, Expr] = field(default_factory=dict)
    bytes: Counter[str] = field(default_factory=Counter)
    taken: set[str] = field(default_factory=set)

    def program(self, places: Mapping[str, ArrayEntry]) -> Program:
        """The whole program."""
        kernel = self.plan.kernel
        self.places, self.current, self.variables = places, None, {}
        self.bytes, self.taken = Counter(), {*RESERVED, ENTRY, *self.plan.names}
        name = kernel.name if kernel.name not in self.taken else f"{kernel.name}_"
        self.b = b = ProgramBuilder(name)
        self.written = {a.name for a in kernel.arrays if a.written} | {self.plan.words}
        names = [a.name for a in kernel.arrays]
        self.memory = memory = {name: self.buffer(name, self.extents[name], "memory") for name in names}
        self.extents[self.plan.words] = Extent("int32", self.plan.word_count)
        for i, (graph, mapped) in enumerate(self.mapped.items()):
            name = self.configurations[graph] = f"configuration {i}"
            self.extents[name] = Extent("uint32", len(encode(mapped.configuration())))
            memory[name] = self.buffer(name, self.extents[name], "memory")
        self.held, self.sources = {}, {}
        for name in [*names, *([self.plan.words] if self.plan.word_count else [])]:
            if name in self.written:
                self.held[name] = self.buffer(f"{name}_out", self.extents[name], "out")
            if name not in self.written or name in self.copied:
                where = self.buffer(f"{name}_in", self.extents[name], "scratch")
                (self.sources if name in self.written else self.held)[name] = where
        for name in self.configurations.values():
            self.held[name] = self.buffer(f"{name}_in", self.extents[name], "scratch")
        self.grid = b.buffer(self.unique("grid"), 1, space="grid")
        self.results = None
        count = sum(isinstance(r, int) for r in set(self.plan.results))
        if count:
            self.results = "the results"
            self.extents[self.results] = Extent("int32", count)
            memory[self.plan.words] = memory[self.results] = self.buffer(
                self.results, self.extents[self.results], "memory"
            )
        self.loads()
        for name in self.copied:
            self.copy(name)
        self.body(self.plan.steps)
        return b.build()

    def buffer(self, name: str, extent: Extent, space: str) -> BufferValue:
        """A buffer for something, with a name like this."""
        self.bytes[space] += extent.bytes
        return self.b.buffer(self.unique(name), *extent.shape, element=extent.element, space=space)

    def unique(self, name: str) -> str:
        """A name of the tile program like this that nothing else has."""
        name = re.sub(r"\W", "_", name.removeprefix("the ").replace(" ", ""))
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def room(self, space: str) -> int:
        """Bytes of all buffers in a space."""
        return self.bytes[space]

    def length(self, buffer: str) -> int:
        """The elements of the array that a buffer on the chip holds."""
        found = {
            place.declared.name: name for held in (self.held, self.sources) for name, place in held.items()
        }
        return self.extents[found[buffer]].length

    def contents(self, places: Mapping[str, ArrayEntry]) -> dict[str, np.ndarray]:
        """What the buffers of configurations hold."""
        made: dict[str, np.ndarray] = {}
        for graph, name in self.configurations.items():
            mapped = self.mapped[graph]
            if graph == COPY:
                own = COPY_PLACES
            else:
                own = {a: places[self.held[a].declared.name] for a in mapped.arrays}
            words = encode(mapped.configuration(own))
            made[name] = np.array(words, np.uint32)
        return made

    # Loads and stores

    def loads(self) -> None:
        """Everything that is needed, in the order in which it is."""
        order: dict[str, None] = {}
        if self.copied:
            order[self.configurations[COPY]] = None
            order |= dict.fromkeys(self.copied)
        for run in self.plan.runs:
            order[self.configurations[run.graph]] = None
            order |= dict.fromkeys(n for n in arrays_of(run.graph, "load", "store") if n not in self.written)
        for name in order:
            target = self.sources[name] if name in self.sources else self.held[name]
            self.b.instruction(
                "load_c", memory=self.memory[name], target=target, label=self.unique(f"load_{name}")
            )

    def copy(self, name: str) -> None:
        """The grid copies what a written array holds at the start."""
        words = self.extents[name].bytes // 4
        source, target = self.sources[name], self.held[name]
        given = [self.base(source), self.base(target), words]
        self.launch(COPY, words // COPIED, [const(v) for v in given], [source], [target])

    def base(self, buffer: BufferValue) -> int:
        """Where a buffer starts."""
        place = self.places.get(buffer.declared.name)
        return 0 if place is None else place.base

    def stores(self, names: Sequence[str]) -> None:
        """Results that nothing changes any more."""
        for name in names:
            source, memory = self.held[name], self.memory[name]
            for region in self.extents[
                self.results if name == self.plan.words and self.results else name
            ].regions:
                label = self.unique(f"store_{name}")
                self.b.instruction("store_out", source=source[region], memory=memory[region], label=label)

    # Launches

    def body(self, steps: Sequence[Planned]) -> None:
        """All steps, and stores as early as possible."""
        last = {
            name: i for i, step in enumerate(steps) for run in _runs_of(step) for name in self.writes(run)
        }
        stored = [n for n in self.held if n in self.written and (n in last or n in self.copied)]
        stored = [n for n in stored if n != self.plan.words or self.results is not None]
        self.stores([n for n in stored if n not in last])
        for i, step in enumerate(steps):
            self.step(step)
            self.stores([n for n in stored if last.get(n) == i])

    @staticmethod
    def writes(run: Run) -> tuple[str, ...]:
        """The arrays that a launch writes."""
        return arrays_of(run.graph, "store")

    def step(self, step: Planned) -> None:
        """One step."""
        match step:
            case Scalar(name, value):
                made = self.expr(value)
                if name in self.variables:
                    self.b.assign(Value(self.variables[name]), made)
                else:
                    self.variables[name] = self.b.scalar(made, name).expr
            case Run():
                reads = [self.held[n] for n in arrays_of(step.graph, "load")]
                writes = [self.held[n] for n in self.writes(step)]
                given = [self.expr(value) for _, value in step.scalars]
                self.launch(step.graph, self.expr(step.count), given, reads, writes)
            case Repeat():
                self.repeat(step)

    def repeat(self, step: Repeat) -> None:
        """A loop; where all launches in it have one configuration, it is brought before."""
        graphs = {run.graph for run in _runs_of(step)}
        if len(graphs) == 1:
            (only,) = graphs
            if self.current != only:
                # A launch of no iteration only brings its configuration.
                self.launch(only, 0, [], [], [])
        else:
            self.current = None
        with self.b.loop(self.expr(step.count), name=step.variable) as variable:
            self.variables[step.variable] = variable.expr
            for inner in step.body:
                self.step(inner)
        if len(graphs) > 1:
            self.current = None

    def launch(
        self,
        graph: Graph,
        count: Expr | int,
        scalars: Sequence[Expr],
        reads: Sequence[BufferValue],
        writes: Sequence[BufferValue],
    ) -> None:
        """One launch; the configuration is kept where it is there."""
        kept = self.current == graph
        configuration = const(KEEP) if kept else self.held[self.configurations[graph]]
        self.current = graph
        given = {"live0": const(0), "live1": const(0)} | dict(zip(SCALARS, scalars, strict=False))
        self.b.instruction(
            "cgra",
            read=[*reads, *([self.grid] if kept else [])],
            write=[*writes, *([] if kept else [self.grid])],
            warp=None,
            when=None,
            label=self.unique(f"launch_{graph.name}"),
            bitstream=configuration,
            iterations=count,
            **given,
        )

    def expr(self, expr: Expr) -> Expr:
        """An expression with the variables as they are declared here."""
        return substitute(expr, self.variables)


def _runs_of(step: Planned) -> tuple[Run, ...]:
    if isinstance(step, Run):
        return (step,)
    return tuple(run for inner in step.body for run in _runs_of(inner)) if isinstance(step, Repeat) else ()
