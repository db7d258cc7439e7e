"""The interface of every connection to a machine: registers and memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hw.errors import InputError


class BusError(InputError):
    """The way to the machine does not work: the text says what happened, and what to check."""


class UncertainError(BusError):
    """A write of several words to one register was cut off: how many of them arrived is not known."""


class Bus(Protocol):
    """A way to a machine. Methods raise `BusError` when it does not answer, or refuses an access.

    Offsets of registers are bytes (`hw.csr`); addresses of memory count from its first byte.
    """

    @property
    def base(self) -> int:
        """Where the machine finds the first byte of the memory: a multiple of `hw.csr.BASE_STEP`."""

    @property
    def memory_bytes(self) -> int:
        """Size of the memory."""

    def read_csr(self, offset: int, count: int = 1) -> list[int]:
        """`count` registers, one after the other."""

    def write_csr(self, offset: int, words: Sequence[int]) -> None:
        """Write all words to one register, in order; may raise `UncertainError`."""

    def read_memory(self, address: int, size: int) -> bytes:
        """`size` bytes from any address on."""

    def write_memory(self, address: int, data: bytes) -> None:
        """Write bytes from any address on; those around them keep their values."""

    def idle(self) -> None:
        """Let a moment pass before the machine is asked again whether it is done."""

    def close(self) -> None:
        """Give the way free."""


def check_range(bus: Bus, address: int, size: int) -> None:
    """Raise `BusError` for bytes that do not lie in the memory."""
    if size < 0 or not 0 <= address <= bus.memory_bytes - size:
        raise BusError(
            f"the device has {bus.memory_bytes:,} bytes of memory: "
            f"{size:,} bytes at {address:#x} do not lie in it"
        )
