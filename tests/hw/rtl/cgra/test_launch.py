"""Hand-made launches on a small CGRA: values, cycles of frozen steps, errors, wrong bitstreams."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.config import MachineConfig
from hw.fabric import OPERATIONS, PEKind, layout
from hw.fabric.bitstream import ArrayEntry, Configuration, Entry, Patch, check_word, encode, to_bytes
from hw.isa import KEEP_BITSTREAM, Cause
from hw.rtl.cgra.grid import Grid
from tests.hw.rtl.cgra.bench import Case, operation, run
from tests.hw.rtl.cgra.cases import A, M, P, T, machine, small
from tests.hw.rtl.cgra.reference import ACC, MASK, OUT, SCRATCH, Held, Launch

KIND = PEKind("all", frozenset({A, M, T, P}), 2, 8)
FABRIC = small((KIND,) * 4, 2, 2)
CONFIG = machine(FABRIC)
INT32, INT8, UINT8 = range(3)


def entry(pe: int, op: str, const: int = 0, init: int = 0, **fields: int | str) -> Entry:
    """An entry with sources by name."""
    sources = layout(FABRIC, pe).sources
    values = {k: v if isinstance(v, int) else sources[k].index(v) for k, v in fields.items()}
    return Entry({"op": OPERATIONS[op].number} | values, const, init)


def configuration(
    entries: dict[tuple[int, int], Entry], ii: int, depth: int, *arrays: ArrayEntry
) -> Configuration:
    """A configuration of the grid."""
    return Configuration(FABRIC, ii, depth, entries, arrays)


def memories(config: MachineConfig, c: Configuration | list[int], at: int = 0) -> list[bytearray]:
    """Counting bytes everywhere, and the words of a configuration."""
    sizes = config.acc_bytes, config.scratch_bytes, config.out_bytes
    found = [bytearray((7 * i + i // 256) % 256 for i in range(size)) for size in sizes]
    data = to_bytes(encode(c) if isinstance(c, Configuration) else c)
    found[SCRATCH][at : at + len(data)] = data
    return found


def launch(
    c: Configuration | list[int], n: int, held: dict[int, Held] | None = None, scalars: tuple[int, ...] = ()
) -> Launch:
    """One launch, held in some cycles counted from the first one that is."""
    case = Case("one", [(0, operation(0, n, scalars))], memories(CONFIG, c))
    if held:
        case.held = lambda cycle: held.get(cycle, Held())
    return run(CONFIG, [case])[0][0]


def first_check(c: Configuration) -> int:
    """The cycle in which arrays begin to be checked in a launch taken in cycle 1, if nothing holds it."""
    return 1 + len(encode(c)) + 2 + len(c.patches) + 1


def first_step(c: Configuration) -> int:
    """The cycle in which the first step begins; the checks take three cycles at least."""
    return first_check(c) + max(3, len(c.arrays))


def running_sum() -> Configuration:
    """z[i] = 1000 + x[0] + ... + x[i] in two contexts; the sums go from one iteration to the next."""
    count = {"a": "result", "b": "const", "initial": 1, "first": 1, "result": "y"}
    return configuration(
        {
            (2, 0): entry(2, "add", 1, MASK, out0="y", **count),
            (0, 1): entry(0, "load", a="in0", array=0),
            (0, 0): Entry({"out0": layout(FABRIC, 0).sources["out0"].index("y2")}),
            (1, 1): entry(
                1, "add", 0, 1000, a="in0", b="result", initial=2, first=1, stage=1, result="y", out0="y"
            ),
            (3, 1): entry(3, "add", 1, MASK, stage=1, **count),
            (3, 0): entry(3, "store", a="result", b="in0", array=1, stage=2),
        },
        2,
        5,
        ArrayEntry(SCRATCH, INT8, 3001, 50),
        ArrayEntry(OUT, INT32, 40, 50),
    )


@pytest.mark.parametrize("n", [0, 1, 2, 17, 50])
def test_a_running_sum(n: int) -> None:
    c = running_sum()
    found = launch(c, n)
    scratch, total, expected = memories(CONFIG, c)[SCRATCH], 1000, []
    begin = first_step(c)
    for i in range(n):
        x = scratch[3001 + i]
        total += x - 256 * (x > 127)
        expected.append((begin + 2 * i + 4, 3, 40 + 4 * i, total & MASK))
    assert found.stores == expected
    assert found.end == begin + (2 * (n - 1) + 5 if n else 0)
    assert found.stalls == 0


def test_one_iteration_more_than_the_arrays_hold() -> None:
    found = launch(running_sum(), 51)
    assert (found.cause, len(found.stores)) == (Cause.GRID_RANGE, 49)
    assert found.end == first_step(running_sum()) + 2 * 50 + 2


def accesses(*given: tuple[str, int, int]) -> Configuration:
    """One step in which PEs 0, 1, ... access elements (load or store, array, index) of three int32 arrays."""
    entries = {
        (pe, 0): entry(pe, op, index, 77 + pe, a="const", initial=2, first=7, array=array)
        for pe, (op, array, index) in enumerate(given)
    }
    sizes = CONFIG.acc_bytes, CONFIG.scratch_bytes, CONFIG.out_bytes
    arrays = [ArrayEntry(space, INT32, 0, size // 4) for space, size in enumerate(sizes)]
    return configuration(entries, 1, 1, *arrays)


ROW = CONFIG.cols  # elements of a row of the accumulator
BANK = CONFIG.derived.acc_bank_words * ROW  # and of a bank


@pytest.mark.parametrize(
    ("given", "cycles"),
    [
        ([("load", SCRATCH, 5)], 1),
        ([("load", SCRATCH, 5), ("load", SCRATCH, 6)], 1),
        ([("load", SCRATCH, 5), ("load", SCRATCH, 5), ("load", SCRATCH, 5)], 1),
        ([("load", SCRATCH, 5), ("load", SCRATCH, 7)], 2),
        ([("load", SCRATCH, 5), ("load", SCRATCH, 7), ("load", SCRATCH, 5), ("load", SCRATCH, 7)], 2),
        ([("load", SCRATCH, i) for i in (1, 3, 5, 7)], 4),
        ([("load", SCRATCH, 1), ("load", OUT, 3), ("load", ACC, 9)], 1),
        ([("store", OUT, 1), ("store", OUT, 2)], 1),
        ([("store", OUT, 1), ("store", OUT, 3)], 2),
        ([("store", OUT, 1), ("store", OUT, 1), ("store", OUT, 1)], 3),
        ([("load", OUT, 1), ("store", OUT, 1)], 2),
        ([("load", OUT, 1), ("store", OUT, 2)], 1),
        ([("store", OUT, 1), ("load", OUT, 3), ("load", OUT, 1), ("store", OUT, 1)], 4),
        ([("load", OUT, 3), ("load", OUT, 1), ("store", OUT, 1), ("store", OUT, 5)], 4),
        ([("load", ACC, 0), ("load", ACC, ROW - 1)], 1),
        ([("load", ACC, 0), ("load", ACC, ROW)], 2),
        ([("load", ACC, 0), ("load", ACC, BANK), ("load", ACC, BANK + 1)], 1),
    ],
    ids=str,
)
def test_cycles_of_a_step(given: list[tuple[str, int, int]], cycles: int) -> None:
    c = accesses(*given)
    found = launch(c, 1)
    assert found.end == first_step(c) + cycles
    assert found.stalls == cycles - 1


@pytest.mark.parametrize(
    ("given", "others", "cycles"),
    [
        ([("load", SCRATCH, 1)], Held(scratch=True), 4),
        ([("load", OUT, 1)], Held(scratch=True), 1),
        ([("load", OUT, 1)], Held(out=True), 4),
        ([("store", OUT, 1)], Held(out=True), 1),
        ([("store", OUT, 1), ("load", OUT, 1)], Held(out=True), 5),
        ([("load", OUT, 1), ("store", OUT, 0)], Held(out=True), 4),
        ([("load", ACC, 1)], Held(acc=1), 4),
        ([("load", ACC, 1)], Held(acc=2), 1),
        ([("load", ACC, 1), ("load", ACC, BANK)], Held(acc=2), 4),
    ],
    ids=str,
)
def test_a_step_waits_for_what_others_read(
    given: list[tuple[str, int, int]], others: Held, cycles: int
) -> None:
    """Others read in the first three cycles of the step."""
    c = accesses(*given)
    begin = first_step(c)
    found = launch(c, 1, dict.fromkeys(range(begin, begin + 3), others))
    assert found.end == begin + cycles


@pytest.mark.parametrize("wait", [0, 1, 5])
def test_a_load_that_is_served_before_its_step_ends(wait: int) -> None:
    """Two loads of one bank per step: the first brings its value while the value before it is used."""
    entries = {}
    for context in (0, 1):
        first, second = 1 + 2 * context, 5 + 2 * context
        entries |= {
            (0, context): entry(0, "load", first, a="const", array=0, out1="y2"),
            (1, context): entry(1, "load", second, a="const", array=0, out0="y2"),
            (2, context): entry(2, "store", 2 * context, a="const", b="in0", array=1, stage=1),
            (3, context): entry(3, "store", 2 * context + 1, a="const", b="in0", array=1, stage=1),
        }
    c = configuration(entries, 2, 4, ArrayEntry(SCRATCH, INT32, 2048, 8), ArrayEntry(OUT, INT32, 0, 4))
    # Others read between the two loads of the first step.
    held = {first_step(c) + 1 + i: Held(scratch=True) for i in range(wait)}
    found = launch(c, 3, held)
    scratch = memories(CONFIG, c)[SCRATCH]
    x = [int.from_bytes(scratch[2048 + 4 * i : 2052 + 4 * i], "little") for i in range(8)]
    assert [store[1:] for store in found.stores] == 3 * [
        (2, 0, x[1]),
        (3, 4, x[5]),
        (2, 8, x[3]),
        (3, 12, x[7]),
    ]
    assert found.stalls == 6 + wait


def test_words_of_a_configuration_wait_for_the_storer() -> None:
    c = accesses(("load", ACC, 0))
    held = dict.fromkeys([2, 3, 9, 30], Held(scratch=True))
    assert launch(c, 1, held).end == first_step(c) + len(held) + 1


def test_patches_of_entries_and_arrays() -> None:
    """Scalars replace the constant and the stored value, then base and length of the array."""
    c = accesses(("store", OUT, 0))
    patches = [Patch(0, 0, 0, 0), Patch(1, 13, 0, 0), Patch(2, 2, 3, OUT), Patch(3, 5, 0, OUT)]
    scalars = (3, 0, 0xAB000010, 0, 0, 4, *[0] * 7, 99)
    for count, place in ((1, (12, 77)), (2, (12, 99)), (4, (16 + 12, 99))):
        changed = replace(c, patches=tuple(patches[:count]))
        found = launch(changed, 1, scalars=scalars)
        assert found.stores == [(first_step(changed), 0, *place)]
    found = launch(replace(c, patches=tuple(patches)), 1, scalars=(4, *scalars[1:]))
    assert (found.cause, found.stores) == (Cause.GRID_RANGE, [])
    misaligned = launch(changed, 1, scalars=(0, 0, 2, 0, 0, 4))
    assert (misaligned.cause, misaligned.end) == (Cause.OPERAND, first_step(changed))


def test_a_configuration_is_kept_and_patched_again() -> None:
    c = replace(accesses(("store", OUT, 0)), patches=(Patch(0, 1, 0, 0),))
    ops = [operation(0, 1, (0, 5)), operation(KEEP_BITSTREAM, 1, (0, 6)), operation(KEEP_BITSTREAM, 0)]
    found = run(CONFIG, [Case("kept", [(0, op) for op in ops], memories(CONFIG, c))])[0]
    assert [[store[2] for store in one.stores] for one in found] == [[20], [24], []]
    # One patch and three arrays, then a step, and the cycle of completion.
    assert found[1].end == found[1].taken + 1 + 3 + 1 + 1
    assert found[2].end == found[2].taken + 1 + 3 + 1


def test_nothing_to_keep() -> None:
    """Neither at the start of a run nor after a configuration that was refused."""
    c = accesses(("load", ACC, 0))
    keep = Case("keep", [(3, operation(KEEP_BITSTREAM, 1))], memories(CONFIG, c))
    whole = Case("whole", [(0, operation(0, 1))], memories(CONFIG, c))
    played = run(CONFIG, [whole, keep])
    assert [(p[0].cause, p[0].end) for p in played] == [(None, first_step(c) + 1), (Cause.BITSTREAM, 4)]


def header(**changes: int) -> list[int]:
    """The words of a configuration with other header words, and the check word mended."""
    words = encode(running_sum())
    for name, value in changes.items():
        words[int(name[1:])] = value
    return [*words[:-1], check_word(words[:-1])]


WHOLE = encode(running_sum())
LENGTH = len(WHOLE)


@pytest.mark.parametrize(
    ("words", "cycle"),
    [
        (header(w0=WHOLE[0] + 1), 4),
        (header(w1=WHOLE[1] ^ 1 << 31), 5),
        (header(w2=6), 6),
        (header(w2=CONFIG.scratch_bytes // 4 + 1), 6),
        (header(w2=LENGTH - 1), 2 + LENGTH),
        (header(w2=LENGTH + 1), 4 + LENGTH),
        (header(w3=WHOLE[3] & 0xFFFFF), 7),
        (header(w3=WHOLE[3] & 0xFFFFF | 6 << 20), 7),
        (header(w3=WHOLE[3] | 1 << 20), 3 + LENGTH),
        (header(w3=WHOLE[3] & ~(255 << 12) | 17 << 12), 7),
        (header(w3=WHOLE[3] + 65), 7),
        (header(w3=WHOLE[3] + 1), 3 + LENGTH),
        (header(w4=0), 8),
        (header(w4=2 * FABRIC.stages + 1), 8),
        (header(w5=1), 3 + LENGTH),
        (header(w5=1 << 31), 3 + LENGTH),
        ([*WHOLE[:-1], WHOLE[-1] ^ 1], 3 + LENGTH),
    ],
)
def test_a_wrong_configuration_is_refused(words: list[int], cycle: int) -> None:
    found = launch(words, 1)
    assert (found.cause, found.end, found.stores) == (Cause.BITSTREAM, cycle, [])


@pytest.mark.parametrize(
    ("section", "refused"),
    [
        ([0 << 16 | 2, 1, 2], False),
        ([0 << 16 | 8, *range(8)], False),
        ([0 << 16 | 2, 1, 2, 3 << 16 | 1, 7], False),
        ([0 << 16 | 9, *range(9)], True),
        ([4 << 16 | 1, 5], True),
        ([1 << 16 | 1, 5, 0 << 16 | 1, 5], True),
        ([1 << 16 | 1, 5, 1 << 16 | 1, 5], True),
        ([1 << 16 | 3, 5, 6], True),
        ([1 << 16], True),
    ],
    ids=str,
)
def test_table_sections(section: list[int], refused: bool) -> None:
    words = encode(running_sum())
    size = 6 + 2 * (words[3] >> 12 & 255)
    words = [
        *words[:2],
        len(words) + len(section),
        *words[3:5],
        len(section),
        *words[6:size],
        *section,
        *words[size:],
    ]
    found = launch([*words[:-1], check_word(words[:-1])], 1)
    assert (found.cause is Cause.BITSTREAM) == refused


@pytest.mark.parametrize(
    "word", [4 << 28, 14 << 24, 4 << 12, 2, 2 << 28 | 2, 3 << 28 | 16, 1 << 28 | 1 << 12 | 5, 1 << 12 | 4]
)
def test_patches_that_cannot_be(word: int) -> None:
    words = encode(replace(running_sum(), patches=(Patch(0, 0, 0, 0),)))
    words[6 + 2 * (words[3] >> 12 & 255)] = word
    found = launch([*words[:-1], check_word(words[:-1])], 1)
    assert (found.cause, found.end) == (Cause.BITSTREAM, 3 + len(words))


def test_addresses_outside_of_the_scratchpad() -> None:
    words = encode(running_sum())
    most, last = CONFIG.scratch_bytes // 16, (CONFIG.scratch_bytes - 4 * len(words)) // 16
    cases = [
        Case(f"at {at}", [(0, operation(at, 1))], memories(CONFIG, words, 16 * at))
        for at in (last, last + 1, most - 1, most, KEEP_BITSTREAM - 1)
    ]
    for case in cases:
        case.memories[SCRATCH] = case.memories[SCRATCH][: CONFIG.scratch_bytes]
    found = [played[0] for played in run(CONFIG, cases)]
    assert [f.cause for f in found] == [None] + [Cause.BITSTREAM] * 4
    assert [f.end for f in found[1:]] == [6, 6, 4, 4]


@pytest.mark.parametrize(
    ("array", "good"),
    [
        (ArrayEntry(OUT, INT32, CONFIG.out_bytes - 4, 1), True),
        (ArrayEntry(OUT, INT32, CONFIG.out_bytes - 4, 2), False),
        (ArrayEntry(OUT, UINT8, CONFIG.out_bytes - 3, 3), True),
        (ArrayEntry(OUT, INT8, CONFIG.out_bytes - 3, 4), False),
        (ArrayEntry(ACC, INT32, 0, CONFIG.acc_bytes // 4 + 1), False),
        (ArrayEntry(ACC, INT32, CONFIG.acc_bytes, 0), True),
        (ArrayEntry(ACC, INT32, CONFIG.acc_bytes + 4, 0), False),
        (ArrayEntry(SCRATCH, INT32, 0, 1 << 30), False),
        (ArrayEntry(SCRATCH, INT32, 6, 1), False),
        (ArrayEntry(SCRATCH, UINT8, 0xFFFFFF, 0xFFFFFFFF), False),
        (ArrayEntry(3, INT32, 0, 1), False),
        (ArrayEntry(SCRATCH, 3, 0, 1), False),
    ],
    ids=str,
)
def test_arrays_are_checked_before_the_first_step(array: ArrayEntry, good: bool) -> None:
    entries = {(0, 0): entry(0, "store", 1, 7, a="const", initial=2, first=1, array=0)}
    c = configuration(entries, 1, 1, ArrayEntry(OUT, INT32, 0, 2), array)
    found = launch(c, 1)
    # It is the second; its error is in the cycle after its check, while the checks still last.
    assert (found.cause, found.end, len(found.stores)) == (
        (None, first_step(c) + 1, 1) if good else (Cause.OPERAND, first_check(c) + 2, 0)
    )


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("store", SCRATCH, 0), ("store", OUT, 0)),
        (("store", OUT, 0), ("store", ACC, 0)),
        (("store", OUT, 0), ("load", OUT, CONFIG.out_bytes // 4)),
        (("store", OUT, 0), ("load", OUT, MASK)),
        (("store", OUT, 0), ("load", 3, 0)),
    ],
)
def test_nothing_of_a_step_happens_with_a_wrong_access(
    first: tuple[str, int, int], second: tuple[str, int, int]
) -> None:
    c = accesses(first, second)
    found = launch(c, 1)
    assert (found.cause, found.end, found.stores) == (Cause.GRID_RANGE, first_step(c) + 1, [])


def test_bytes_of_all_kinds() -> None:
    """A byte is loaded with and without sign, and the lowest byte is stored; the word around it stays."""
    put = {"a": "const", "b": "in0", "stage": 2}
    for element, seen in ((INT8, 0xFFFFFFF9), (UINT8, 0xF9)):
        c = configuration(
            {
                (0, 0): entry(0, "load", 1, a="const", array=0, out0="y2"),
                (1, 0): entry(1, "store", 0, array=1, **put),
            },
            1,
            3,
            ArrayEntry(SCRATCH, element, 0, 8),
            ArrayEntry(OUT, INT32, 8, 1),
            ArrayEntry(OUT, INT8, 9, 3),
        )
        words = encode(c)
        c = replace(c, arrays=(replace(c.arrays[0], base=4 * len(words)), *c.arrays[1:]))
        case = Case("bytes", [(0, operation(0, 1))], memories(CONFIG, c))
        case.memories[SCRATCH][4 * len(words) + 1] = 0xF9
        assert [s[2:] for s in run(CONFIG, [case])[0][0].stores] == [(8, seen)]
        lowest = replace(c, entries={**c.entries, (1, 0): entry(1, "store", 2, array=2, **put)})
        case = Case("byte", [(0, operation(0, 1))], memories(CONFIG, lowest))
        case.memories[SCRATCH][4 * len(words) + 1] = 0xF9
        assert [s[2:] for s in run(CONFIG, [case])[0][0].stores] == [(11, 0xF9)]


def test_corrupted_configurations_end_in_order() -> None:
    """Bits of configurations flip; where the check word is mended, they do what the contract says."""
    r = random.Random(11)
    cases = []
    for number in range(40):
        words = encode(running_sum())
        for _ in range(r.choice([1, 1, 3])):
            words[r.randrange(len(words))] ^= 1 << r.randrange(32)
        if number % 2:
            words[-1] = check_word(words[:-1])
        cases.append(Case(f"corrupted {number}", [(0, operation(0, 3))], memories(CONFIG, words)))
    played = [launches[0].cause for launches in run(CONFIG, cases)]
    assert played[::2] == [Cause.BITSTREAM] * 20
    assert 0 < sum(cause is None for cause in played[1::2]) < 20


def test_a_stopped_grid_makes_no_progress() -> None:
    """Else the watchdog would wait for ever; not even if the launch is taken in the cycle of the stop."""
    grid = Grid(CONFIG)
    control = grid.port.control

    async def bench(ctx: Any) -> None:
        ctx.set(control.stop, 0)
        await ctx.tick().repeat(2)
        ctx.set(control.operation.valid, 1)
        ctx.set(control.operation.payload, operation(0, 5, ()))
        ctx.set(control.stop, 1)
        assert ctx.get(control.operation.ready)
        for _ in range(20):
            assert not ctx.get(control.progress)
            await ctx.tick()
            ctx.set(control.operation.valid, 0)
        assert ctx.get(control.busy)

    simulator = Simulator(grid)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
