"""The event-driven model's CGRA agrees with one that steps through every cycle, and with docs/cgra.md."""

from __future__ import annotations

import contextlib
import dataclasses
import random
from dataclasses import replace

import numpy as np
import pytest

from cosim.job import EventKind, Outcome
from cosim.models.cycle import predict
from cosim.models.cycle.gemm import BankReads, Drain, Drains
from cosim.models.cycle.grid_conflicts import BEYOND, Busy
from cosim.models.cycle.grid_steps import Access, Resource, execute, play
from cosim.models.cycle.memory_port import BandwidthPort
from cosim.models.cycle.storer import StorerModel
from cosim.models.functional import Memories
from cosim.models.functional.cgra import array_fault, patched
from cosim.models.functional.cgra_code import code_of, registers
from cosim.models.functional.memories import OperationError
from hw.errors import InputError
from hw.fabric import OPERATIONS, Fabric, PEKind, Unit, layout
from hw.fabric.bitstream import ArrayEntry, Configuration, Entry, Patch, encode
from hw.isa import INSTRUCTIONS, TIMING, Cause
from sw.tile_programs.stated import Stated
from tests.cosim.models.cycle.grids import (
    GridJob,
    fill,
    launch_job,
    random_configuration,
    random_fabric,
)
from tests.cosim.models.cycle.stepping import Stepping
from tests.cosim.models.cycle.stepping_grid import Spaces
from tests.cosim.models.stepping_cgra import CgraState
from tests.machines import MIXED, UNLIKE, machine_of

CONFIG = MIXED
STORE = OPERATIONS["store"].number
MIXED_CONST = layout(UNLIKE, 0).sources["a"].index("const")


@pytest.mark.parametrize("seed", range(40))
def test_random_launches_have_the_same_events_outputs_and_counters(seed: int) -> None:
    r = random.Random(seed)
    fabric = replace(random_fabric(r), pipelined=seed % 2 == 1)
    config = machine_of(fabric, imem_words=1024, queue_depth=r.choice([1, 2, 4]))
    job = GridJob(seed, config, wild=0.1).job
    slow = Stepping(config, job)
    events, error = slow.run()
    outcome = predict(config, job)
    assert outcome.error == error
    assert outcome.events == events
    assert slow.grid is not None
    assert outcome.stored == sorted(slow.grid.outputs)
    if error is None:
        expected = slow.counters()
        assert {name: outcome.counters[name] for name in expected} == expected


@pytest.mark.parametrize("seed", range(60))
def test_launches_leave_the_same_registers_and_bytes_as_the_reference(seed: int) -> None:
    r = random.Random(seed)
    fabric = replace(random_fabric(r), pipelined=seed % 2 == 1)
    config = machine_of(fabric)
    pair = [Memories(config, np.zeros(0, np.uint8)) for _ in range(2)]
    for memories in pair:
        draw = np.random.default_rng(seed)
        memories.acc[:] = draw.integers(0, 64, memories.acc.shape)
        memories.scratch[:] = draw.integers(0, 64, memories.scratch.shape)
        memories.scratch[:384].view("<u4")[:] = draw.integers(0, 64, 96)
        memories.out[:] = 0
    reference, state = CgraState(fabric), [0] * len(registers(fabric))
    views = {i: held.data for i, held in enumerate(Spaces(pair[1]).bytes)}
    for _ in range(5):
        configuration = random_configuration(r, fabric, config, wild=r.random() < 0.1)
        scalars, iterations = [r.randrange(64) for _ in range(14)], r.choice([0, 1, 2, 7, 20])
        reference.load(configuration)
        error = reference.launch(iterations, scalars, Spaces(pair[0]))
        ready = patched(configuration, scalars)
        wrong = array_fault(ready.arrays, config)
        assert (error is not None and error.cause == "operand") == (wrong is not None)
        if wrong is not None:
            assert error is not None
            assert error.where == wrong
            break
        work = execute(config, ready, code_of(configuration), state, views, iterations)
        assert (error is not None) == work.failed
        if error is not None:
            assert error.step == work.steps
            break
        held = [value for own in reference.registers for value in (own.result, own.started)]
        slow = [pe for pe, kind in enumerate(fabric.kinds) if fabric.pipelined and kind.units - {Unit.ALU}]
        for own in (reference.registers[pe] for pe in slow):
            held += [own.begun, own.almost, own.ended]
        held += [value for own in reference.registers for value in own.file]
        held += [value for own in reference.registers for value in own.links]
        assert state == held
        assert np.array_equal(pair[0].out, pair[1].out)


