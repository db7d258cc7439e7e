"""Configurations out of the scratchpad: how many words are loaded, and which cannot be (docs/cgra.md)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from cosim.models.functional.cgra import Loaded, loaded
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import HEADER_WORDS, MAGIC, VERSION
from hw.fabric.layout import ARRAYS, PATCHES

#: Cycles from the last request to the end of loading, or to the error of a header.
LAST_CYCLES = 2


def load(
    scratch: npt.NDArray[np.uint8], address: int, fabric: Fabric, values: bool
) -> tuple[int, Loaded | None]:
    """Words that the grid requests from an address in the scratchpad, and what is there `LAST_CYCLES` later.

    None where something is wrong; `values` as `code_of` has it.
    """
    for at, right in enumerate(_header(scratch, address, fabric)):
        if not right:
            return at + 1, None
    size = _word(scratch, address + 8)
    try:
        return size, loaded(scratch[address : address + 4 * size].tobytes(), fabric, values)
    except InputError:
        return size, None


def _word(scratch: npt.NDArray[np.uint8], address: int) -> int:
    return int.from_bytes(scratch[address : address + 4].tobytes(), "little")


def _header(scratch: npt.NDArray[np.uint8], address: int, fabric: Fabric) -> Iterator[bool]:
    """Whether the words that are looked at one by one can be."""
    yield address < len(scratch) and _word(scratch, address) == MAGIC << 16 | VERSION << 8
    yield _word(scratch, address + 4) == fabric.hash
    size = _word(scratch, address + 8)
    yield size > HEADER_WORDS and address + 4 * size <= len(scratch)
    sizes = _word(scratch, address + 12)
    ii = sizes >> 20
    yield 1 <= ii <= fabric.contexts and sizes >> 12 & 0xFF <= ARRAYS and sizes & 0xFFF <= PATCHES
    yield 1 <= _word(scratch, address + 16) <= ii * fabric.stages
