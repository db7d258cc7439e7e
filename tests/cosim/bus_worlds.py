"""Environments of a simulated AXI top: random ones, and rule violations to plant."""

from __future__ import annotations

import random

from cosim.bus.environment import Environment, Fault
from cosim.bus.rules import AXI, LITE

#: Faults that the harness plants between the machine and the pins, by number, and the rule that each breaks.
PLANTS = {
    1: f"m_axi: {AXI[0]}",
    2: f"m_axi: {AXI[3]}",
    3: f"m_axi: {AXI[6]}",
    4: f"m_axi: {AXI[19]}",
    5: f"m_axi: {AXI[17]}",
    6: f"m_axi: {AXI[18]}",
    7: f"s_axil: {LITE[2]}",
    8: f"s_axil: {LITE[9]}",
}


def rough(seed: int, faults: tuple[Fault, ...] = ()) -> Environment:
    """A random environment: channels from always ready to mostly not, latencies from none to 200 cycles."""
    r = random.Random(f"environment {seed}")
    pauses = r.choice([(0.0, 0.1), (0.0, 0.2, 0.5), (0.3, 0.6), (0.0, 0.5, 0.85)])
    low = r.choice([0, 0, 3, 20])
    return Environment(seed, pauses, (low, low + r.choice([0, 5, 40, 180])), r.random() < 0.7, faults)