def launched(
    configuration: Configuration, *, iterations: int = 5, addresses: tuple[int, ...] = (0,)
) -> Outcome:
    """What the model predicts for launches of a configuration; see `launch_job`."""
    return predict(CONFIG, launch_job(CONFIG, configuration, iterations, addresses))


def timing(outcome: Outcome) -> tuple[int, int]:
    """Cycles from the issue of the only launch to its completion, and to its first output."""
    issue = [e.cycle for e in outcome.events if e.kind is EventKind.ISSUE][-2]
    done = [e.cycle for e in outcome.events if e.kind is EventKind.COMPLETE][-1]
    return done - issue, outcome.stored[0].cycle - issue if outcome.stored else -1


def test_a_launch_loads_checks_and_runs_as_the_page_says() -> None:
    configuration = fill(UNLIKE, 16)
    words, steps = len(encode(configuration)), 2 * 5
    # Taken two cycles after it issues; a word per cycle; two more; three of checks; then steps, completion.
    ready = TIMING.enqueue + words + 2 + 3
    assert timing(launched(configuration)) == (ready + steps + 1, ready + 2)
    assert timing(launched(configuration, iterations=0)) == (ready + 1, -1)
    patches = (Patch(1, 0, 1, 1), Patch(0, 1, 0, 1))
    longer = launched(dataclasses.replace(configuration, patches=patches))
    assert timing(longer) == (ready + 4 + steps + 1, ready + 4 + 2)
    assert longer.counters["CGRA_BUSY"] == timing(longer)[0] - TIMING.enqueue


def test_patches_put_in_scalars_of_the_launch() -> None:
    store = Entry({"op": STORE, "a": MIXED_CONST, "b": MIXED_CONST}, 1)
    arrays = (ArrayEntry(2, 0, 0, 100),)
    configuration = Configuration(
        UNLIKE, 1, 1, {(0, 0): store}, arrays, (Patch(0, 1, 0, 0), Patch(2, 1, 0, 0))
    )
    outcome = launched(configuration, iterations=1)
    # live1 is 9: no multiple of 4, as the base of words must be.
    assert outcome.error is not None
    assert outcome.error.cause is Cause.OPERAND
    patched_ = dataclasses.replace(configuration, patches=configuration.patches[:1])
    assert [output[1:] for output in launched(patched_, iterations=1).stored] == [(0, 36, 9)]


def test_a_kept_configuration_is_not_loaded_again() -> None:
    outcome = launched(fill(UNLIKE, 16), addresses=(0, 0xFFFF))
    done = [e.cycle for e in outcome.events if e.kind is EventKind.COMPLETE]
    assert done[2] - done[1] == 1 + 3 + 10 + 1
    missing = launched(fill(UNLIKE, 16), addresses=(0xFFFF,))
    assert missing.error is not None
    assert missing.error.cause is Cause.BITSTREAM
    assert missing.stored == []


def access(pe: int, space: int, bank: int, line: int, *, stores: bool = False, banks: int = 1) -> Access:
    return Access(pe, stores, space, bank, line, banks)


def test_an_access_of_several_banks_is_served_when_it_has_all_of_them() -> None:
    def free(_what: Resource, _cycle: int) -> bool:
        return False

    # The second waits for the bank of the first, and keeps its other bank from the third meanwhile.
    reads = [access(0, 1, 0, 8), access(1, 1, 0, 9, banks=4), access(2, 1, 3, 8), access(3, 1, 2, 9)]
    assert play(reads, 5, free) == [5, 6, 7, 5]
    stores = [access(0, 2, 2, 4, stores=True), access(1, 2, 0, 4, stores=True, banks=4)]
    stores += [access(2, 2, 1, 7, stores=True), access(3, 2, 5, 7, stores=True)]
    assert play(stores, 5, free) == [5, 6, 7, 5]
    mixed = [access(0, 2, 0, 4, stores=True, banks=2), access(1, 2, 1, 4), access(2, 2, 0, 5)]
    assert play(mixed, 5, free) == [6, 5, 5]


def test_a_bank_serves_one_line_and_one_store_per_cycle() -> None:
    def free(_what: Resource, _cycle: int) -> bool:
        return False

    reads = [access(0, 1, 0, 8), access(1, 1, 0, 10), access(2, 1, 0, 8), access(3, 1, 1, 9)]
    assert play(reads, 5, free) == [5, 6, 5, 5]
    both = [access(0, 2, 0, 4), access(1, 2, 0, 6, stores=True), access(2, 2, 0, 6, stores=True)]
    assert play(both, 5, free) == [5, 5, 6]


