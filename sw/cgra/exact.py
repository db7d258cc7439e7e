"""Decides with a constraint solver whether a small graph can be mapped at a given II.

The constraints cover all placements, steps, registers and ports, so `INFEASIBLE` means that no mapping
exists.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hw.fabric import Fabric
from sw.cgra.mapping import Mapping, Register, registers_of
from sw.cgra.problem import Problem
from sw.dfg.graph import arrays_of

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

#: Most route choices (values times register transfers) for which a constraint program is built.
MOST_WAYS = 25_000
#: Deterministic work limit of the solver, in its own machine-independent units: about as many seconds.
WORK = 4.0
INFEASIBLE = "proved infeasible"


class _Node(NamedTuple):
    """A register in a context."""

    register: Register
    context: int


class _Extended:
    """The registers times the contexts, with the sources of each.

    A register file needs no more registers than there are contexts to write it.
    """

    def __init__(self, fabric: Fabric, ii: int):
        registers = registers_of(fabric, ii)
        heads = [register.reader(fabric) for register in registers]
        self.nodes = [_Node(r, k) for r in registers for k in range(ii)]
        self.head = [head for head in heads for _ in range(ii)]
        self.arcs: list[tuple[int, int]] = []
        for x, before in enumerate(registers):
            for y, after in enumerate(registers):
                moves = after.kind != "result" and after.pe == heads[x]
                moves = moves and (after.kind == "link" or before.kind == "link")
                # With one context, a stored value would collide with that of the next iteration.
                if (moves and x != y) or (x == y and ii > 1):
                    self.arcs += [(x * ii + k, y * ii + (k + 1) % ii) for k in range(ii)]
        self.into: dict[int, list[int]] = defaultdict(list)
        self.out: dict[int, list[int]] = defaultdict(list)
        for i, (a, b) in enumerate(self.arcs):
            self.out[a].append(i)
            self.into[b].append(i)

    def kept(self, arc: int) -> bool:
        """Whether a value stays in its register."""
        a, b = self.arcs[arc]
        return self.nodes[a].register == self.nodes[b].register


_extended = lru_cache(maxsize=64)(_Extended)


@dataclass
class _Program:
    """The constraint program with its variables."""

    problem: Problem
    fabric: _Extended
    model: cp_model.CpModel

    def __post_init__(self) -> None:
        p, model, nodes = self.problem, self.model, range(len(self.fabric.nodes))
        last = p.fabric.stages * p.arrays.ii - 1
        self.nets = p.nets
        self.at = [{int(q): model.new_bool_var("") for q in np.flatnonzero(row)} for row in p.arrays.allowed]
        self.step = [model.new_int_var(0, last, "") for _ in range(p.size)]
        self.context = [[model.new_bool_var("") for _ in range(p.arrays.ii)] for _ in range(p.size)]
        self.time = [model.new_int_var(0, 2 * last + 2, "") for _ in nodes]
        self.own = {(n, x): model.new_bool_var("") for n in self.nets for x in nodes}
        self.begin = {(n, x): model.new_bool_var("") for n in self.nets for x in nodes}
        self.way = {(n, a): model.new_bool_var("") for n in self.nets for a in range(len(self.fabric.arcs))}
        self.read: dict[tuple[int, int], cp_model.IntVar] = {}

    def build(self) -> None:
        """All constraints."""
        self.places()
        for n in self.nets:
            self.net(n)
        self.shared()
        for e in range(len(self.problem.arrays.source)):
            self.edge(e)
        self.ports()

    def places(self) -> None:
        """Constraint: one PE and one step for each operation, one operation per PE and context."""
        p, model = self.problem, self.model
        held = defaultdict(list)
        for n in range(p.size):
            model.add_exactly_one(self.at[n].values())
            model.add_exactly_one(self.context[n])
            turn = model.new_int_var(0, p.fabric.stages, "")
            model.add(self.step[n] == p.arrays.ii * turn + sum(k * c for k, c in enumerate(self.context[n])))
            for q, here in self.at[n].items():
                for k, now in enumerate(self.context[n]):
                    both = model.new_bool_var("") if p.arrays.ii > 1 else here
                    if p.arrays.ii > 1:
                        model.add_bool_or([here.negated(), now.negated(), both])
                    held[q, k].append(both)
        for busy in held.values():
            model.add_at_most_one(busy)

    def net(self, n: int) -> None:
        """Constraint: a value enters a register from its operation or from one previous register."""
        p, f, model = self.problem, self.fabric, self.model
        for x, node in enumerate(f.nodes):
            begin, own = self.begin[n, x], self.own[n, x]
            model.add(sum(self.way[n, a] for a in f.into[x]) + begin == own)
            for a in f.out[x]:
                model.add_implication(self.way[n, a], own)
            if p.arrays.wide[n] and p.fabric.kinds[f.head[x]].lanes == 1:
                model.add(own == 0)
            here = self.at[n].get(node.register.pe)
            if here is None:
                model.add(begin == 0)
                continue
            model.add_implication(begin, here)
            arrives = (node.context - int(p.arrays.latency[n])) % p.arrays.ii
            model.add_implication(begin, self.context[n][arrives])
            model.add(self.time[x] == self.step[n] + int(p.arrays.latency[n])).only_enforce_if(begin)

    def shared(self) -> None:
        """Constraint: a register has one value, and a hop takes one step."""
        f, model = self.fabric, self.model
        for x in range(len(f.nodes)):
            model.add_at_most_one(self.own[n, x] for n in self.nets)
        for a, (x, y) in enumerate(f.arcs):
            for n in self.nets:
                model.add(self.time[y] == self.time[x] + 1).only_enforce_if(self.way[n, a])

    def edge(self, e: int) -> None:
        """Constraint: a user reads the value in its step; accesses keep their order."""
        p, f, model = self.problem, self.fabric, self.model
        u, v = int(p.arrays.source[e]), int(p.arrays.target[e])
        wait = int(p.arrays.wait[e])
        if not p.arrays.routed[e]:
            model.add(self.step[v] - self.step[u] + wait >= 1)
            return
        ends = []
        hops = p.arrays.on.distance[p.arrays.wide[u]]
        for x, q in enumerate(f.head):
            if q not in self.at[v]:
                continue
            read = model.new_bool_var("")
            ends.append(read)
            self.read[e, x] = read
            model.add_implication(read, self.own[u, x])
            model.add_implication(read, self.at[v][q])
            model.add_implication(read, self.context[v][f.nodes[x].context])
            model.add(self.time[x] == self.step[v] + wait + int(p.arrays.latency[u]) - 1).only_enforce_if(
                read
            )
        model.add_exactly_one(ends)
        # Redundant constraints, which shorten proofs.
        model.add(self.step[v] - self.step[u] + wait >= 1)
        for q, here in self.at[u].items():
            for r, there in self.at[v].items():
                if hops[q, r] > 1:
                    late = self.step[v] - self.step[u] + wait >= int(hops[q, r])
                    model.add(late).only_enforce_if([here, there])

    def ports(self) -> None:
        """Constraint: one register of a file is written per step, and one is read."""
        f, model = self.fabric, self.model
        written: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
        used: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
        for x, node in enumerate(f.nodes):
            if node.register.kind != "register":
                continue
            for n in self.nets:
                comes = [self.way[n, a] for a in f.into[x] if not f.kept(a)]
                written[node.register.pe, node.context] += [*comes, self.begin[n, x]]
            port = model.new_bool_var("")
            used[node.register.pe, node.context].append(port)
            for n in self.nets:
                for a in f.out[x]:
                    if not f.kept(a):
                        model.add_implication(self.way[n, a], port)
            for e in range(len(self.problem.arrays.source)):
                if (e, x) in self.read:
                    model.add_implication(self.read[e, x], port)
        for group in (*written.values(), *used.values()):
            model.add_at_most_one(group)

    def mapping(self, solver: cp_model.CpSolver) -> Mapping:
        """The mapping of a solution."""
        f = self.fabric
        pes = [next(q for q, x in at.items() if solver.boolean_value(x)) for at in self.at]
        paths: dict[int, list[Register]] = {}
        for (e, x), read in self.read.items():
            if solver.boolean_value(read):
                n, path = int(self.problem.arrays.source[e]), [x]
                while not solver.boolean_value(self.begin[n, path[-1]]):
                    ways = (a for a in f.into[path[-1]] if solver.boolean_value(self.way[n, a]))
                    path.append(f.arcs[next(ways)][0])
                paths[e] = [f.nodes[x].register for x in reversed(path)]
        return self.problem.mapping(pes, [solver.value(step) for step in self.step], paths)


def decidable(problem: Problem) -> bool:
    """Whether a graph is small enough, and every table PE can hold all tables of the graph."""
    used = arrays_of(problem.graph, "table")
    words = sum(len(contents) for name, contents in problem.graph.tables if name in used)
    rooms = [kind.table_words for kind in problem.fabric.kinds if kind.table_words]
    fits = problem.graph.opaque or words <= min(rooms, default=0) or not words
    return fits and len(problem.nets) * len(_extended(problem.fabric, problem.arrays.ii).arcs) <= MOST_WAYS


def decide(problem: Problem, seconds: float | None = None) -> Mapping | str:
    """A mapping, `INFEASIBLE`, or why neither was found; `seconds` is a time limit."""
    from ortools.sat.python import cp_model  # imported here: it takes half a second, and few graphs need it

    program = _Program(problem, _extended(problem.fabric, problem.arrays.ii), cp_model.CpModel())
    program.build()
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.catch_sigint_signal = False
    solver.parameters.max_deterministic_time = WORK
    if seconds is not None:
        solver.parameters.max_time_in_seconds = max(seconds, 0.0)
    status = solver.solve(program.model)
    if status == cp_model.INFEASIBLE:
        return INFEASIBLE
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return program.mapping(solver)
    return f"a constraint program of {len(program.way)} ways did not end within its work"
