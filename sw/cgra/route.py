"""Routes values through the registers of the time-extended fabric by negotiation.

A net is the tree from a value to all of its users. Every user is reached by dynamic programming over
registers and steps, starting from the tree so far. Nets may share resources at a price that grows until none
do (L. McMurchie, C. Ebeling, "PathFinder", 1995).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sw.cgra.compiled import NONE, ONE, ZERO, Array, inner
from sw.cgra.problem import Arrays, Problem

#: Cost of a step in a link, in a result register and in a register file, and of a port use.
LINK, RESULT, FILE, PORT = 1.0, 0.35, 0.3, 0.06
#: Growth of the price of an overused resource per round: at that resource, and of all overuse.
PAST, GROWTH = 0.4, 1.15
#: States that a search visits before it gives up on a user: the minimum, and the number per step of a longer
#: path.
MOST_STEPS, PER_STEP, LONG = 1000, 50, 40


class Routes(NamedTuple):
    """The routes and their resource use.

    `path[e, k]` is the register of edge e in the k-th step after its source's last one; `length[e]` counts
    them, 0: not routed. `used[r, c]` counts values in resource r and context c, `past` grows where there
    were too many. `over` holds the sum of uses beyond one; `cost` the price of all routes, with price[0]
    what each use beyond one costs.
    """

    path: Array
    length: Array
    used: Array
    past: Array
    over: Array
    cost: Array
    price: Array


class Scratch(NamedTuple):
    """Working arrays of the router; `stamp` distinguishes current entries from older ones."""

    stamp: Array
    cost: Array
    seen: Array
    back: Array
    tree: Array
    root: Array
    read: Array
    members: Array
    count: Array
    keys: Array
    states: Array


def routes(problem: Problem) -> Routes:
    """No routes yet."""
    r = problem.arrays.on
    return Routes(
        np.zeros((len(problem.arrays.source), problem.longest + 1), dtype=np.int64),
        np.zeros(len(problem.arrays.source), dtype=np.int64),
        np.zeros((r.total, problem.arrays.ii), dtype=np.int64),
        np.zeros((r.total, problem.arrays.ii)),
        np.zeros(1, dtype=np.int64),
        np.zeros(1),
        np.ones(1),
    )


def scratch(problem: Problem) -> Scratch:
    """Empty working arrays."""
    layers, registers = problem.longest + 2, problem.arrays.on.registers
    size, shape = layers * registers, (layers, registers)
    seen, back, tree, root, read = (np.zeros(shape, dtype=np.int64) for _ in range(5))
    stamp, members, count = (np.zeros(n, dtype=np.int64) for n in (2, size, 1))
    keys, states = np.zeros(16 * size), np.zeros(16 * size, dtype=np.int64)
    return Scratch(stamp, np.zeros(shape), seen, back, tree, root, read, members, count, keys, states)


@inner
def base(f: Arrays, resource: int) -> float:
    """The price of a resource that nothing else uses."""
    if resource < f.on.links:
        return LINK
    if resource < f.on.links + f.on.pes:
        return RESULT
    return FILE if resource < f.on.registers else PORT


@inner
def take(f: Arrays, r: Routes, resource: int, context: int, sign: int) -> None:
    """Uses a resource (sign 1) or releases it (-1)."""
    before = r.used[resource, context]
    if (before >= 1) if sign > 0 else (before >= 2):
        r.over[0] += sign
    r.used[resource, context] = before + sign
    r.cost[0] += sign * base(f, resource)


@inner
def change_net(f: Arrays, r: Routes, s: Scratch, e: int, start: int, sign: int) -> None:
    """Uses or releases the resources of edge e that no marked edge of its net uses."""
    stamp = s.stamp[0]
    before = NONE
    for k in range(1, r.length[e] + 1):
        x = r.path[e, k]
        context = (start + k) % f.ii
        if x >= f.on.links + f.on.pes and s.tree[k, x] != stamp and x != before:
            take(f, r, f.on.registers + f.on.head[x], (start + k - 1) % f.ii, sign)
        if before >= f.on.links + f.on.pes and x != before and s.read[k - 1, before] != stamp:
            s.read[k - 1, before] = stamp
            take(f, r, f.on.registers + f.on.pes + f.on.head[before], (start + k - 1) % f.ii, sign)
        if s.tree[k, x] != stamp:
            s.tree[k, x] = stamp
            s.root[k, x] = before
            s.members[s.count[0]] = k * f.on.registers + x
            s.count[0] += 1
            take(f, r, x, context, sign)
        before = x
    k = r.length[e]
    if before >= f.on.links + f.on.pes and s.read[k, before] != stamp:
        s.read[k, before] = stamp
        take(f, r, f.on.registers + f.on.pes + f.on.head[before], (start + k) % f.ii, sign)


@inner
def last_step(f: Arrays, step: Array, n: int) -> int:
    """The last step of node n; its value is available in the next one."""
    return int(step[n] + f.latency[n] - 1)


@inner
def use_net(f: Arrays, r: Routes, s: Scratch, n: int, start: int, sign: int) -> None:
    """Uses all resources on the paths of node n (sign 1) or releases them (-1); the paths are kept."""
    s.stamp[0] += 1
    s.count[0] = 0
    for i in range(f.net_at[n], f.net_at[n + 1]):
        change_net(f, r, s, f.nets[i], start, sign)


@inner
def _price(f: Arrays, r: Routes, resource: int, context: int) -> float:
    return float(base(f, resource) + r.past[resource, context] + r.price[0] * r.used[resource, context])


@inner
def _push(s: Scratch, size: int, key: float, state: int) -> int:
    """Pushes a state on the heap of the search."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if s.keys[parent] <= key:
            break
        s.keys[i], s.states[i] = s.keys[parent], s.states[parent]
        i = parent
    s.keys[i], s.states[i] = key, state
    return size + 1


