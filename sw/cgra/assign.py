"""Assigns operations to groups of PEs by a constraint program: no group too full, values not far.

Operations that exchange values are first joined to clusters, so the program stays small. Distances are
those of the groups' middles in rows and columns; the schedule is left open, so a group holds as many
operations as it has PEs times contexts.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from sw.cgra.compiled import Array
from sw.cgra.groups import Groups
from sw.cgra.problem import Problem

#: Parts of rows and columns in which distances count.
_SCALE = 4
#: How full a group may become, of what it has; a full one leaves no way to improve the details.
FULL = 0.97
#: What an operation beyond that costs: more than any way.
OVER = 100


@dataclass(frozen=True)
class Clusters:
    """Clusters of operations: the number of each operation's, members, joined clusters with their edges."""

    of: Array
    members: tuple[tuple[int, ...], ...]
    joined: dict[tuple[int, int], int]


def clusters(problem: Problem, most: int, seed: tuple[int, ...]) -> Clusters:
    """At most `most` operations each, by heaviest edges first; only operations for the same PEs join."""
    size = problem.size
    kinds = [row.tobytes() for row in problem.allowed]
    of, members = list(range(size)), {n: [n] for n in range(size)}
    weights: dict[tuple[int, int], int] = defaultdict(int)
    for u, v, routed in zip(problem.source, problem.target, problem.routed, strict=True):
        if u != v and routed:
            weights[min(u, v), max(u, v)] += 1
    ties = np.random.default_rng(seed).random(len(weights)) if weights else np.zeros(0)
    order = dict(zip(weights, ties, strict=True))
    while weights:
        # Edges between small clusters first, such that all grow alike.
        ranked = sorted(
            weights,
            key=lambda p: (len(members[p[0]]) + len(members[p[1]]), -weights[p], order.get(p, 1.0), p),
        )
        merged: set[int] = set()
        for a, b in ranked:
            if a in merged or b in merged:
                continue
            same = kinds[members[a][0]] == kinds[members[b][0]]
            if same and len(members[a]) + len(members[b]) <= most:
                merged |= {a, b}
                for n in members[b]:
                    of[n] = a
                members[a] += members.pop(b)
        if not merged:
            break
        again: dict[tuple[int, int], int] = defaultdict(int)
        for u, v, routed in zip(problem.source, problem.target, problem.routed, strict=True):
            a, b = of[u], of[v]
            if a != b and routed:
                again[min(a, b), max(a, b)] += 1
        weights = again
    number = {c: i for i, c in enumerate(members)}
    joined = {(number[a], number[b]): w for (a, b), w in weights.items()}
    return Clusters(
        np.array([number[c] for c in of], dtype=np.int64), tuple(tuple(m) for m in members.values()), joined
    )


def assign(problem: Problem, groups: Groups, found: Clusters, work: float) -> Array:
    """The group of every operation; `work` bounds the solver in units of its own, not in time."""
    fabric = problem.fabric
    middles = [tuple(sum(fabric.at(pe)[k] for pe in g) * _SCALE // len(g) for k in (0, 1)) for g in groups]
    # A complete first solution: what the solver does not improve within its work is still good.
    guess = _greedy(problem, groups, found, middles)
    if work <= 0:
        return np.array([guess[c] for c in found.of], dtype=np.int64)
    model = cp_model.CpModel()
    chosen: list[dict[int, cp_model.IntVar]] = []
    rooms: dict[bytes, list[int]] = {}
    costs: list[cp_model.LinearExprT] = []
    for members in found.members:
        row = problem.allowed[members[0]]
        room = rooms.setdefault(row.tobytes(), [int(row[list(g)].sum()) for g in groups])
        own = {g: model.new_bool_var("") for g in range(len(groups)) if room[g]}
        model.add_exactly_one(own.values())
        chosen.append(own)
    for key, room in rooms.items():
        # All operations whose PEs are among these share them; too full is dear, not forbidden.
        row = np.frombuffer(key, dtype=np.bool_)
        inside = [c for c, m in enumerate(found.members) if not (problem.allowed[m[0]] & ~row).any()]
        for g in range(len(groups)):
            load = sum(len(found.members[c]) * chosen[c][g] for c in inside if g in chosen[c])
            over = model.new_int_var(0, problem.size, "")
            model.add(load <= int(FULL * room[g] * problem.ii) + over)
            costs.append(OVER * over)
            own_load = sum(len(found.members[c]) for c in inside if guess[c] == g)
            model.add_hint(over, max(0, own_load - int(FULL * room[g] * problem.ii)))
    at = []
    for c, own in enumerate(chosen):
        for g, x in own.items():
            model.add_hint(x, int(guess[c] == g))
        place = []
        for k in (0, 1):
            high = max(m[k] for m in middles)
            variable = model.new_int_var(0, high, "")
            model.add(variable == sum(middles[g][k] * x for g, x in own.items()))
            place.append(variable)
            model.add_hint(variable, middles[guess[c]][k])
        at.append(place)
    for (a, b), weight in found.joined.items():
        for k in (0, 1):
            apart = model.new_int_var(0, max(m[k] for m in middles), "")
            model.add(apart >= at[a][k] - at[b][k])
            model.add(apart >= at[b][k] - at[a][k])
            model.add_hint(apart, abs(middles[guess[a]][k] - middles[guess[b]][k]))
            costs.append(weight * apart)
    model.minimize(sum(costs))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.interleave_search = True
    solver.parameters.max_deterministic_time = work
    if solver.solve(model) in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        guess = [next(g for g, x in own.items() if solver.boolean_value(x)) for own in chosen]
    return np.array([guess[c] for c in found.of], dtype=np.int64)


def _greedy(problem: Problem, groups: Groups, found: Clusters, middles: list[tuple[int, ...]]) -> list[int]:
    """Clusters one after the other, neighbours of those before first, where they are nearest and fit."""
    near: list[dict[int, int]] = [{} for _ in found.members]
    for (a, b), weight in found.joined.items():
        near[a][b] = near[b][a] = weight
    used = [0] * len(groups)
    place: dict[int, int] = {}
    waiting = dict.fromkeys(range(len(near)), 0)
    while waiting:
        c = max(waiting, key=lambda c: (waiting[c], -c))
        del waiting[c]
        row = problem.allowed[found.members[c][0]]

        def cost(g: int, c: int = c) -> tuple[int, int, int]:
            full = used[g] + len(found.members[c]) > len(groups[g]) * problem.ii * FULL
            way = sum(
                w * sum(abs(x - y) for x, y in zip(middles[g], middles[place[d]], strict=True))
                for d, w in near[c].items()
                if d in place
            )
            return int(full), way, used[g]

        place[c] = min((g for g in range(len(groups)) if row[list(groups[g])].any()), key=cost)
        used[place[c]] += len(found.members[c])
        for d, w in near[c].items():
            if d in waiting:
                waiting[d] += w
    return [place[c] for c in range(len(near))]
