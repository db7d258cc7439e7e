"""Edges follow the rules, element by element."""

import itertools

import numpy as np
import pytest

from sw.check.trace import Trace, trace
from sw.ir.expression import evaluate
from sw.ir.program import Program
from sw.warps.assign import assign_warps, unfed
from tests.sw.random_tile_programs import NESTS, STRAIGHT, Knobs
from tests.sw.warps import instance_edges as graph
from tests.sw.warps.instance_edges import edges, warp_of
from tests.sw.warps.samples import WORKED, program_of, random_trace

Pairs = set[tuple[int, int]]


class Element:
    """Who wrote one element, and who read it since."""

    def __init__(self) -> None:
        #: Writers that it may be of, each with whether it was read since.
        self.writers: dict[int, bool] = {}
        self.readers: set[int] = set()

    def read(self, time: int, data: Pairs) -> None:
        data |= {(w, time) for w in self.writers}
        self.writers = dict.fromkeys(self.writers, True)
        self.readers.add(time)

    def write(self, time: int, resource: Pairs, certain: bool) -> None:
        resource |= {(r, time) for r in self.readers}
        resource |= {(w, time) for w, was_read in self.writers.items() if not was_read}
        if certain:
            self.writers, self.readers = {}, set()
        self.writers[time] = False


def by_hand(made: Trace) -> tuple[Pairs, Pairs]:
    """Data and resource edges of a run, one instance after the other, one element after the other."""
    program = made.program
    shapes = {b.name: [evaluate(s, made.values) for s in b.shape] for b in program.buffers}
    elements = {n: {i: Element() for i in itertools.product(*map(range, s))} for n, s in shapes.items()}
    data: Pairs = set()
    resource: Pairs = set()
    order = sorted((int(t), rows, n) for rows in made.rows for n, t in enumerate(rows.time))
    for time, rows, n in sorted(order, key=lambda item: item[0]):
        for writes, accesses in ((False, rows.reads), (True, rows.writes)):
            # Writes that are certain first, so that those that may happen beside them stay known.
            for boxes in sorted(accesses, key=lambda b: b is None):
                if boxes is None:
                    touched = [e for known in elements.values() for e in known.values()]
                else:
                    box = zip(boxes.start[:, n].tolist(), boxes.stop[:, n].tolist(), strict=True)
                    places = itertools.product(*(range(a, b) for a, b in box))
                    touched = [elements[boxes.buffer][p] for p in places]
                for element in touched:
                    if writes:
                        element.write(time, resource, boxes is not None)
                    else:
                        element.read(time, data)
    warps = warp_of(made).tolist()
    data = {(a, b) for a, b in data if warps[a] != warps[b]}
    return data, {(a, b) for a, b in resource if warps[a] != warps[b]} - data


def found(made: Trace) -> tuple[Pairs, Pairs]:
    result = edges(made)
    for pairs in (result.data, result.resource, result.pairs):
        listed = [tuple(p) for p in pairs.tolist()]
        assert listed == sorted(set(listed))
    data, resource = ({(a, b) for a, b in part.tolist()} for part in (result.data, result.resource))
    return data, resource


KNOBS = [STRAIGHT, NESTS, Knobs(dimensions=2), Knobs(predicates=0.5, branches=0.3), Knobs(unknown=0.3)]


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_have_the_edges_that_elements_say(seed: int) -> None:
    made = random_trace(seed, KNOBS[seed % len(KNOBS)])
    if made is None or made.count > 300:
        pytest.skip("a program that does not run, or runs long")
    assert found(made) == by_hand(made)


