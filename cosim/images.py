"""Memory images and `$readmemh` text files, written with NumPy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from hw.errors import InputError
from sw.layout import MEMORY_BYTES

_DIGITS = np.frombuffer("".join(f"{i:02x}" for i in range(256)).encode(), np.uint8).reshape(256, 2)


def hex_lines(words: np.ndarray) -> bytes:
    """Text of unsigned words (uint32 or uint64), one per line, with leading zeros."""
    size = words.dtype.itemsize
    data = np.ascontiguousarray(words).astype(words.dtype.newbyteorder(">")).view(np.uint8)
    text = np.empty((len(words), 2 * size + 1), np.uint8)
    text[:, :-1] = _DIGITS[data].reshape(len(words), 2 * size)
    text[:, -1] = ord("\n")
    return text.tobytes()


def segments(memory: Iterable[tuple[int, np.ndarray]]) -> list[tuple[int, np.ndarray]]:
    """Merge byte ranges into sorted, disjoint ranges of 32-bit words: (first word, words).

    Where ranges overlap, the later one wins. Raises `InputError` for bytes outside the memory.
    """
    pieces = []
    for address, data in memory:
        if data.dtype != np.uint8:
            raise InputError(f"memory at {address:#x} must be bytes (uint8), not {data.dtype}")
        if not 0 <= address <= MEMORY_BYTES - data.size:
            raise InputError(
                f"memory must lie below {MEMORY_BYTES:#x}, not at {address:#x} + {data.size} bytes"
            )
        if data.size:
            pieces.append((address, data.reshape(-1)))
    borders: list[list[int]] = []
    for first, last in sorted((a // 4, (a + d.size + 3) // 4) for a, d in pieces):
        if borders and first <= borders[-1][1]:
            borders[-1][1] = max(borders[-1][1], last)
        else:
            borders.append([first, last])
    starts = np.array([b[0] for b in borders])
    filled = [np.zeros(4 * (last - first), np.uint8) for first, last in borders]
    for address, data in pieces:
        at = int(np.searchsorted(starts, address // 4, "right")) - 1
        low = address - 4 * borders[at][0]
        filled[at][low : low + data.size] = data
    return [(border[0], data.view("<u4")) for border, data in zip(borders, filled, strict=True)]


def filled(memory: Iterable[tuple[int, np.ndarray]], end: int) -> np.ndarray:
    """The bytes of memory up to `end`, or up to the last byte given if that comes first."""
    pieces = segments(memory)
    words = max([(end + 3) // 4, *(first + len(words) for first, words in pieces)])
    out = np.zeros(4 * words, np.uint8)
    for first, given in pieces:
        out[4 * first : 4 * (first + len(given))] = given.view(np.uint8)
    return out


def write_memory(path: Path, memory: Iterable[tuple[int, np.ndarray]]) -> None:
    """Write an image of the memory in the harness's format (cosim/harness/memory.cpp)."""
    with path.open("wb") as out:
        for first, words in segments(memory):
            out.write(np.array([first, len(words)], "<u4").tobytes())
            out.write(words.data)
