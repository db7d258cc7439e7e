"""The AXI checkers: silent for legal behaviour, and each rule's violation is detected."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cosim.bus import build, rules
from cosim.bus.process import Process

FOLDER = Path(__file__).parent / "bus_rules"
AXI_ONLY = ("axi_rules.sv", "channel_rules.sv", "lite_rules.sv")

Pins = dict[str, int]

AW: Pins = {"awvalid": 1, "awready": 1, "awid": 1, "awaddr": 0x100, "awsize": 3, "awburst": 1}
W: Pins = {"wvalid": 1, "wready": 1, "wlast": 1, "wstrb": 0xFF}
B: Pins = {"bvalid": 1, "bready": 1, "bid": 1}
AR: Pins = {"arvalid": 1, "arready": 1, "arid": 2, "araddr": 0x200, "arsize": 3, "arburst": 1}
R: Pins = {"rvalid": 1, "rready": 1, "rid": 2, "rlast": 1}
CHANNELS = (AW, W, B, AR, R)
#: What has to be before a channel may speak.
BEFORE: tuple[list[Pins], ...] = ([], [], [AW | W], [], [AR])
CHANGES = ({"awaddr": 0x108}, {"wdata": 1}, {"bresp": 2}, {"araddr": 0x208}, {"rdata": 1})


def waiting(pins: Pins) -> Pins:
    """A channel whose READY is 0."""
    return {name: value for name, value in pins.items() if not name.endswith("ready")}


def common(channel: int) -> list[list[Pins]]:
    """Cycles that break the three rules of every channel."""
    pins = CHANNELS[channel]
    return [
        [*BEFORE[channel], waiting(pins), {}],
        [*BEFORE[channel], waiting(pins), pins | CHANGES[channel]],
        [{"aresetn": 0}, {"aresetn": 0} | waiting(pins)],
    ]


COMMON = [common(c)[kind] for kind in range(3) for c in range(5)]
AXI = [
    *COMMON,
    [AW | {"awburst": 0}],
    [AW | {"awaddr": 0xFF8, "awlen": 1}],
    [AR | {"araddr": 0x204}],
    [AR | {"araddr": 0xF00, "arlen": 32}],
    [AW | {"awlen": 1}, W],
    [AW | {"awsize": 2, "awaddr": 0x104}, W | {"wstrb": 0x01}],
    [AW | W, B | {"bid": 2}],
    [AR, R | {"rid": 1}],
    [AR | {"arlen": 1}, R],
    [AW | W, B | {"bresp": 1}],
]
LITE = [*COMMON, [W, B], [R], [AR, R | {"rresp": 1}]]

#: What is allowed, and what of it is open at the end.
ALLOWED: dict[str, tuple[list[Pins], int]] = {
    "a write, its answer later": ([AW, W, {}, B], 0),
    "everything at once": ([AW | W | AR, B | R], 0),
    "data before the address": ([W | {"wlast": 0}, W, AW | {"awlen": 1}, B], 0),
    "two writes, data behind": ([AW, AW | {"awid": 2}, W, W, B | {"bid": 2}, B], 0),
    "a burst of halves": (
        [
            AW | {"awsize": 2, "awaddr": 0x104, "awlen": 1},
            W | {"wstrb": 0xF0, "wlast": 0},
            W | {"wstrb": 0x0F},
            B,
        ],
        0,
    ),
    "a burst up to 4 KiB": ([AR | {"araddr": 0xFF0, "arlen": 1}, R | {"rlast": 0}, R], 0),
    "reads of two IDs in turn": (
        [
            AR | {"arlen": 1},
            AR | {"arid": 1, "arlen": 1},
            R | {"rid": 1, "rlast": 0},
            R | {"rlast": 0},
            R | {"rid": 1},
            R,
        ],
        0,
    ),
    "waiting": ([waiting(AW), waiting(AW), AW, waiting(W), W, waiting(B), B], 0),
    "errors": ([AW | W, B | {"bresp": 2}, AR, R | {"rresp": 3}], 0),
    "no answer yet": ([AW, W, AR, AR], 3),
}


@pytest.fixture(scope="module")
def play() -> Iterator[Process]:
    text = "\n".join((build.HARNESS / "axi" / name).read_text() for name in AXI_ONLY)
    made = build.program(text, FOLDER)
    process = Process(made.directory / "program", "tests.cosim.bus_rules.bench", {})
    yield process
    process.close()


def test_what_is_allowed_breaks_no_rule(play: Process) -> None:
    for name, (cycles, left) in ALLOWED.items():
        axi, lite, axi_open, _ = play.call("play", cycles)
        assert (name, rules.broken(axi, 0), axi_open) == (name, [], left)
    for name in ("a write, its answer later", "everything at once", "waiting", "errors"):
        _, lite, _, lite_open = play.call("play", ALLOWED[name][0])
        assert (name, rules.broken(0, lite), lite_open) == (name, [], 0)


def test_every_rule_is_noticed(play: Process) -> None:
    """Bits stay set until the end, so every rule is broken once, for the first time."""
    assert len(AXI) == len(rules.AXI)
    assert len(LITE) == len(rules.LITE)
    for bit, cycles in enumerate(AXI):
        axi, _, _, _ = play.call("play", cycles)
        assert rules.broken(axi, 0) == [f"m_axi: {rules.AXI[bit]}"]


def test_every_rule_of_axi_lite_is_noticed() -> None:
    text = "\n".join((build.HARNESS / "axi" / name).read_text() for name in AXI_ONLY)
    process = Process(build.program(text, FOLDER).directory / "program", "tests.cosim.bus_rules.bench", {})
    try:
        for bit, cycles in enumerate(LITE):
            _, lite, _, _ = process.call("play", cycles)
            assert rules.broken(0, lite) == [f"s_axil: {rules.LITE[bit]}"]
    finally:
        process.close()
