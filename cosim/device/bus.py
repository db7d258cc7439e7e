"""The interface of every connection to a machine: registers and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hw.errors import InputError


class BusError(InputError):
    """The connection to the machine failed; the message says what happened and what to check."""


class UncertainError(BusError):
    """A write of several words to one register was interrupted; it is unknown how many of them arrived."""


class Bus(Protocol):
    """A connection to a machine. Methods raise `BusError` if it does not answer or refuses an access.

    Register offsets are in bytes (`hw.csr`); memory addresses count from the memory's first byte.
    """

    @property
    def base(self) -> int:
        """The machine's address of the memory's first byte: a multiple of `hw.csr.BASE_STEP`."""

    @property
    def memory_bytes(self) -> int:
        """Size of the memory in bytes."""

    def read_csr(self, offset: int, count: int = 1) -> list[int]:
        """Read `count` successive registers."""

    def write_csr(self, offset: int, words: Sequence[int]) -> None:
        """Write all words to one register, in order; may raise `UncertainError`."""

    def read_memory(self, address: int, size: int) -> bytes:
        """Read `size` bytes at any address."""

    def write_memory(self, address: int, data: bytes) -> None:
        """Write bytes at any address; neighbouring bytes keep their values."""

    def idle(self) -> None:
        """Pause before the machine is polled again."""

    def close(self) -> None:
        """Close the connection."""


def check_range(bus: Bus, address: int, size: int) -> None:
    """Raise `BusError` for bytes that are not all in the memory."""
    if size < 0 or not 0 <= address <= bus.memory_bytes - size:
        raise BusError(
            f"the device has {bus.memory_bytes:,} bytes of memory: "
            f"{size:,} bytes at {address:#x} do not lie in it"
        )
