"""Arguments of a kernel: arrays and scalars from a file, or random ones of the size that it needs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hw.errors import InputError
from sw.dfg.interpret import MOST_ITERATIONS, Words, execute, words_of
from sw.dfg.kernel import Kernel

#: Range of random array elements (from minus this to this), and largest random scalar (from 1).
ELEMENT_RANGE, SCALAR_RANGE = 1 << 15, 16
#: Elements of a random array; for a kernel that accesses more, arrays must be given.
LARGEST = 1 << 18


@dataclass(frozen=True)
class Arguments:
    """Arrays of int32, int8 or uint8; scalars with the number of iterations; `drawn` names random ones."""

    arrays: Mapping[str, np.ndarray]
    scalars: Mapping[str, int]
    drawn: frozenset[str] = frozenset()

    @property
    def drawn_text(self) -> str:
        """The random arguments, for users: values of scalars, lengths and types of arrays."""
        scalars = [f"{name} = {value}" for name, value in self.scalars.items() if name in self.drawn]
        arrays = [f"{n}[{len(array)}] {array.dtype}" for n, array in self.arrays.items() if n in self.drawn]
        return ", ".join(scalars + arrays)

    def as_dict(self) -> dict[str, Any]:
        """Each argument by name: shape, type, whether it was given or drawn, and for scalars the value."""
        found: dict[str, Any] = {
            name: {"shape": list(array.shape), "type": str(array.dtype)}
            for name, array in self.arrays.items()
        }
        found |= {
            name: {"shape": [], "type": "int32", "value": value} for name, value in self.scalars.items()
        }
        return {n: told | {"from": "drawn" if n in self.drawn else "given"} for n, told in found.items()}


def function_of(text: str, needed: str) -> tuple[str, str]:
    """Split `FILE.py:FUNCTION` into file and function. Raises `InputError`, which begins with `needed`."""
    file, sign, name = text.rpartition(":")
    if not sign or not file or not name.isidentifier():
        raise InputError(f"{needed}, not {text!r}")
    return file, name


def arguments(
    kernel: Kernel, given: Mapping[str, np.ndarray], iterations: int | None = None, seed: int = 0
) -> Arguments:
    """The arguments given by name, completed by random ones drawn from the seed.

    Random arrays have as many elements as the kernel accesses. Raises `InputError` for names that are no
    parameters, for other types, and for negative or too large indices.
    """
    place = f"{kernel.file}: {kernel.name}"
    arrays, scalars = {}, {}
    names = [array.name for array in kernel.arrays]
    wanted = [*kernel.scalars, *([] if kernel.iterations is None else [kernel.iterations])]
    for name, value in given.items():
        if name in names:
            arrays[name] = _array(f"{place}: {name}", value)
        elif name in wanted:
            scalars[name] = _scalar(f"{place}: {name}", value)
        else:
            raise InputError(f"{place}: {name!r} must be a parameter ({', '.join([*names, *wanted])})")
    if iterations is not None:
        if kernel.iterations is None:
            raise InputError(f"{place}: iterations must not be given, the function says how many there are")
        if kernel.iterations in scalars and scalars[kernel.iterations] != iterations:
            found = f"{scalars[kernel.iterations]} and {iterations}"
            raise InputError(f"{place}: iterations ({kernel.iterations}) must be one number, not {found}")
        scalars[kernel.iterations] = iterations
    drawn = frozenset([*names, *wanted]) - arrays.keys() - scalars.keys()
    rng = np.random.default_rng(seed)
    scalars = {name: int(rng.integers(1, SCALAR_RANGE + 1)) for name in wanted} | scalars
    if kernel.iterations is not None and not 0 <= scalars[kernel.iterations] <= MOST_ITERATIONS:
        count = scalars[kernel.iterations]
        raise InputError(f"{place}: iterations must be 0 to {MOST_ITERATIONS}, not {count}")
    missing = {name: _Drawn(seed, name) for name in names if name not in arrays}
    if missing:
        held: dict[str, Words] = {name: words_of(array) for name, array in arrays.items()}
        try:
            execute(kernel.body, {**held, **missing}, dict(scalars))
        except InputError as error:
            which = f"random arrays ({', '.join(missing)}, at most {LARGEST:,} elements each)"
            raise InputError(f"{place}: with {which}: {error}") from None
        arrays |= {name: array.initial() for name, array in missing.items()}
    return Arguments({name: arrays[name] for name in names}, scalars, drawn)


def _array(place: str, value: np.ndarray) -> np.ndarray:
    """An array of a type that memory can hold; other types become int32 if all elements fit."""
    if value.ndim != 1 or value.dtype.kind not in "iu":
        found = f"{value.dtype} of {value.ndim} dimensions"
        raise InputError(f"{place} must be an array of whole numbers of one dimension, not {found}")
    if str(value.dtype) in ("int8", "uint8"):
        return value
    limits = np.iinfo(np.int32)
    if value.size and not (limits.min <= int(value.min()) and int(value.max()) <= limits.max):
        raise InputError(
            f"{place} must hold numbers of 32 bits, not {int(value.min())} to {int(value.max())}"
        )
    return value.astype(np.int32)


def _scalar(place: str, value: np.ndarray) -> int:
    if value.size != 1 or value.dtype.kind not in "iub":
        raise InputError(f"{place} must be a whole number, not {value.dtype} of {list(value.shape)}")
    number = int(value.reshape(-1)[0])
    limits = np.iinfo(np.int32)
    if not limits.min <= number <= limits.max:
        raise InputError(f"{place} must fit 32 bits, not {number}")
    return number


class _Drawn(list[int]):
    """Random elements; records how many of them a kernel accesses."""

    def __init__(self, seed: int, name: str):
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self.elements = rng.integers(-ELEMENT_RANGE, ELEMENT_RANGE, LARGEST, dtype=np.int32)
        self.used = 0
        super().__init__(self.elements.tolist())

    def __getitem__(self, index: Any) -> Any:
        self.used = max(self.used, index + 1)
        return super().__getitem__(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.used = max(self.used, index + 1)
        super().__setitem__(index, value)

    def initial(self) -> np.ndarray:
        """The initial contents, up to the last element accessed."""
        return self.elements[: self.used]
