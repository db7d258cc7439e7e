"""Places through levels of detail: operations to groups of PEs first, then to PEs inside and near them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sw.cgra.assign import assign, clusters
from sw.cgra.attempt import Effort, cool
from sw.cgra.compiled import generator
from sw.cgra.groups import Groups, partition, threshold_for
from sw.cgra.place import Spots, Weights, anneal, start
from sw.cgra.problem import Problem

#: Groups on the coarse level, at most, and the clusters that each gets on average.
MOST_GROUPS, CLUSTERS = 16, 6
#: Work of the constraint program, in its own units, and the effort (proposals per operation) it needs to pay.
ASSIGN_WORK, ASSIGN_FROM = 1.0, 80_000
#: What a hop away from its group costs an operation when it gets its first place.
FAR = 0.5
#: Share of an effort's proposals for each phase: from good groups on fewer do.
SHARE = 4
#: Temperatures inside of the groups, and after that everywhere.
INSIDE_HEAT, EVERYWHERE_HEAT = (1.0, 0.3), (0.5, 0.1)


def place_levels(
    problem: Problem, seed: tuple[int, ...], effort: Effort, late: Callable[[], bool]
) -> tuple[Spots | None, int]:
    """Steps and PEs by groups: assigned cluster by cluster, with a constraint program where there is time for
    it, and refined by annealing; with the proposals that took.

    The seed chooses the partition. Every operation stays in its group, and beside it, until the places are
    good; then it may leave, because groups can be wrong in detail. None where the operations do not fit.
    """
    number = seed[-1]
    groups = partition(problem.fabric, threshold_for(problem.fabric, MOST_GROUPS), number)
    most = max(1, problem.size // (CLUSTERS * len(groups)))
    work = ASSIGN_WORK if effort.proposals >= ASSIGN_FROM else 0.0
    of = assign(problem, groups, clusters(problem, most, seed), work)
    spots = start(problem, seed, FAR * _orders(problem, groups, of))
    if spots is None:
        return None, 0
    arrays = problem.arrays
    inside = arrays._replace(allowed=_allowed(problem, groups, of))
    proposals = effort.proposals * problem.size // SHARE
    anneal(inside, generator(seed), spots, Weights(), proposals, *INSIDE_HEAT)
    return spots, proposals + cool(problem, spots, (*seed, 0), proposals, EVERYWHERE_HEAT, late)


def _orders(problem: Problem, groups: Groups, of: np.ndarray) -> np.ndarray:
    """By operation and PE: how far the PE is from the operation's group."""
    hops = problem.resources.distance
    to_group = np.array([hops[list(group)].min(axis=0) for group in groups])
    return np.asarray(to_group[of])


def _allowed(problem: Problem, groups: Groups, of: np.ndarray) -> np.ndarray:
    """By operation and PE: whether the PE executes it and lies in its group or beside it."""
    near = problem.allowed & (_orders(problem, groups, of) <= 1)
    lost = ~near.any(axis=1)
    near[lost] = problem.allowed[lost]
    return np.asarray(near)
