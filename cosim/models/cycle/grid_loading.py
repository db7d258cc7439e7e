"""Configurations out of the scratchpad: how many words are loaded, and which cannot be (docs/cgra.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from cosim.models.cycle.grid_code import Code, code_of
from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import (
    ACC,
    ELEMENT_BYTES,
    HEADER_WORDS,
    MAGIC,
    NOTHING,
    OUT,
    PATCHED,
    SCRATCH,
    VERSION,
    ArrayEntry,
    Configuration,
    Entry,
    parse,
)
from hw.fabric.layout import ARRAYS, PATCHES
from hw.semantics import MASK

#: The operand `bitstream` that keeps the configuration.
KEEP = 0xFFFF
#: Cycles from the last request to the end of loading, or to the error of a header.
LAST_CYCLES = 2
#: Bits of an array's base.
BASE = (1 << 24) - 1


class Loaded(NamedTuple):
    """A configuration and its code."""

    configuration: Configuration
    code: Code


class Loading(NamedTuple):
    """`words` are requested; `LAST_CYCLES` after the last all is there, or something is wrong (None)."""

    words: int
    loaded: Loaded | None


def load(scratch: npt.NDArray[np.uint8], address: int, fabric: Fabric, values: bool = True) -> Loading:
    """What the grid loads from an address in the scratchpad; `values` as `code_of` has it."""
    for at, right in enumerate(_header(scratch, address, fabric)):
        if not right:
            return Loading(at + 1, None)
    size = _word(scratch, address + 8)
    return Loading(size, _loaded(scratch[address : address + 4 * size].tobytes(), fabric, values))


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


@lru_cache(256)
def _loaded(data: bytes, fabric: Fabric, values: bool) -> Loaded | None:
    """The configuration that words stand for, unless the grid refuses them."""
    try:
        configuration = parse(np.frombuffer(data, "<u4").tolist(), fabric)
    except InputError:
        return None
    return Loaded(configuration, code_of(configuration, values))


def patched(configuration: Configuration, scalars: Sequence[int]) -> Configuration:
    """The configuration with its patches done, in their order; `scalars` are 32 bits each."""
    if not configuration.patches:
        return configuration
    entries, arrays = dict(configuration.entries), list(configuration.arrays)
    for patch in configuration.patches:
        name, value, at = PATCHED[patch.what], scalars[patch.scalar], patch.at
        if name in ("const", "init"):
            entry = entries.get((patch.pe, at), NOTHING)
            const, init = (value, entry.init) if name == "const" else (entry.const, value)
            entries[patch.pe, at] = Entry(entry.fields, const, init)
        else:
            arrays[at] = dataclasses.replace(arrays[at], **{name: value & (BASE if name == "base" else MASK)})
    return dataclasses.replace(configuration, entries=entries, arrays=tuple(arrays))


def array_fault(arrays: Sequence[ArrayEntry], config: MachineConfig) -> int | None:
    """The first array that is not wholly inside a space that there is."""
    sizes = {ACC: config.acc_bytes, SCRATCH: config.scratch_bytes, OUT: config.out_bytes}
    for number, array in enumerate(arrays):
        if array.space not in sizes or array.element >= len(ELEMENT_BYTES):
            return number
        size = ELEMENT_BYTES[array.element]
        if array.base % size or array.base + array.length * size > sizes[array.space]:
            return number
    return None
