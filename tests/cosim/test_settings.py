"""Memory settings: invalid ones, and the pattern of available cycles."""

import random

import numpy as np
import pytest

from cosim.settings import MemorySettings
from hw.config import PORTS, load
from hw.errors import InputError

TEST = load("test")
MASK = 0xFFFFFFFF


def mixed(number: int, seed: int, port: int) -> int:
    """The hash of the contract, in whole numbers."""
    h = (number ^ ((seed & MASK) * 0x9E3779B1 + port * 0x85EBCA6B)) & MASK
    h ^= h >> 16
    h = h * 0x7FEB352D & MASK
    h ^= h >> 15
    h = h * 0x846CA68B & MASK
    return (h ^ h >> 16) & 255


def expected(settings: MemorySettings, port: str, cycle: int) -> bool:
    p, rate, seed = settings.ports[port], settings.stall_rate, settings.stall_seed
    free = cycle * p.bandwidth % p.width < p.bandwidth
    if rate:
        number = PORTS.index(port)
        free &= mixed(cycle, seed, number) >= rate
        free &= mixed(cycle >> 5, ~seed, number) >= rate // 4
    return free


def settings_of(chance: random.Random) -> MemorySettings:
    changes = {
        "bandwidth": {p: chance.randint(1, TEST.port_bytes(p)) for p in PORTS if chance.random() < 0.6}
    }
    if chance.random() < 0.2:
        return MemorySettings.of(TEST, **changes)
    rate = chance.choice([0, 1, 3, 64, 255, chance.randrange(256)])
    return MemorySettings.of(TEST, **changes, stall_seed=chance.randrange(1 << 32), stall_rate=rate)


def test_available_cycles_are_those_of_the_contract() -> None:
    chance = random.Random(7)
    for _ in range(40):
        settings, port = settings_of(chance), chance.choice(PORTS)
        limit = chance.choice([100, 1 << 16, 1 << 32])
        cycles = [chance.randrange(limit) for _ in range(100)]
        found = settings.available(port, np.array(cycles))
        assert found.tolist() == [expected(settings, port, t) for t in cycles]


def test_a_page_of_cycles_is_the_same_as_cycles_one_by_one() -> None:
    chance = random.Random(8)
    for _ in range(200):
        settings, port = settings_of(chance), chance.choice(PORTS)
        count = 32 << chance.randrange(9)
        first = chance.randrange(1 << chance.choice([16, 32])) // count * count
        found = settings.available_from(port, first, count)
        assert np.array_equal(found, settings.available(port, np.arange(first, first + count)))


def test_what_was_returned_may_be_changed() -> None:
    for changes in ({}, {"stall_seed": 1}):
        settings = MemorySettings.of(TEST, bandwidth={"store": 1}, **changes)
        before = settings.available_from("store", 0, 64)
        copy = before.copy()
        before[:] = False
        assert np.array_equal(settings.available_from("store", 0, 64), copy)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"latency": {"load_x": 3}}, "memory port must be one of load_a, load_b, load_c, store"),
        ({"latency": {"load_a": 0}}, "latency of load_a must be 1 to 500 cycles, not 0"),
        ({"latency": {"load_a": 501}}, "latency of load_a must be 1 to 500 cycles, not 501"),
        ({"bandwidth": {"store": 0}}, "bandwidth of store must be 1 to .* bytes per cycle, not 0"),
        ({"stall_seed": -1}, "stall seed must be 0 to 4294967295, not -1"),
        ({"stall_seed": 1, "stall_rate": 256}, "stall rate must be 0 to 255 of 256 cycles, not 256"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict, text: str) -> None:
    with pytest.raises(InputError, match=text):
        MemorySettings.of(TEST, **changes)


def test_the_words_for_a_harness_hold_every_port() -> None:
    settings = MemorySettings.of(TEST, latency={"store": 9}, stall_seed=5, stall_rate=70)
    words = settings.words()
    assert len(words) == 4 * len(PORTS) + 2
    assert words[-2:] == [5, 70]
    assert words[4 * PORTS.index("store")] == 9
