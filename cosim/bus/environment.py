"""The behaviour of the environment of a simulated AXI top, as data that both processes share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

#: Codes of xRESP that are errors.
SLVERR, DECERR = 2, 3


class Fault(NamedTuple):
    """An answer of the memory that is an error: `number` counts R transfers (`read`) or Bs from 0 on."""

    read: bool
    number: int
    response: int = SLVERR


@dataclass(frozen=True)
class Environment:
    """Random back-pressure, latencies and order of answers from a seed, and errors.

    `pauses` are the rates from which each channel of both buses draws its own: in so many of 1 cycles its
    model holds back VALID or READY. `latency` is the range of cycles from a request to its first answer,
    `shuffle` says whether answers to several IDs come in any order and interleaved; both count for the model
    of memory that is not `AxiRam`.
    """

    seed: int = 0
    pauses: tuple[float, ...] = (0.0,)
    latency: tuple[int, int] = (0, 0)
    shuffle: bool = False
    faults: tuple[Fault, ...] = ()


#: Nothing holds anything back.
CALM = Environment()