@inner
def _pop(s: Scratch, size: int) -> int:
    """Pops the first state of the heap."""
    size -= 1
    key, state = s.keys[size], s.states[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and s.keys[child + 1] < s.keys[child]:
            child += 1
        if s.keys[child] >= key:
            break
        s.keys[i], s.states[i] = s.keys[child], s.states[child]
        i = child
    s.keys[i], s.states[i] = key, state
    return size


@inner
def _meets(f: Arrays, s: Scratch, x: int, k: int, y: int) -> bool:
    """Whether a path to register y in layer k meets the value of another iteration there."""
    back, at = x, k - 1
    while at > 0:
        if (k - at) % f.ii == 0 and back == y:
            return True
        back = s.root[at, back] if s.tree[at, back] == s.stamp[0] else s.back[at, back]
        at -= 1
    return False


@inner
def _ahead(f: Arrays, hops: int, steps: int) -> float:
    """A lower bound of the price of this many more steps; a value stays in one place at most II steps."""
    links = max(hops, steps // (f.ii + 1))
    return links * LINK + (steps - links) * FILE


@inner
def _relax(
    f: Arrays,
    r: Routes,
    s: Scratch,
    size: int,
    x: int,
    k: int,
    y: int,
    cost: float,
    start: int,
    wide: int,
    goal: int,
    end: int,
) -> int:
    """Reaches register y in layer k from register x (-1: the operation); x == y == -2: it is in the tree."""
    # A wide value cannot get near from a PE of one lane.
    hops = f.on.distance[wide, f.on.head[y], goal]
    if hops > end - k:
        return size
    stored = y >= f.on.links + f.on.pes
    if s.tree[k, y] != s.stamp[0]:
        cost += _price(f, r, y, (start + k) % f.ii)
        if stored and x != y:
            cost += _price(f, r, f.on.registers + f.on.head[y], (start + k - 1) % f.ii)
    elif x != y or cost > 0.0:
        return size
    if stored and k == end and s.read[k, y] != s.stamp[0]:
        cost += _price(f, r, f.on.registers + f.on.pes + f.on.head[y], (start + k) % f.ii)
    if s.seen[k, y] == s.stamp[1] and s.cost[k, y] <= cost:
        return size
    if k > f.ii and s.tree[k, y] != s.stamp[0] and _meets(f, s, x, k, y):
        return size
    s.seen[k, y] = s.stamp[1]
    s.cost[k, y] = cost
    s.back[k, y] = x
    # A lower bound of the remaining cost (A*); ties go to the state nearest to the end.
    key = cost + _ahead(f, hops, end - k) - 1e-6 * k
    return _push(s, size, key, k * f.on.registers + y)


@inner
def _search(f: Arrays, r: Routes, s: Scratch, p: int, start: int, wide: int, goal: int, end: int) -> int:
    """The register in which the value arrives at the lowest price, or -1 (A* over registers and steps)."""
    s.stamp[1] += 1
    size = ZERO
    file = f.on.links + f.on.pes
    for i in range(s.count[0]):
        k, x = s.members[i] // f.on.registers, s.members[i] % f.on.registers
        if k <= end:
            size = _relax(f, r, s, size, x, k, x, 0.0, start, wide, goal, end)
    cost, x, k, at = 0.0, NONE, ZERO, p
    for _ in range(MOST_STEPS if end <= LONG else PER_STEP * end):
        # The operation itself comes first, like a layer 0.
        if k == end:
            return int(x)
        if k > 0 and x >= file and s.read[k, x] != s.stamp[0]:
            cost_read = cost + _price(f, r, f.on.registers + f.on.pes + at, (start + k) % f.ii)
        else:
            cost_read = cost
        outs = f.on.out_at[at + 1] - f.on.out_at[at]
        files = f.on.file_at[at + 1] - f.on.file_at[at] if x < f.on.links else 0
        for i in range(1 + outs + files):
            if i == 0:
                y = f.on.links + at if k == 0 else x
            elif i <= outs:
                y = f.on.out_links[f.on.out_at[at] + i - 1]
            else:
                y = f.on.file_at[at] + i - 1 - outs
            paid = cost_read if y < f.on.links and y != x else cost
            size = _relax(f, r, s, size, x, k + 1, y, paid, start, wide, goal, end)
        while True:
            if size == 0:
                return -1
            key, state = s.keys[0], s.states[0]
            size = _pop(s, size)
            k, x = state // f.on.registers, state % f.on.registers
            cost = s.cost[k, x]
            at = f.on.head[x]
            # Skip outdated heap entries: their state was since reached at a lower price.
            if key <= cost + _ahead(f, f.on.distance[wide, at, goal], end - k):
                break
    return -1


@inner
def route_net(f: Arrays, r: Routes, s: Scratch, n: int, step: Array, pe: Array) -> None:
    """Routes the net of node n, which uses nothing yet; users that are not reached in time get no route."""
    start = last_step(f, step, n)
    first, last = f.net_at[n], f.net_at[n + 1]
    s.stamp[0] += 1
    s.count[0] = 0
    left = 0
    for i in range(first, last):
        e = f.nets[i]
        v = f.target[e]
        steps = step[v] - step[n] + f.wait[e]
        if steps < max(1, f.on.distance[f.wide[n], pe[n], pe[v]]) or steps >= r.path.shape[1]:
            r.length[e] = 0
        else:
            r.length[e] = -steps
            left += 1
    while left > 0:
        # Nearest user in time first.
        e = NONE
        for i in range(first, last):
            if r.length[f.nets[i]] < 0 and (e < 0 or r.length[f.nets[i]] > r.length[e]):
                e = f.nets[i]
        left -= 1
        end = -r.length[e]
        x = _search(f, r, s, pe[n], start, f.wide[n], pe[f.target[e]], end)
        r.length[e] = 0
        if x < 0:
            continue
        r.length[e] = end
        for k in range(end, 0, -1):
            r.path[e, k] = x
            x = s.root[k, x] if s.tree[k, x] == s.stamp[0] else s.back[k, x]
        change_net(f, r, s, e, start, ONE)


@inner
def negotiate(f: Arrays, r: Routes, s: Scratch, step: Array, pe: Array, rounds: int) -> None:
    """Routes all nets repeatedly, in at most this many rounds, until nothing is overused."""
    nodes = step.shape[0]
    for turn in range(rounds):
        for n in range(nodes):
            if f.net_at[n + 1] > f.net_at[n]:
                if turn > 0:
                    use_net(f, r, s, n, last_step(f, step, n), -ONE)
                route_net(f, r, s, n, step, pe)
        if r.over[0] == 0:
            return
        for x in range(r.used.shape[0]):
            for c in range(f.ii):
                if r.used[x, c] > 1:
                    r.past[x, c] += PAST * (r.used[x, c] - 1)
        r.price[0] *= GROWTH
