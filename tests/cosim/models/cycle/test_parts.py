"""Tables and closed forms agree with counting one by one."""

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from cosim.models.cycle.checks import (
    block_outside,
    byte_outside_buffer,
    row_outside_windows,
    word_outside,
)
from cosim.models.cycle.gemm import Drains, GemmModel
from cosim.models.cycle.memory_port import BandwidthPort, RequestRun, TablePort, port_of
from cosim.models.cycle.rows import RowBeats
from cosim.models.cycle.sharing import Operation
from cosim.settings import MemorySettings
from hw.config import BufferShape, MachineConfig
from hw.isa import PARAMETERS, TIMING
from tests.cosim.models.cycle.jobs import TEST


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, BandwidthPort),
        ({"bandwidth": {"load_a": 3}}, BandwidthPort),
        ({"bandwidth": {"load_a": 1}}, BandwidthPort),
        ({"stall_seed": 5, "stall_rate": 90}, TablePort),
        ({"stall_seed": 5, "stall_rate": 250, "bandwidth": {"load_a": 5}}, TablePort),
    ],
)
def test_available_cycles_are_found_by_lookup(changes: dict, kind: type) -> None:
    settings = MemorySettings.of(TEST, **changes)
    port = port_of(settings, "load_a")
    assert isinstance(port, kind)
    times = np.flatnonzero(settings.available("load_a", np.arange(100_000)))
    chance = random.Random(1)
    for _ in range(300):
        start, n = chance.randrange(9000), chance.randint(1, 50)
        later = times[times >= start]
        assert port.after(start, n) == later[n - 1]
        end = start + chance.randrange(4000)
        assert port.count(start, end) == np.count_nonzero(later < end)
        run = RequestRun(*(chance.randint(1, most) for most in (9, 9, 99, 9)))
        presented = start
        for _ in range(run.turns):
            for _ in range(run.size):
                accepted = port.after(presented, 1)
                presented = accepted + run.gap
            presented = accepted + run.turn
        assert port.run(start, run) == accepted
        assert not port.period or port.after(start + port.period, n) == port.period + port.after(start, n)


