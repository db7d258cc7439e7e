"""Launches of the CGRA: the effect of a configuration on registers and memory (docs/cgra.md).

There are no cycles here: a step takes as long as its accesses need, which changes no value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from cosim.models.functional.cgra_code import AccessSite, Code, code_of
from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import (
    ACC,
    ELEMENT_BYTES,
    NOTHING,
    OUT,
    PATCHED,
    SCRATCH,
    ArrayEntry,
    Configuration,
    Entry,
    parse,
)
from hw.semantics import MASK, wrap

#: A launch of more steps than this counts as one that does not end.
STEP_LIMIT = 50_000_000
#: Mask of an array's base.
BASE = (1 << 24) - 1


class Loaded(NamedTuple):
    """A configuration and its code."""

    configuration: Configuration
    code: Code


class Launched(NamedTuple):
    """The result of a launch.

    `steps` steps were executed; `failed` is the PE with an index out of range in the next step. `indices` and
    `values` have one list per access site, as `Code` describes.
    """

    steps: int
    failed: int | None
    indices: list[list[int]]
    values: list[list[int]]

    def masks(self, number: int, site: AccessSite) -> npt.NDArray[np.int64]:
        """The lanes of each access of a site, as bits; `number` is the site's."""
        noted = np.array(self.values[number], np.int64)
        if site.lanes == 1 or not len(noted):
            return np.ones(len(self.indices[number]), np.int64)
        return noted[:: 1 + site.lanes] if site.stores else noted


@lru_cache(256)
def loaded(data: bytes, fabric: Fabric, values: bool = True) -> Loaded:
    """The configuration that the words encode; `values` is passed to `code_of`. Raises `InputError`."""
    configuration = parse(np.frombuffer(data, "<u4").tolist(), fabric)
    return Loaded(configuration, code_of(configuration, values))


def patched(configuration: Configuration, scalars: Sequence[int]) -> Configuration:
    """The configuration with its patches applied in order; `scalars` have 32 bits each."""
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
    """The number of the first array that is not wholly inside an existing space, or None."""
    sizes = {ACC: config.acc_bytes, SCRATCH: config.scratch_bytes, OUT: config.out_bytes}
    for number, array in enumerate(arrays):
        if array.space not in sizes or array.element >= len(ELEMENT_BYTES):
            return number
        size = ELEMENT_BYTES[array.element]
        if array.base % size or array.base + array.length * size > sizes[array.space]:
            return number
    return None


def launch(
    configuration: Configuration,
    code: Code,
    state: list[int],
    spaces: Mapping[int, memoryview],
    iterations: int,
) -> Launched:
    """Execute a launch of a patched configuration, changing `state` and the output buffer.

    `spaces` are the bytes of the three spaces by number. Raises `InputError` for a launch of too many steps.
    """
    steps = (iterations - 1) * configuration.ii + configuration.depth if iterations else 0
    if steps > STEP_LIMIT:
        raise InputError(f"a launch of the CGRA must have at most {STEP_LIMIT} steps, not {steps}")
    arrays: list[Any] = []
    for array in configuration.arrays:
        view = spaces[array.space]
        arrays += [
            (view.cast("i"), view.cast("b"), view)[array.element],
            array.base // ELEMENT_BYTES[array.element],
            array.length,
        ]
    numbers = [wrap(getattr(configuration.entry(pe, at), which)) for which, pe, at in code.constants]
    tables = {pe: [wrap(word) for word in words] for pe, words in configuration.tables.items()}
    indices: list[list[int]] = [[] for _ in code.sites]
    values: list[list[int]] = [[] for _ in code.sites]
    noted, stored = ([found.append for found in lists] for lists in (indices, values))
    failed = code.run(state, steps, iterations, numbers, arrays, tables, noted, stored)
    executed, pe = failed or (steps, None)
    return Launched(executed, pe, indices, values)
