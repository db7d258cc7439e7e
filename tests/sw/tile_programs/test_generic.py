"""Generic instructions as loads and stores: random programs leave what an element-wise model predicts."""

from __future__ import annotations

import numpy as np
import pytest

from cosim.models.functional import Memories, execute
from hw.config import load
from sw.ir.errors import IRError
from sw.ir.expression import evaluate
from sw.ir.parse import parse_program
from sw.ir.program import Access, For, If, Region
from sw.ir.walk import executions, instructions
from sw.tile_programs import Bound, bind
from tests.sw.generic_programs import drawn

TEST = load("test")
#: Bytes of an element on the machine TEST.
WIDTH = TEST.store_bytes


def start(bound: Bound) -> np.ndarray:
    """Memory at the start of a run."""
    memory = np.zeros(bound.size, np.uint8)
    for name, array in bound.contents.items():
        place = bound.memory[name]
        memory[place.address : place.address + place.size] = place.image(array)
    return memory


def element_wise(bound: Bound, scratch: np.ndarray) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Final buffers (elements of a word of port store) and logs, by the rules of docs/programs.md."""
    width = bound.config.store_bytes
    buffers = {
        name: scratch[p.base : p.base + int(np.prod(p.shape)) * width].reshape(*p.shape, width).copy()
        for name, p in bound.places.items()
        if p.space == "scratch"
    }
    records = {name: array.copy() for name, array in bound.contents.items()}
    used: set[tuple[str, int]] = set()
    values: dict[str, int] = {}

    def part(region: Access) -> np.ndarray:
        """The elements of a region as it is now."""
        assert isinstance(region, Region)
        ends = [(evaluate(i.start, values), evaluate(i.stop, values)) for i in region.box]
        found: np.ndarray = buffers[region.buffer][tuple(slice(a, max(a, b)) for a, b in ends)]
        return found

    def places(room: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
        """The numbers of elements of so many that belong to a smaller region."""
        return np.arange(np.prod(room)).reshape(room)[tuple(slice(n) for n in shape[:-1])][..., None]

    for s, iteration in executions(bound.source.body, values):
        if s.label not in bound.records:
            continue
        own = bound.records[s.label]
        # Of a loop in which it happens once only, the iteration does not count.
        at = [i if trips > 1 else 0 for i, trips in zip(iteration, own.trips, strict=True)]
        number = int(np.ravel_multi_index(at, own.trips)) if own.trips else 0
        assert (s.label, number) not in used
        used.add((s.label, number))
        record = records[own.buffer.name][number]
        rooms = {(t.kind, t.number): t.box.largest[-len(t.box.place.shape) :] for t in own.transfers}
        offset = 0
        for turn, region in enumerate(s.reads):
            room, taken = rooms["read", turn], part(region)
            if taken.size:
                record[offset + places(room, taken.shape) * width + np.arange(width)] = taken
            offset += int(np.prod(room)) * width
        for turn, region in enumerate(s.writes):
            target = part(region)
            if target.size:
                first = turn + places(rooms["write", turn], target.shape)
                target[...] = record[first * width + np.arange(width)]
    return buffers, records


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_do_what_their_regions_say(seed: int) -> None:
    program, values = drawn(seed, instructions=8)
    # Ports of other and of different widths.
    machine = load("tiny") if seed % 4 == 0 else TEST
    bound = bind(program, machine, values, seed=seed)
    memory = start(bound)
    state = Memories(machine, memory, strict=True)
    state.scratch[:] = np.random.default_rng(seed).integers(0, 256, len(state.scratch))
    state.known["scratch"][:] = True
    buffers, records = element_wise(bound, state.scratch)
    execute(bound.program, state)
    for name, wanted in buffers.items():
        place = bound.places[name]
        got = state.scratch[place.base : place.base + wanted.size].reshape(wanted.shape)
        assert np.array_equal(got, wanted), name
    for name, wanted in records.items():
        place = bound.memory[name]
        assert np.array_equal(place.extract(memory[place.address : place.address + place.size]), wanted), name


def bound(*lines: str) -> Bound:
    body = "\n".join(f"    {line}" for line in ("a: Buffer[60]", "b: Buffer[2, 3, 4, int32]", *lines))
    return bind(parse_program(f"@program\ndef p():\n{body}\n"), TEST)


def test_one_region_is_one_operation_under_the_same_label() -> None:
    made = bound("for i in range(3):", "    P = f(write=a[i : i + 3])", "    C = g(read=a[i : i + 3])")
    assert [(s.label, s.name, s.warp) for s in instructions(made.program)] == [
        ("P", "load_c", 0),
        ("C", "store_scratch", 1),
    ]
    assert {n: p.shape for n, p in made.memory.items()} == {"P_data": (3, 24), "C_log": (3, 24)}


def test_several_regions_are_several_operations_of_one_warp_reads_first() -> None:
    made = bound(
        "F = f(write=[a[0:3], b[0]], read=[b[1, 0:2, 1:3], a[5]], warp=2)", "F_r0 = f(read=a, warp=1)"
    )
    names = [(s.label, s.name, s.warp) for s in instructions(made.program)]
    assert names == [
        ("F_r01", "store_scratch", 2),
        ("F_r1", "store_scratch", 2),
        ("F_w0", "load_c", 2),
        ("F_w1", "load_c", 2),
        ("F_r0", "store_scratch", 1),
    ]
    # Two reads of 4 and 1 elements; the second write takes 12 elements from the second one on.
    assert made.memory["F_log"].shape == (1, 13 * WIDTH)


def test_more_than_two_dimensions_take_loops() -> None:
    made = bound("for i in range(3):", "    F = f(write=b[0 : i, 0:2, 1:3], warp=0)")
    (outer,) = [s for s in made.program.body if isinstance(s, For)]
    assert any(isinstance(s, For | If) for s in outer.body)
    assert len(instructions(made.program)) == 1


def test_what_never_happens_takes_nothing() -> None:
    made = bound("P = f(write=a[3:3])", "Q = f(write=a[0:3], when=1 > 2)", "T = tick()", "R = f(read=a[0])")
    assert [s.label for s in instructions(made.program)] == ["R"]
    assert set(made.memory) == {"P_data", "R_log"}


def test_loops_that_start_where_a_scalar_says_have_places_for_every_iteration() -> None:
    made = bound(
        "s = 3",
        "for i in range(2):",
        "    for j in range(s, s + 4, 2):",
        "        s = s + 1",
        "        C = f(read=a[j])",
    )
    memory = start(made)
    state = Memories(TEST, memory)
    state.scratch[: 60 * WIDTH] = np.repeat(np.arange(60), WIDTH)
    execute(made.program, state)
    log = made.memory["C_log"]
    found = log.extract(memory[log.address : log.address + log.size])
    assert found[:, 0].tolist() == [3, 5, 5, 7]


def test_constants_differ_by_seed_and_instruction() -> None:
    text = "@program\ndef p():\n    a: Buffer[9]\n    P = f(write=a)\n    Q = f(write=a)\n"
    first, second = (bind(parse_program(text), TEST, seed=seed).contents for seed in (0, 1))
    arrays = [c[n].tobytes() for c in (first, second) for n in ("P_data", "Q_data")]
    assert len(set(arrays)) == 4


def test_the_executions_in_loops_that_scalars_bound_are_counted() -> None:
    made = bound("s = 3", "for i in range(3):", "    s = s + 1", "    for j in range(0, s): C = f(read=a[j])")
    assert made.memory["C_log"].shape == (3 * 6, WIDTH)


def test_a_condition_says_nothing_of_scalars_that_change_behind_it() -> None:
    made = bound(
        "s = 2", "for i in range(3):", "    if s == 2:", "        s = s + 1", "        C = f(read=a[s])"
    )
    memory = start(made)
    state = Memories(TEST, memory)
    state.scratch[: 60 * WIDTH] = np.repeat(np.arange(60), WIDTH)
    execute(made.program, state)
    log = made.memory["C_log"]
    assert log.extract(memory[log.address : log.address + log.size])[0, 0] == 3


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("P = f(write=a, when=6 // s > 2)", "a division by zero in"),
        ("P = f(write=a[6 // s])", "a division by zero in"),
        ("P = f(write=a[s * 8])", r"the region a\[-8:-7\] in P\[2\]"),
        ("for j in range(0, 4, s): P = f(write=a)", "step s = 0"),
    ],
)
def test_what_fails_as_the_program_runs_is_refused(line: str, message: str) -> None:
    with pytest.raises(IRError, match=message):
        made = bound("s = 2", "for i in range(3):", "    s = s - 1", f"    {line}")
        execute(made.program, Memories(TEST, start(made)))
