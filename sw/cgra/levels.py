"""Places through levels of detail: operations to groups of PEs first, then to PEs inside and near them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from sw.cgra.assign import assign, clusters
from sw.cgra.attempt import Effort, cool
from sw.cgra.groups import Groups, partition, threshold_for
from sw.cgra.place import Spots, start
from sw.cgra.problem import Problem

#: PEs of a group, about, groups at least and at most, and the clusters that each gets on average.
PES, LEAST_GROUPS, MOST_GROUPS, CLUSTERS = 4, 16, 64, 5
#: Work of the constraint program, in its own units, and the effort (proposals per operation) it needs to pay.
ASSIGN_WORK, ASSIGN_FROM = 1.0, 80_000
#: What a hop away from its group costs an operation when it gets its first place.
FAR = 0.5
#: Share of an effort's proposals for each phase: from good groups on fewer do.
SHARE = 4
#: Temperatures inside of the groups, and after that everywhere.
INSIDE_HEAT, EVERYWHERE_HEAT = (1.5, 0.8), (0.8, 0.2)


def place_levels(
    problem: Problem, seed: tuple[int, ...], effort: Effort, late: Callable[[], bool]
) -> tuple[Spots, int]:
    """Steps and PEs by groups: assigned cluster by cluster, with a constraint program where there is time for
    it, and refined by annealing; with the proposals that took.

    The seed chooses the partition. Every operation stays in its group, and beside it, until the places are
    good; then it may leave, because groups can be wrong in detail. Raises `NoPlaceError`.
    """
    number = seed[-1]
    count = min(max(problem.fabric.size // PES, LEAST_GROUPS), MOST_GROUPS)
    groups = partition(problem.fabric, threshold_for(problem.fabric, count), number)
    most = max(1, problem.size // (CLUSTERS * len(groups)))
    work = ASSIGN_WORK if effort.proposals >= ASSIGN_FROM else 0.0
    of = assign(problem, groups, clusters(problem, most, seed), work)
    spots = start(problem, seed, FAR * _orders(problem, groups, of))
    proposals = effort.proposals * problem.size // SHARE
    inside = replace(problem, allowed=_allowed(problem, groups, of))
    made = cool(inside, spots, seed, proposals // 2, INSIDE_HEAT, late)
    return spots, made + cool(problem, spots, (*seed, 0), proposals - proposals // 2, EVERYWHERE_HEAT, late)


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
