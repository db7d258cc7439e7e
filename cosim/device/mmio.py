"""A memory-mapped machine on this computer: `/dev/mem`, UIO devices, or plain files."""

from __future__ import annotations

import mmap
import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cosim.device.bus import BusError, check_range
from hw.csr import BASE_STEP

#: Bytes of the register area.
CSR_BYTES = 1 << 16
#: Seconds between two polls of the machine.
PAUSE = 0.0002


@dataclass(frozen=True)
class Area:
    """A range of a file to map; `size` None means up to the file's end."""

    path: str
    offset: int = 0
    size: int | None = None


class MmioBus:
    """A `cosim.device.Bus` on mapped memory.

    `memory` is the area that the machine sees from its address `base` on; it must not be held in a cache that
    the machine does not see. All accesses are whole aligned words. Raises `BusError` if an area cannot be
    mapped, or `base` is invalid.
    """

    def __init__(self, csr: Area, memory: Area, base: int = 0):
        if base not in range(0, 1 << 32, BASE_STEP):
            raise BusError(
                f"{memory.path}: its base must be a multiple of {BASE_STEP:,} below 2^32, not {base:#x}"
            )
        self.base = base
        self._csr = _Mapping(csr, CSR_BYTES)
        try:
            self._memory = _Mapping(memory, None)
        except BusError:
            self._csr.close()
            raise
        self.memory_bytes = 4 * len(self._memory.words)

    def read_csr(self, offset: int, count: int = 1) -> list[int]:
        """See `Bus`."""
        return [int(self._csr.words[offset // 4 + i]) for i in range(count)]

    def write_csr(self, offset: int, words: Sequence[int]) -> None:
        """See `Bus`."""
        for word in words:
            self._csr.words[offset // 4] = word

    def read_memory(self, address: int, size: int) -> bytes:
        """See `Bus`."""
        check_range(self, address, size)
        first, last = address // 4, (address + size + 3) // 4
        return self._memory.words[first:last].tobytes()[address - 4 * first :][:size]

    def write_memory(self, address: int, data: bytes) -> None:
        """See `Bus`."""
        check_range(self, address, len(data))
        first, last = address // 4, (address + len(data) + 3) // 4
        before, after = address % 4, -(address + len(data)) % 4
        if before:
            data = self._memory.words[first : first + 1].tobytes()[:before] + data
        if after:
            data += self._memory.words[last - 1 : last].tobytes()[-after:]
        self._memory.words[first:last] = np.frombuffer(data, np.uint32)

    def idle(self) -> None:
        """See `Bus`."""
        time.sleep(PAUSE)

    def close(self) -> None:
        """See `Bus`."""
        self._csr.close()
        self._memory.close()


class _Mapping:
    """A file area as 32-bit words."""

    def __init__(self, area: Area, size: int | None):
        size = area.size if area.size is not None else size
        if area.offset % 4 or (size is not None and (size <= 0 or size % 4)):
            raise BusError(
                f"{area.path}: offset and size must be multiples of 4, not {area.offset:#x}, {size}"
            )
        page = area.offset % mmap.ALLOCATIONGRANULARITY
        try:
            # Without O_SYNC the kernel maps /dev/mem through the cache.
            file = os.open(area.path, os.O_RDWR | os.O_SYNC)
            try:
                size = size if size is not None else _rest(file, area)
                self._map = mmap.mmap(file, page + size, offset=area.offset - page)
            finally:
                os.close(file)
        except (OSError, ValueError) as error:
            raise BusError(f"{area.path}: cannot be mapped at {area.offset:#x}: {error}") from None
        self.words = np.frombuffer(self._map, np.uint32, size // 4, page)

    def close(self) -> None:
        """Unmap the area."""
        self.words = np.empty(0, np.uint32)
        self._map.close()


def _rest(file: int, area: Area) -> int:
    """Bytes from the area's offset to the end of a plain file."""
    found = os.fstat(file)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("the size must be given for what is no plain file")
    return (found.st_size - area.offset) // 4 * 4
