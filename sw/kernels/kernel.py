"""A CGRA loop of the model compiler: its text, arrays and scalars."""

from __future__ import annotations

from dataclasses import dataclass, field

from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.bitstream import ELEMENTS, SCALARS, SPACES, ArrayEntry
from hw.fabric.layout import ARRAYS
from sw import dtypes
from sw.kernels.origin import Origin

_SPACES = {"acc": 0, "scratch": 1, "out": 2}


@dataclass(frozen=True)
class Stream:
    """An array of a loop: a space from a base address on, as elements of one type.

    A launch's scalar says where it starts in the array, so one configuration serves all addresses. Read-only
    streams may overlap.
    """

    name: str
    space: str
    element: str
    offset: int = 0

    def entry(self, config: MachineConfig) -> ArrayEntry:
        """The array as stated in a configuration, up to the end of the space."""
        size = {"acc": config.acc_bytes, "scratch": config.scratch_bytes, "out": config.out_bytes}[self.space]
        number = _SPACES[self.space]
        length = (size - self.offset) // dtypes.ELEMENTS[self.element].bytes
        return ArrayEntry(number, ELEMENTS.index(self.element), self.offset, length)


assert tuple(SPACES) == ("accumulator", "scratchpad", "output buffer")


@dataclass(frozen=True)
class GridKernel:
    """One loop: `text` holds a function `name(n, streams..., scalars...)` with one loop over `range(n)`.

    An iteration computes `per_iteration` elements. The scalars are arguments of the launch, in this order.
    `origin` is where the text was written, if a person wrote it.
    """

    name: str
    text: str
    streams: tuple[Stream, ...]
    scalars: tuple[str, ...]
    per_iteration: int = 1
    origin: Origin | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        for what, found, most in (
            ("scalars", self.scalars, SCALARS),
            ("arrays", self.streams, ARRAYS),
        ):
            if len(found) > most:
                raise InputError(f"kernel {self.name}: {what} must be at most {most}, not {len(found)}")
