"""Random small programs with random waits and signals, right and wrong, and their faults by brute force."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sw.check.explore import explore
from sw.check.order import Event, Finding
from sw.check.streams import OP, SIGNAL, WAIT, Stream
from sw.ir.intrinsics import effects
from sw.ir.parse import parse_program
from sw.ir.program import Program, Region
from tests.sw.check.execute import flatten


@dataclass(frozen=True)
class Case:
    """A sequential program and a text for every warp of it."""

    program: Program
    texts: dict[int, str]


def random_case(rng: random.Random, shared: float = 0.0) -> Case:
    """Up to eight instances on up to four warps; `shared` is how likely channels are picked at random."""
    warps, count = rng.randint(1, 4), rng.randint(1, 8)
    shape = rng.choice(((8,), (8,), (4, 4)))
    lines = [f"    a: Buffer[{', '.join(map(str, shape))}]", "    b: Buffer[4]"]
    owner = []
    for n in range(count):
        owner.append(rng.randrange(warps))
        given = [f"read={_places(rng, shape)}"] if rng.random() < 0.6 else []
        if not given or rng.random() < 0.5:
            given.append(f"write={_places(rng, shape)}")
        lines.append(f"    I{n} = f({', '.join(given)}, k={n}, warp={owner[n]})")
    program = parse_program("@program\ndef p():\n" + "\n".join(lines) + "\n")
    return Case(program, _texts(rng, program, owner, shared))


def _places(rng: random.Random, shape: tuple[int, ...]) -> str:
    if rng.random() < 0.03:
        return "ANY"
    found = []
    for _ in range(rng.choice((1, 1, 2))):
        name, sizes = rng.choice((("a", shape), ("a", shape), ("b", (4,))))
        box = []
        for size in sizes:
            low = rng.randrange(size)
            box.append(f"{low}:{min(size, low + rng.choice((0, 1, 2, 2, 4)))}")
        found.append(f"{name}[{', '.join(box)}]")
    return f"[{', '.join(found)}]"


def _texts(rng: random.Random, program: Program, owner: Sequence[int], shared: float) -> dict[int, str]:
    """Waits and signals for most dependences, and some changes."""
    needed = [(s, t) for (_, s), (_, t) in conflicts(program, {}, numbers=True)]
    share = rng.choice((0.0, 0.5, 0.9, 1.0, 1.0, 1.0))
    chosen = {pair for pair in needed if rng.random() < share}
    for pair in itertools.combinations(range(len(owner)), 2):
        if owner[pair[0]] != owner[pair[1]] and rng.random() < 0.05:
            chosen.add(pair)
    pool = rng.randint(1, 3)
    random_channels = rng.random() < shared
    after: dict[int, list[str]] = {n: [] for n in range(len(owner))}
    ahead: dict[int, list[str]] = {n: [] for n in range(len(owner))}
    numbers: dict[tuple[int, int], int] = {}
    for s, t in sorted(chosen, key=lambda p: (p[1], p[0]) if rng.random() < 0.9 else (p[0], p[1])):
        ends = (owner[s], owner[t])
        channel = rng.randrange(pool) if random_channels else numbers.setdefault(ends, len(numbers))
        after[s].append(f"signal {channel}")
        ahead[t].append(f"wait {channel}")
    rows: dict[int, list[str]] = {w: [] for w in owner}
    for n, w in enumerate(owner):
        rows[w] += [*ahead[n], f"op I{n}", *after[n]]
    for _ in range(rng.choice((0, 0, 0, 1, 2))):
        _change(rng, rows)
    return {w: "\n".join([*lines, "halt"]) for w, lines in rows.items()}


def _change(rng: random.Random, rows: dict[int, list[str]]) -> None:
    """Take out, move or double a wait or signal."""
    lines = rows[rng.choice(sorted(rows))]
    places = [n for n, line in enumerate(lines) if not line.startswith("op")]
    if not places:
        return
    at = rng.choice(places)
    match rng.randrange(3):
        case 0:
            del lines[at]
        case 1:
            line = lines.pop(at)
            lines.insert(rng.randint(0, len(lines)), line)
        case _:
            lines.insert(at, lines[at])


def conflicts(
    program: Program, values: Mapping[str, int], *, numbers: bool = False
) -> list[tuple[Event, Event]]:
    """Every pair of instances of different warps that share an element, one of them writing it.

    An instance is its warp and its place among those of the warp; with `numbers`, among all.
    """
    all_ = []
    counts: dict[int, int] = {}
    whole = {(b.name,) for b in program.buffers}
    for n, (i, _) in enumerate(flatten(program, values)):
        assert i.warp is not None
        reads, writes = (
            [_elements(a) if isinstance(a, Region) else whole for a in side] for side in effects(i)
        )
        place = counts.get(i.warp, 0)
        counts[i.warp] = place + 1
        all_.append(((i.warp, n if numbers else place), set().union(*reads), set().union(*writes)))
    return [
        (s, t)
        for (s, reads, writes), (t, reads_then, writes_then) in itertools.combinations(all_, 2)
        if s[0] != t[0]
        and (_meet(writes, reads_then) or _meet(reads, writes_then) or _meet(writes, writes_then))
    ]


def _elements(region: Region) -> set[tuple[str, ...]]:
    """The elements of a region, and its buffer; nothing of an empty one."""
    ends = [range(i.start.value, i.stop.value) for i in region.box]  # type: ignore[attr-defined]
    return {(region.buffer, *map(str, place)) for place in itertools.product(*ends)}


def _meet(first: set[tuple[str, ...]], second: set[tuple[str, ...]]) -> bool:
    """Whether two sets share an element; a buffer alone stands for all of it."""
    for a, b in ((first, second), (second, first)):
        buffers = {x[0] for x in a if len(x) == 1}
        if any(x[0] in buffers for x in b):
            return True
    return bool(first & second)


def oracle(
    program: Program, streams: Mapping[int, Stream], values: Mapping[str, int], depth: int, **options: int
) -> Finding:
    """What all schedules of some streams can do."""
    operations = {w: s.operations.tolist() for w, s in streams.items()}
    pairs = [((x, operations[x][a]), (y, operations[y][b])) for (x, a), (y, b) in conflicts(program, values)]
    return explore(streams, pairs, depth, **options)


def replay(
    program: Program,
    streams: Mapping[int, Stream],
    values: Mapping[str, int],
    depth: int,
    turns: Sequence[tuple[int, int]],
    known: Sequence[tuple[Event, Event]] | None = None,
) -> set[str]:
    """What goes wrong in a schedule, step by step: "dependence", "deadlock", "overflow", "conflict".

    `known` are the program's conflicts, if they were found before. Raises `AssertionError` where it takes a
    token that is not there.
    """
    operations = {w: s.operations.tolist() for w, s in streams.items()}
    needs: dict[Event, list[Event]] = {}
    for (x, a), (y, b) in conflicts(program, values) if known is None else known:
        needs.setdefault((y, operations[y][b]), []).append((x, operations[x][a]))
    found: set[str] = set()
    place, tokens = dict.fromkeys(streams, 0), dict.fromkeys(range(64), 0)
    for w, end in turns:
        while place[w] < end:
            at, kind = place[w], streams[w].kinds[place[w]]
            channel = int(streams[w].channels[at])
            place[w] += 1
            if kind == WAIT:
                assert tokens[channel] > 0, "a token that is not there"
                tokens[channel] -= 1
            elif kind == SIGNAL:
                tokens[channel] += 1
                if tokens[channel] > depth:
                    found.add("overflow")
            elif kind == OP and any(place[x] <= e for x, e in needs.get((w, at), ())):
                found.add("dependence")
    following = [
        (int(s.kinds[place[w]]), int(s.channels[place[w]]))
        for w, s in streams.items()
        if place[w] < s.events.size
    ]
    if any(
        following.count(event) > 1 and (event[0] == SIGNAL or (event[0] == WAIT and tokens[event[1]]))
        for event in following
    ):
        found.add("conflict")
    stands = [w for w, s in streams.items() if place[w] < s.events.size]
    if stands and all(
        streams[w].kinds[place[w]] == WAIT and not tokens[int(streams[w].channels[place[w]])] for w in stands
    ):
        found.add("deadlock")
    return found