def test_rows_are_counted_and_found() -> None:
    chance = random.Random(2)
    for _ in range(200):
        address, stride = chance.randrange(100), chance.choice([0, 8, 3, 12, 2**32 - 5])
        size, rows = chance.randint(1, 40), chance.randint(1, 30)
        beats = RowBeats(address, stride, size, rows, 8)
        counts = [-(-((address + i * stride) % 2**32 % 8 + size) // 8) for i in range(rows)]
        assert [beats.count(i) for i in range(rows)] == counts
        assert beats.total == sum(counts)
        places = [(i, q) for i, n in enumerate(counts) for q in range(n)]
        assert [beats.locate(b) for b in range(beats.total)] == places


def test_the_first_byte_outside_a_buffer_is_found() -> None:
    chance = random.Random(3)
    for _ in range(2000):
        shape = BufferShape(chance.choice([1, 4]), 1, 40)
        target, pitch = chance.randrange(45), chance.choice([0, 1, 5, 12])
        rows, size, transposed = chance.randint(1, 14), chance.randint(1, 14), chance.random() < 0.5
        expected = None
        for row in range(rows):
            for k in range(size):
                lane, step = (k, row) if transposed else (row, k)
                if expected is None and target + lane // shape.lanes * pitch + step >= shape.columns:
                    expected = row, k
        assert byte_outside_buffer(shape, target, pitch, transposed, rows, size) == expected


def test_the_first_row_outside_the_windows_is_found() -> None:
    chance = random.Random(4)
    for _ in range(500):
        windows = [(low := chance.randrange(300), low + chance.randrange(200)) for _ in range(2)]
        address, stride = chance.randrange(400), chance.choice([0, 7, 20, 2**32 - 9])
        size, rows = chance.randint(1, 30), chance.randint(1, 20)
        firsts = [(address + i * stride) % 2**32 for i in range(rows)]
        bad = [
            i
            for i, x in enumerate(firsts)
            if not any(low <= x and x + size - 1 <= high for low, high in windows)
        ]
        assert row_outside_windows(windows, address, stride, size, rows) == (bad[0] if bad else None)


def test_the_first_block_outside_is_found() -> None:
    chance = random.Random(5)
    for _ in range(2000):
        a = (chance.randrange(45), chance.randrange(5), 40)
        b = (chance.randrange(45), chance.randrange(5), 40)
        grid = (chance.randint(1, 5), chance.randint(1, 5))
        blocks = [(i, j) for i in range(grid[0]) for j in range(grid[1])]
        bad = [(i, j) for i, j in blocks if a[0] + i * a[1] >= 40 or b[0] + j * b[1] >= 40]
        assert block_outside(a, b, grid) == (bad[0] if bad else None)


def test_the_first_row_beyond_the_accumulator_is_found() -> None:
    chance = random.Random(6)
    for _ in range(2000):
        words = (chance.randrange(110), chance.randrange(6), 100)
        grid = (chance.randint(1, 5), chance.randint(1, 5))
        rest = chance.randint(1, 4)
        full = 4 if grid[0] > 1 else rest
        rows = [
            (i, j, r)
            for i in range(grid[0])
            for j in range(grid[1])
            for r in range(rest if i == grid[0] - 1 else full)
        ]
        bad = [(i, j, r) for i, j, r in rows if words[0] + (i * full + r) * words[1] + j >= 100]
        assert word_outside(words, (full, rest), grid) == (bad[0] if bad else None)


def walked_product(
    config: MachineConfig, operands: list[int], params: dict[str, int]
) -> tuple[int | None, set[Any]]:
    """When a product that is taken in cycle 0 fails, and its accumulator reads until then: cycle, bank."""
    a, b, c, k = operands
    d, rows_of = config.derived, config.rows
    m, n, pitch = params["gemm_m"], params["gemm_n"], params["gemm_c_pitch"]
    t = TIMING.gemm_first
    faults: list[int] = []
    reads: set[tuple[int, int]] = set()
    for i in range(-(-m // rows_of)):
        rows = min(rows_of, m - i * rows_of)
        for j in range(-(-n // config.cols)):
            ends = (a + i * params["gemm_a_pitch"] + k, b + j * params["gemm_b_pitch"] + k)
            if ends[0] > d.buffer_a.columns or ends[1] > d.buffer_b.columns:
                return min([*faults, t]), {r for r in reads if r[0] < min([*faults, t])}
            for r in range(rows):
                word = c + (i * rows_of + r) * pitch + j
                at = t + k + TIMING.gemm_drain + r
                if word >= d.acc_words:
                    faults.append(at)
                elif not faults:
                    reads.add((at, word // d.acc_bank_words))
            t += max(k, rows)
    first = min(faults, default=None)
    return first, {r for r in reads if first is None or r[0] < first}


def test_a_product_fails_and_reads_until_then_as_a_walk_finds() -> None:
    chance = random.Random(7)
    seen: Counter[bool] = Counter()
    operation = Operation(None, "gemm", tuple, (1 << 16,) * 4)
    for _ in range(600):
        config = TEST.replace(acc_banks=chance.choice([1, 2, 4]))
        words, columns = config.derived.acc_words, config.derived.buffer_a.columns
        params: dict[str, int] = dict.fromkeys(PARAMETERS, 0) | {
            "gemm_m": chance.randint(1, 14),
            "gemm_n": chance.randint(1, 14),
            "gemm_c_pitch": chance.choice([0, 1, 5, 40]),
            "gemm_a_pitch": chance.choice([0, 9, 300]),
            "gemm_b_pitch": chance.choice([0, 9, 300]),
        }
        operands = [
            chance.choice([0, columns - 40]),
            chance.choice([0, columns - 40]),
            chance.choice([0, words // 2, words - 9, words + 3]),
            chance.randint(1, 30),
        ]
        drains = Drains()
        engine = GemmModel(config, drains)
        plan = engine.plan(operation, operands, [params[name] for name in PARAMETERS])
        assert plan is not None
        engine.issue(-TIMING.enqueue, 0, 0, plan, operands)
        fault, reads = walked_product(config, operands, params)
        assert (engine.fault.cycle if engine.fault else None) == fault
        seen[fault is not None] += 1
        end = fault if fault is not None else 1000
        for bank in range(config.acc_banks):
            found: set[int] = set()
            cycle = 0
            while (block := drains.next_block(bank, cycle)) is not None:
                found |= set(range(max(cycle, block[0]), block[1]))
                cycle = block[1]
            assert {t for t in found if t < end} == {t for t, b in reads if b == bank}
    assert min(seen[True], seen[False]) > 50, seen
