"""Plans a kernel as launches of the CGRA in loops: location of scalars, inputs and results of each launch.

A scalar is an expression that a warp evaluates, or a word that a launch wrote to an array in the output
buffer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hw.errors import InputError
from sw.cgra.launch_expressions import express
from sw.cgra.launch_merge import assigned, merge
from sw.cgra.launcher import SCALARS
from sw.dfg.graph import Edge, Graph, Memory, Node, NodeId, Value
from sw.dfg.kernel import HostLoop, Kernel, Launch, Step, trips
from sw.dfg.python import parse_kernel
from sw.dfg.transform import fuse_constants, store_outputs
from sw.dfg.unroll import carries_lanes, unroll, unroll_with_rest
from sw.ir.expression import Const, Expr, Op, Var, const, fold
from sw.ir.parse import ENTRY, RESERVED
from sw.ir.program import Assign, For, Instruction, Statement
from sw.ir.walk import Body, instructions


@dataclass(frozen=True)
class PlannedLaunch(Instruction):
    """A launch of a graph without outputs; `operands` are its trip count, and its scalars in order."""

    graph: Graph = field(kw_only=True)


@dataclass(frozen=True)
class LaunchPlan:
    """The launches of a kernel for given values of its scalars.

    `names` are the names of its variables and other reserved names. `words` is the array
    through which scalars pass, of size `word_count`. `results` are the values that the kernel returns:
    numbers, or the words that hold them at the end.
    """

    kernel: Kernel
    scalars: Mapping[str, int]
    body: Body
    names: frozenset[str]
    words: str
    word_count: int
    results: tuple[Const | int, ...]

    @property
    def launches(self) -> tuple[PlannedLaunch, ...]:
        """All launches in the order of the text."""
        return launches_of(self.body)

    def iterations(self, step: Step) -> int | None:
        """The trip count of a loop of the kernel, if it follows from its scalars alone."""
        count = step.count
        if isinstance(count, str) and (count not in self.scalars or count in assigned(self.kernel.body)):
            return None
        return trips(count, self.scalars)


def launches_of(body: Iterable[Statement]) -> tuple[PlannedLaunch, ...]:
    """All launches in a body, in the order of the text."""
    return tuple(s for s in instructions(body) if isinstance(s, PlannedLaunch))


def unused(stem: str, taken: set[str]) -> str:
    """A unique tile-program name like this one, which is then reserved."""
    plain = found = re.sub(r"\W", "_", stem)
    number = 0
    while found in taken:
        number += 1
        found = f"{plain}_{number}"
    taken.add(found)
    return found


#: Location of a scalar: an expression that a warp evaluates, or a word number.
_Place = Expr | int


def plan(kernel: Kernel, scalars: Mapping[str, int], times: int = 1) -> LaunchPlan:
    """The launches of a kernel, with its loops unrolled this many times.

    `scalars` are the kernel's, including the trip count. Raises `InputError` for anything that a tile program
    cannot do: a trip count that the CGRA computes, or more scalars than a launch has.
    """
    return _Planner(merge(kernel, scalars), scalars, times).plan()


@dataclass
class _Planner:
    kernel: Kernel
    scalars: Mapping[str, int]
    times: int
    #: Location of each scalar.
    places: dict[str, _Place] = field(default_factory=dict)
    #: Word number of each scalar.
    words: dict[str, int] = field(default_factory=dict)
    taken: set[str] = field(default_factory=lambda: {*RESERVED, ENTRY})

    def plan(self) -> LaunchPlan:
        """The whole plan."""
        kernel = self.kernel
        arrays = {array.name for array in kernel.arrays}
        self.taken |= arrays
        self.array = unused("words", self.taken)
        self.places = {name: const(value) for name, value in self.scalars.items()}
        # Return values get adjacent words.
        returned = list(dict.fromkeys(value for value in kernel.results if isinstance(value, str)))
        for name in returned:
            self.word(name)
        steps = self.steps(kernel.body)
        own = {name: self.words[name] for name in returned}
        steps += self.move([(own[n], self.places[n]) for n in returned if self.places[n] != own[n]])
        results = [const(v) if isinstance(v, int) else own[v] for v in kernel.results]
        return LaunchPlan(
            kernel,
            self.scalars,
            tuple(steps),
            frozenset(self.taken - arrays - {self.array}),
            self.array,
            len(self.words),
            tuple(results),
        )

    def word(self, name: str) -> int:
        """The word of a scalar."""
        return self.words.setdefault(name, len(self.words))

    def error(self, what: str, found: str) -> InputError:
        """An error of this kernel."""
        return InputError(f"{self.kernel.file}: {self.kernel.name}: {what} must be {found}")

    def steps(self, body: Sequence[Step]) -> list[Statement]:
        """Plans the steps of the kernel in order."""
        made: list[Statement] = []
        for step in body:
            made += self.launch(step) if isinstance(step, Launch) else self.host_loop(step)
        return made

    def count(self, count: Value) -> Expr:
        """The trip count of a loop, never negative."""
        place = self.place(count)
        if isinstance(place, int):
            raise self.error(
                f"the number of iterations {count}",
                "known to a warp before the loop, not computed by the CGRA: a warp cannot read memory",
            )
        return fold(Op.MAX, place, 0)

    def launch(self, step: Launch) -> list[Statement]:
        """Straight-line code, or a loop, unrolled as far as its trip count allows."""
        if step.on_host:
            given = {n: p for n in step.graph.scalars if not isinstance(p := self.places[n], int)}
            found = express(step.graph, given)
            if found is not None:
                self.places |= found
                return []
        total = self.count(step.count)
        short = isinstance(total, Const) and total.value < self.times
        if step.once or self.times == 1 or short:
            return self.run(step.graph, total)
        whole, left = fold(Op.DIV, total, self.times), fold(Op.MOD, total, self.times)
        if left == const(0):
            return self.run(unroll(step.graph, self.times), whole)
        if carries_lanes(step.graph):
            return self.run(step.graph, total)
        first, rest = unroll_with_rest(step.graph, self.times)
        made = self.run(first, whole) if first.nodes else []
        return made + self.run(rest, left)

    def run(self, graph: Graph, count: Expr) -> list[Statement]:
        """A launch, preceded by the values of its outputs if it runs no iteration."""
        written = {output.name: self.word(output.name) for output in graph.outputs}
        pairs: list[tuple[int, _Place]] = []
        # A launch must not overwrite words that it reads.
        words: dict[str, int] = {}
        given: dict[str, Expr] = {}
        stored = store_outputs(graph, self.array, written)
        for name in stored.scalars:
            place = self.places[name]
            if isinstance(place, Expr):
                given[name] = place
            elif place in written.values():
                words[name] = self.word(f"{name} before")
                pairs.append((words[name], place))
            else:
                words[name] = place
        after: dict[str, _Place] = {**written}
        if not (isinstance(count, Const) and count.value > 0):
            for output in graph.outputs:
                first = self.place(output.initial[0])
                if count == const(0) and isinstance(first, Expr):
                    after[output.name] = first
                elif first != written[output.name]:
                    pairs.append((written[output.name], first))
        made = self.move(pairs)
        self.places |= after
        return [*made, self.made(with_words(stored, self.array, words), count, given)]

    def place(self, value: Value) -> _Place:
        """The location of a number or scalar."""
        return const(value) if isinstance(value, int) else self.places[value]

    def made(self, graph: Graph, count: Expr, given: Mapping[str, Expr]) -> PlannedLaunch:
        """A launch of a graph, with constants folded into their users."""
        graph = fuse_constants(graph)
        if len(graph.scalars) > len(SCALARS):
            raise self.error(
                f"scalars of one launch ({graph.name})",
                f"at most {len(SCALARS)}, not {len(graph.scalars)}: {', '.join(graph.scalars)}",
            )
        scalars = ((name, given[name]) for name in graph.scalars)
        return PlannedLaunch("", "cgra", operands=(("iterations", count), *scalars), graph=graph)

    def move(self, pairs: Sequence[tuple[int, _Place]]) -> list[Statement]:
        """Launches that set words, each as many as possible."""
        others = [(word, place) for word, place in pairs if isinstance(place, Expr)]
        made: list[Statement] = []
        for i in range(0, max(1, len(others)), len(SCALARS)):
            part = {f"value{n}": pair for n, pair in enumerate(others[i : i + len(SCALARS)])}
            moved: dict[int, str | int] = {word: name for name, (word, _) in part.items()}
            if i == 0:
                # Words must not be overwritten before they are read.
                moved |= {word: place for word, place in pairs if isinstance(place, int)}
            if moved:
                graph = moves(f"{self.kernel.name}.words", self.array, moved)
                given = {name: place for name, (_, place) in part.items()}
                made.append(self.made(graph, const(1), given))
        return made

    def host_loop(self, step: HostLoop) -> list[Statement]:
        """A loop of the tile program around launches."""
        count = self.count(step.count)
        if count == const(0):
            return []
        variable = unused(step.variable, self.taken)
        carried = [name for name in assigned(step.body) if name in self.places]
        before = dict(self.places)
        in_words = {name for name in carried if isinstance(before[name], int)}
        # A scalar that the CGRA computes in one iteration must be a word at the start of each.
        while True:
            names = {name: unused(name, self.taken) for name in carried if name not in in_words}
            start: dict[str, _Place] = {name: self.word(name) for name in in_words}
            start |= {name: Var(names[name]) for name in names}
            self.places = {**before, **start, step.variable: Var(variable)}
            body = self.steps(step.body)
            ends = {name: self.places[name] for name in carried}
            computed = {name for name in names if isinstance(ends[name], int)}
            if not computed:
                break
            in_words |= computed
        first = [(self.word(n), before[n]) for n in carried if n in in_words and before[n] != start[n]]
        last = [(self.word(n), ends[n]) for n in carried if n in in_words and ends[n] != start[n]]
        made = self.move(first) + [Assign(names[n], _expression(before[n])) for n in names]
        body += self.move(last) + self.assign({names[n]: _expression(ends[n]) for n in names})
        self.places = {**before, **start}
        return [*made, For(variable, Const(0), count, Const(1), tuple(body))]

    def assign(self, values: Mapping[str, Expr]) -> list[Statement]:
        """Assigns the next values of scalars simultaneously."""
        changed = {name: value for name, value in values.items() if value != Var(name)}
        if len(changed) == 1:
            return [Assign(name, value) for name, value in changed.items()]
        between = {name: unused(f"{name}_next", self.taken) for name in changed}
        made: list[Statement] = [Assign(between[name], value) for name, value in changed.items()]
        return made + [Assign(name, Var(between[name])) for name in changed]


def _expression(place: _Place) -> Expr:
    assert isinstance(place, Expr)
    return place


def with_words(graph: Graph, array: str, words: Mapping[str, int]) -> Graph:
    """The graph with named scalars replaced by loads of elements of `array`.

    If the initial value of an edge is such a scalar, it becomes a select between the word and what the edge
    carries. The graph must store to other words. Outputs must not have such initial values.
    """
    nodes: dict[NodeId, Node] = {}
    edges: list[Edge] = []

    def add(node: Node) -> NodeId:
        nodes[node.id] = node
        return node.id

    def load(name: str) -> NodeId:
        # No other node has such a name: nodes of functions, and of what is derived from them, are numbered.
        return add(Node(f"#{name}.load", "load", const=words[name], memory=Memory(array)))

    for node in graph.nodes:
        if node.scalar is None or node.scalar not in words:
            add(node)
        elif graph.operation(node).constant:
            raise InputError(f"graph {graph.name!r}, node {node}: a loop must not compute its quantisation")
        elif node.op == "const":
            add(replace(node, op="load", const=words[node.scalar], scalar=None, memory=Memory(array)))
        else:
            operand = next(o for o, given in graph.operands(node).items() if given == node.scalar)
            edges.append(Edge(load(node.scalar), node.id, 0, operand))
            add(replace(node, scalar=None))
    for number, edge in enumerate(graph.edges):
        carried = replace(edge, initial=tuple(0 if v in words else v for v in edge.initial))
        for t, name in enumerate(edge.initial):
            if not isinstance(name, str) or name not in words:
                continue
            choice = add(Node(f"#{number}.{t}.choice", "select"))
            flag = add(Node(f"#{number}.{t}.flag", "const", const=0))
            # 1 in iteration t, 0 in all others.
            edges.append(Edge(flag, choice, t + 1, "I1", initial=tuple(int(i == t) for i in range(t + 1))))
            edges.append(Edge(load(name), choice, 0, "I2"))
            edges.append(replace(carried, target=choice, operand="I3", negated=False))
            carried = replace(edge, source=choice, distance=0, initial=())
        edges.append(carried)
    return replace(graph, nodes=tuple(nodes.values()), edges=tuple(edges))


def moves(name: str, array: str, moved: Mapping[int, str | int]) -> Graph:
    """A graph that sets words to launch scalars and to other words, simultaneously, in one iteration."""
    words = [source for source in moved.values() if isinstance(source, int)]
    scalars = [source for source in moved.values() if isinstance(source, str)]
    lines = [f"word{source} = {array}[{source}]" for source in words]
    lines += [f"{array}[{word}] = {f'word{s}' if isinstance(s, int) else s}" for word, s in moved.items()]
    body = "".join(f"        {line}\n" for line in lines)
    text = f"def moves({', '.join(('n', array, *scalars))}):\n    for i in range(n):\n{body}"
    return replace(parse_kernel(text, "moves").loops[0].graph, name=name)