def test_a_store_waits_for_the_load_of_its_word_and_a_load_for_the_storer() -> None:
    def busy(what: Resource, cycle: int) -> bool:
        return what == Resource(2, 0) and cycle < 8

    same = [access(0, 2, 0, 4, stores=True), access(1, 2, 0, 4), access(2, 2, 0, 6, stores=True)]
    assert play(same, 5, busy) == [9, 8, 10]
    rows = [access(0, 0, 1, 300), access(1, 0, 1, 301), access(2, 0, 0, 2)]
    assert play(rows, 5, busy) == [5, 6, 5]


@pytest.mark.parametrize(("first", "last", "free"), [(0, 12, 13), (12, 14, 15), (12, 99, 20), (20, 99, 20)])
def test_reads_of_the_array_count_in_the_cycles_that_are_looked_at(first: int, last: int, free: int) -> None:
    storer = StorerModel(CONFIG, BandwidthPort(1, 1, 1), (), drains := Drains())
    # Ten rows of one block, in cycles 10 to 19, in bank 0.
    drains.add(
        Drain(10, 19, BankReads(1, (1, 1), (10, 10), (0, 1), CONFIG.derived.acc_bank_words, CONFIG.acc_banks))
    )
    wanted = (Resource(0, 0), Resource(0, 1), Resource(2, 0))
    busy = Busy(storer, drains, wanted, first, last)
    assert [cycle for cycle in range(30) if busy.at(wanted[0], cycle)] == list(range(max(first, 10), free))
    assert not any(busy.at(what, cycle) for what in wanted[1:] for cycle in range(30))
    assert busy.next(first) == (max(first, 10) if first < free else BEYOND)
    assert busy.free(wanted[0], max(first, 10), 2) == free + 1


@pytest.mark.parametrize(
    ("first", "stated", "fails"),
    [(0, range(4, 8), ""), (0, range(4, 7), "a write of byte 7"), (1, range(4, 7), "")],
)
def test_what_all_lanes_access_must_be_stated(first: int, stated: range, fails: str) -> None:
    """A store of four neighbours, or of those that the lane's number and a negated predicate leave."""
    kind = PEKind("one", frozenset({Unit.ALU, Unit.MEMORY}), lanes=4, registers=0)
    fabric = Fabric("lanes", 1, 1, (kind,), (), 4, 4)
    config, sources = machine_of(fabric), layout(fabric, 0).sources
    number = {"op": OPERATIONS["lane"].number, "result": 1}
    below = {
        "op": OPERATIONS["lt"].number,
        "a": sources["a"].index("result"),
        "b": sources["b"].index("const"),
    }
    store = {"op": OPERATIONS["store_lanes"].number, "a": sources["a"].index("const")}
    if first:
        store["p"] = sources["p"].index("result")
    entries = {(0, 0): Entry(number), (0, 1): Entry(below | {"result": 1}, 3), (0, 2): Entry(store, 4)}
    words = encode(Configuration(fabric, 3, 3, entries, (ArrayEntry(2, 1, 0, 16),)))
    memories = Memories(config, np.zeros(64, np.uint8))
    memories.scratch[: 4 * len(words)] = np.array(words, "<u4").view(np.uint8)
    writes = np.zeros(config.out_bytes, np.bool_)
    writes[stated.start : stated.stop] = True
    memories.stated = Stated(None, {"out": writes})
    spec = INSTRUCTIONS["cgra"]
    operands = dict.fromkeys([*(o.name for o in spec.operands), *spec.parameters], 0) | {"iterations": 1}
    with pytest.raises(OperationError, match=fails) if fails else contextlib.nullcontext():
        memories.perform("cgra", operands)


def test_outputs_of_bytes_are_bytes() -> None:
    store = Entry({"op": STORE, "b": MIXED_CONST}, 0x1FF)
    configuration = Configuration(UNLIKE, 1, 1, {(0, 0): store}, (ArrayEntry(2, 1, 37, 1),))
    outcome = launched(configuration, iterations=1)
    assert [output[1:] for output in outcome.stored] == [(0, 37, 0xFF)]


def test_a_launch_of_too_many_steps_is_refused() -> None:
    with pytest.raises(
        InputError, match="a launch of the CGRA must have at most 50000000 steps, not 536870910"
    ):
        memories = Memories(CONFIG, np.zeros(0, np.uint8))
        views = {i: held.data for i, held in enumerate(Spaces(memories).bytes)}
        configuration = fill(UNLIKE, 1)
        execute(CONFIG, configuration, code_of(configuration), [], views, (1 << 28) - 1)
