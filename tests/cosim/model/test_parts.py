"""Tables and closed forms against counting one by one."""

import random

import numpy as np
import pytest

from cosim.model.checks import BufferUse, block_outside, byte_outside_buffer, row_outside_windows
from cosim.model.memory_port import AlwaysPort, BandwidthPort, Run, TablePort, port_of
from cosim.model.rows import RowBeats
from cosim.settings import MemorySettings
from tests.cosim.model.jobs import TEST


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, AlwaysPort),
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
        run = Run(*(chance.randint(1, most) for most in (9, 9, 99, 9)))
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
        use = BufferUse(chance.choice([1, 4]), 40, chance.randrange(45), chance.choice([0, 1, 5, 12]))
        rows, size, transposed = chance.randint(1, 14), chance.randint(1, 14), chance.random() < 0.5
        expected = None
        for row in range(rows):
            for k in range(size):
                lane, step = (k, row) if transposed else (row, k)
                if expected is None and use.target + lane // use.lanes * use.pitch + step >= use.columns:
                    expected = row, k
        assert byte_outside_buffer(use, transposed, rows, size) == expected


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
        a = (chance.randrange(30), chance.randrange(5), 40)
        b = (chance.randrange(30), chance.randrange(5), 40)
        words = (chance.randrange(90), chance.randrange(5), 100)
        grid = (chance.randint(1, 5), chance.randint(1, 5))
        rest = chance.randint(1, 4)
        full = 4 if grid[0] > 1 else rest
        expected = None
        for i in range(grid[0]):
            for j in range(grid[1]):
                last = i * full + (rest if i == grid[0] - 1 else full) - 1
                outside = (
                    a[0] + i * a[1] >= 40 or b[0] + j * b[1] >= 40 or words[0] + last * words[1] + j >= 100
                )
                if expected is None and outside:
                    expected = i, j
        assert block_outside(a, b, words, (full, rest), grid) == expected
