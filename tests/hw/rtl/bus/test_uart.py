"""Receiver and transmitter on a line."""

from __future__ import annotations

import random
from typing import Any

import pytest
from amaranth.sim import Simulator

from hw.errors import InputError
from hw.rtl.bus.uart import Receiver, Transmitter, divisor
from tests.hw.rtl.bus.bench import Pauses, source


def levels(byte: int, stop: int = 1) -> list[int]:
    return [0, *(byte >> i & 1 for i in range(8)), stop]


def waveform(bits: list[int], cycles: float) -> list[int]:
    """One level for each clock cycle; `cycles` of a bit need not be whole."""
    return [bits[int(i / cycles)] for i in range(int(len(bits) * cycles))]


def receive(cycles: int, line: list[int]) -> tuple[list[int], int]:
    """The bytes that a receiver takes from a line, and how many it calls bad."""
    receiver = Receiver(cycles)
    got: list[int] = []
    bad = 0

    async def bench(ctx: Any) -> None:
        nonlocal bad
        for level in [1] * 5 + line + [1] * 3 * cycles:
            ctx.set(receiver.rx, level)
            _, _, valid, data, wrong = await ctx.tick().sample(receiver.valid, receiver.data, receiver.bad)
            if valid:
                got.append(int(data))
            bad += int(wrong)

    simulator = Simulator(receiver)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.run()
    return got, bad


@pytest.mark.parametrize(
    ("cycles", "ratio"), [(4, 1.0), (5, 1.0), (16, 1.03), (16, 0.97), (25, 1.02), (8, 0.98)]
)
def test_bytes_are_received_back_to_back_and_with_clocks_apart(cycles: int, ratio: float) -> None:
    sent = random.Random(cycles).randbytes(20) + b"\x00\xff\x55"
    bits = [bit for byte in sent for bit in levels(byte)]
    assert receive(cycles, waveform(bits, cycles * ratio)) == (list(sent), 0)


def test_short_spikes_change_nothing() -> None:
    sent, cycles = b"\x0f\xa5\x00\xff", 16
    line = [1] * 40 + waveform([bit for byte in sent for bit in levels(byte)], cycles)
    r = random.Random(1)
    for start in range(0, len(line) - 8, 8):  # one cycle in eight, less than samples are apart
        line[start + r.randrange(2)] ^= 1
    assert receive(cycles, line) == (list(sent), 0)


def test_a_wrong_stop_bit_loses_the_byte_only() -> None:
    bits = [*levels(0x12), *levels(0x34, stop=0), 1, 1, *levels(0x56)]
    assert receive(10, waveform(bits, 10)) == ([0x12, 0x56], 1)


def test_a_line_that_is_held_low_counts_once() -> None:
    bits = [0] * 50 + [1, 1, *levels(0x77)]
    assert receive(10, waveform(bits, 10)) == ([0x77], 1)


@pytest.mark.parametrize("cycles", [4, 7, 17])
def test_the_transmitter_sends_what_a_receiver_takes(cycles: int) -> None:
    sent = random.Random(cycles).randbytes(25)
    transmitter = Transmitter(cycles)
    line: list[int] = []

    async def bench(ctx: Any) -> None:
        await source(ctx, transmitter.bytes, sent, Pauses(cycles, 0.05))
        for _ in range(12 * cycles):
            await ctx.tick()

    async def watch(ctx: Any) -> None:
        while True:
            _, _, level = await ctx.tick().sample(transmitter.tx)
            line.append(int(level))

    simulator = Simulator(transmitter)
    simulator.add_clock(1e-6)
    simulator.add_testbench(bench)
    simulator.add_testbench(watch, background=True)
    simulator.run()
    assert receive(cycles, line) == (list(sent), 0)
    assert len(line) < cycles * (10 * len(sent) + 12) + 40  # no gaps between bytes


def test_a_rate_that_the_clock_cannot_give_is_refused() -> None:
    assert divisor(60_000_000, 1_000_000) == 60
    assert divisor(25_000_000, 115_200) == 217
    with pytest.raises(InputError, match=r"at most a 4th of the clock \(1000000 Hz\), not 500000"):
        divisor(1_000_000, 500_000)
    with pytest.raises(InputError, match=r"within 2% of a whole fraction .* 180000 would become 166667"):
        divisor(1_000_000, 180_000)
    with pytest.raises(InputError, match="must be positive, not 0 and 9600"):
        divisor(0, 9600)
