"""The behaviour of a simulated AXI top's environment, as data that both processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Codes of xRESP that are errors.
SLVERR, DECERR = 2, 3


class Fault(NamedTuple):
    """An error response of the memory: `number` counts R transfers (`read`) or B responses, from 0."""

    read: bool
    number: int
    response: int = SLVERR


@dataclass(frozen=True)
class Environment:
    """Random back-pressure, latencies and order of responses, drawn from a seed, and errors.

    `pauses` are the rates from which each channel of both buses draws its own: the fraction of cycles in
    which its model holds back VALID or READY. `latency` is the range of cycles from a request to its first
    response. `shuffle` lets responses to different IDs come in any order and interleaved. These two apply to
    our memory model only, not to `AxiRam`.
    """

    seed: int = 0
    pauses: tuple[float, ...] = (0.0,)
    latency: tuple[int, int] = (0, 0)
    shuffle: bool = False
    faults: tuple[Fault, ...] = ()


#: No back-pressure, no errors.
CALM = Environment()
