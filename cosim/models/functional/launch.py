"""What a launch of the grid does to accumulator, scratchpad and output buffer, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cosim.models.functional.cgra import CgraState, LaunchError
from cosim.models.functional.errors import NAMES, OperationError
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric.bitstream import ELEMENT_BYTES, OUT, ArrayEntry, parse
from sw.ir.intrinsics import KEEP

if TYPE_CHECKING:
    from cosim.models.functional.memories import Memories

#: The spaces by their numbers, as attributes of `Memories`.
_SPACES = ("acc", "scratch", "out")
_TYPES = (np.dtype(np.int32), np.dtype(np.int8), np.dtype(np.uint8))
#: The word of a bitstream that counts its words.
_LENGTH = 2


@dataclass
class CgraLaunches:
    """Executes the launches of a machine's CGRA."""

    fabric: Fabric
    cgra: CgraState = field(init=False)

    def __post_init__(self) -> None:
        self.cgra = CgraState(self.fabric)

    def launch(self, memories: Memories, operands: Mapping[str, int]) -> None:
        """Execute one `cgra`; raises `OperationError` where the machine stops with an error."""
        spaces = _Spaces(memories)
        if operands["bitstream"] != KEEP:
            self._load(spaces, operands["bitstream"] * 16)
        elif self.cgra.configuration is None:
            raise OperationError("a launch that keeps a configuration", "an earlier launch with one")
        scalars = [operands[name] for name in ("live0", "live1", *(f"cgra_{i}" for i in range(12)))]
        error = self.cgra.launch(operands["iterations"], scalars, spaces)
        if error is not None:
            raise self._refused(error)

    def _load(self, spaces: _Spaces, address: int) -> None:
        """Take the bitstream at an address of the scratchpad."""
        self.cgra.configuration = None
        header = spaces.words(address, _LENGTH + 1)
        try:
            self.cgra.load(parse(spaces.words(address, header[_LENGTH]), self.fabric))
        except InputError as error:
            found = f"a bitstream at {address:#x} of the scratchpad that is refused ({error})"
            raise OperationError(found, "one for this grid") from None

    def _refused(self, error: LaunchError) -> OperationError:
        if error.cause == "operand":
            assert self.cgra.configuration is not None
            array = self.cgra.configuration.arrays[error.where]
            return OperationError(
                f"array {error.where} of a launch, {array.length} elements from byte {array.base} on of "
                f"space {array.space}",
                "one inside of its space",
            )
        row, column = self.fabric.at(error.where)
        return OperationError(
            f"an access outside of its array or table by PE ({row}, {column}) in step {error.step}",
            "indices below the length, and stores to the output buffer only",
        )


@dataclass(frozen=True)
class _Spaces:
    """The memories as the grid sees them."""

    memories: Memories

    def _bytes(self, space: int) -> npt.NDArray[np.uint8]:
        held: npt.NDArray[np.generic] = getattr(self.memories, _SPACES[space])
        return held.reshape(-1).view(np.uint8)

    def size(self, space: int) -> int:
        """Bytes of a space."""
        return self._bytes(space).size

    def words(self, address: int, count: int) -> list[int]:
        """Words of the scratchpad; raises `OperationError` outside of it."""
        held = self.memories.scratch[address : address + 4 * count]
        if held.size < 4 * count:
            found = f"a bitstream of {count} words at {address:#x} of the scratchpad"
            raise OperationError(found, f"one inside of its {self.memories.scratch.size} bytes")
        if self.memories.strict and not self.memories.known["scratch"][address : address + 4 * count].all():
            raise OperationError("a bitstream where nothing was written", "a load before")
        found_words: list[int] = held.view("<u4").tolist()
        return found_words

    def load(self, array: ArrayEntry, index: int) -> int:
        """An element, extended to 32 bits."""
        size = ELEMENT_BYTES[array.element]
        at = array.base + index * size
        name = _SPACES[array.space]
        self._check(name, at, size, "read")
        if self.memories.strict:
            # What is known of the accumulator is known by elements.
            known = self.memories.known[name].reshape(-1)
            first, count = (at // 4, 1) if name == "acc" else (at, size)
            self.memories.check_known(name, bool(known[first : first + count].all()))
        return int(self._bytes(array.space)[at : at + size].view(_TYPES[array.element])[0])

    def _check(self, space: str, at: int, size: int, what: str) -> None:
        """Raise `OperationError` for an access that the launch does not state."""
        stated = self.memories.stated
        masks = None if stated is None else stated.reads if what == "read" else stated.writes
        if masks is not None and not masks[space][at : at + size].all():
            raise OperationError(
                f"a {what} of byte {at} of {NAMES[space]}, which is in no region of {what}=,",
                "regions that hold all that a launch accesses: warps are ordered by them",
            )

    def store(self, array: ArrayEntry, index: int, value: int) -> None:
        """Set an element to the lowest bits of a value."""
        size = ELEMENT_BYTES[array.element]
        at = array.base + index * size
        self._check(_SPACES[array.space], at, size, "write")
        lowest = (value & 0xFFFFFFFF).to_bytes(4, "little")[:size]
        self._bytes(array.space)[at : at + size] = np.frombuffer(lowest, np.uint8)
        if array.space == OUT:
            self.memories.known["out"][at : at + size] = True