@pytest.mark.parametrize("seed", range(200, 220))
def test_buffers_in_parts_give_the_same_edges(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = random_trace(seed, KNOBS[seed % len(KNOBS)])
    if made is None:
        pytest.skip("a program that does not run")
    whole = found(made)
    monkeypatch.setattr(graph, "MOST", 7)
    assert found(made) == whole


def named(program: Program) -> tuple[list[str], list[str]]:
    made = trace(program, {})
    texts = [made.name(t) for t in range(made.count)]
    result = edges(made)
    data, resource = (
        [f"{texts[a]}->{texts[b]}" for a, b in part.tolist()] for part in (result.data, result.resource)
    )
    return data, resource


def test_the_worked_example() -> None:
    data, resource = named(program_of(WORKED))
    pairs = ["P[0]->C[0]", "P[1]->C[1]", "P[2]->C[2]", "P4[0]->C4[0]", "P4[1]->C4[1]", "P4[2]->C4[2]"]
    assert data == [*pairs, "P7->C7"]
    made = ["C[0]->P7", "C[1]->P4[0]", "C[1]->P7", "C[2]->P4[0]", "C4[0]->P7", "C4[1]->P7", "C4[2]->P7"]
    assert resource == made


def test_two_writers_without_a_reader_between() -> None:
    text = """
        @program
        def p():
            a: Buffer[8]
            W1 = f(write=a, warp=0)
            W2 = f(write=a[0:4], warp=1)
            R = g(read=a, warp=2)
            W3 = f(write=a, warp=0)
    """
    data, resource = named(program_of(text))
    assert data == ["W1->R", "W2->R"]
    assert resource == ["W1->W2", "R->W3"]


def test_an_unknown_write_ends_nothing() -> None:
    text = """
        @program
        def p():
            a: Buffer[8]
            b: Buffer[8]
            W1 = f(write=a, warp=0)
            U = f(write=ANY, warp=1)
            R = g(read=a, warp=2)
            W2 = f(write=[a, b], warp=3)
    """
    data, resource = named(program_of(text))
    assert data == ["W1->R", "U->R"]
    assert resource == ["W1->U", "U->W2", "R->W2"]


def test_a_pair_that_is_both_is_data() -> None:
    text = """
        @program
        def p():
            a: Buffer[8]
            b: Buffer[8]
            X = f(read=a, write=b, warp=0)
            Y = f(read=b, write=a, warp=1)
    """
    assert named(program_of(text)) == (["X->Y"], [])


def test_no_instances_have_no_edges() -> None:
    made = trace(program_of("@program\ndef p():\n    a: Buffer[8]\n    pass\n"), {})
    assert np.array_equal(edges(made).pairs, np.empty((0, 2)))


FED = "    P = f(write=a[0:4], warp=0)\n"


@pytest.mark.parametrize(
    ("buffer", "body", "wrong"),
    [
        ("a: Buffer[8]", "    C = g(read=a[4:8], warp=1)\n", "C, which reads a[4:8]"),
        ("a: Buffer[8, A]", "    C = g(read=a[4:8], warp=1)\n", "C, which reads a[4:8]"),
        ("a: Buffer[8, memory]", "    C = g(read=a[4:8], warp=1)\n", None),
        ("a: Buffer[8]", "    C = g(read=a[3:5], warp=1)\n", None),
        ("a: Buffer[8]", "    for i in range(2):\n        C = g(read=a[4-4*i:8-4*i], warp=1)\n", None),
    ],
)
def test_a_consumer_that_nobody_feeds(buffer: str, body: str, wrong: str | None) -> None:
    program = program_of(f"@program\ndef p():\n    {buffer}\n{FED}{body}")
    error = unfed(program)
    if wrong is None:
        assert error is None
    else:
        assert wrong in str(error)
        assert "expected a producer" in str(error)


def test_buffers_that_nobody_writes_bring_their_contents() -> None:
    program = program_of("@program\ndef p():\n    a: Buffer[8]\n    C = g(read=a, warp=1)\n")
    assert unfed(program) is None
    program = program_of("@program\ndef p():\n    a: Buffer[8, acc]\n    C = g(read=a, warp=1)\n")
    assert "C, which reads a[0:8]" in str(unfed(program))


def test_warps_where_none_are_given() -> None:
    text = """
        @program
        def p():
            m: Buffer[64, memory]
            a: Buffer[64, A]
            load(m, a)
            f(read=a)
            load_b(memory=0, target=0, outer=1, inner=1)
            g(write=a)
            f(write=m)
            h(read=m, warp=5)
            store(memory=0, source=0, rows=1, bytes=4)
    """
    program = assign_warps(program_of(text))
    assert [rows.instruction.warp for rows in trace(program, {}).rows] == [0, 2, 1, 4, 2, 5, 3]


@pytest.mark.parametrize(
    ("body", "found_"), [("while p:\n        f()", "while p"), ("wait(1)", "wait in a sequential program")]
)
def test_what_is_no_sequential_program_of_warps(body: str, found_: str) -> None:
    program = program_of(
        f"@program\ndef p(p: bool):\n    a: Buffer[8]\n    {body}\n".replace("def p(", "def q(")
    )
    with pytest.raises(Exception, match=found_):
        assign_warps(program)
