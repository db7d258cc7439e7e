"""Computes the dividers of the ECP5 PLL."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import NamedTuple

from hw.errors import InputError

#: Limits of EHXPLLL in Hz and of its dividers (ECP5 and ECP5-5G Family Data Sheet, "sysCLOCK PLL Timing").
INPUT_HZ = (8_000_000, 400_000_000)
COMPARED_HZ = 3_125_000  # minimum frequency at the phase detector
OSCILLATOR_HZ = (400_000_000, 800_000_000)
OUTPUT_HZ = (OSCILLATOR_HZ[0] // 128, OSCILLATOR_HZ[1] // 2)
DIVIDER, FEEDBACK = 128, 80


class Pll(NamedTuple):
    """Dividers of the reference, the feedback, the output that is fed back, and the machine's clock."""

    reference: int
    feedback: int
    loop: int
    output: int

    def oscillator_hz(self, clock_hz: int) -> Fraction:
        """Frequency of the oscillator for a given reference frequency."""
        return Fraction(clock_hz * self.feedback * self.loop, self.reference)

    def hz(self, clock_hz: int) -> Fraction:
        """Frequency of the machine's clock for a given reference frequency."""
        return self.oscillator_hz(clock_hz) / self.output


def solve(clock_hz: int, wanted_hz: int) -> Pll:
    """The smallest dividers that give the highest frequency not above the requested one.

    Raises `InputError` if one of the clocks is out of range.
    """
    if not INPUT_HZ[0] <= clock_hz <= INPUT_HZ[1]:
        raise InputError(f"the board's clock must be {_mhz(*INPUT_HZ)}, not {clock_hz / 1e6:g} MHz")
    if not OUTPUT_HZ[0] <= wanted_hz <= OUTPUT_HZ[1]:
        raise InputError(f"the machine's clock must be {_mhz(*OUTPUT_HZ)}, not {wanted_hz / 1e6:g} MHz")
    found = [
        pll
        for reference in range(1, min(DIVIDER, clock_hz // COMPARED_HZ) + 1)
        for feedback in range(1, FEEDBACK + 1)
        for pll in _loops(clock_hz, wanted_hz, reference, feedback)
    ]
    # Floats suffice for the choice: frequencies that they cannot tell apart differ by less than one Hz.
    return min(found, key=lambda pll: (round(wanted_hz - float(pll.hz(clock_hz))), pll))


def _loops(clock_hz: int, wanted_hz: int, reference: int, feedback: int) -> list[Pll]:
    hz = Fraction(clock_hz * feedback, reference)
    loops = range(max(1, ceil(OSCILLATOR_HZ[0] / hz)), min(DIVIDER, int(OSCILLATOR_HZ[1] / hz)) + 1)
    outputs = [Pll(reference, feedback, loop, ceil(hz * loop / wanted_hz)) for loop in loops]
    return [pll for pll in outputs if pll.output <= DIVIDER]


def _mhz(low: float, high: float) -> str:
    return f"{low / 1e6:g} to {high / 1e6:g} MHz"
