"""Arrays of whole numbers as text in a page: differences, bytes by significance, deflate, base64."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import numpy as np

_LEVEL = 9


def pack(columns: Sequence[np.ndarray]) -> str:
    """Columns as base64 of deflate (zlib).

    Of each column come the lowest bytes of all numbers first, then the next, four times. Numbers are taken
    modulo 2^32. The browser inflates them with `DecompressionStream("deflate")`.
    """
    planes = [_planes(column) for column in columns]
    return text(b"".join(planes))


def text(data: bytes) -> str:
    """Bytes as base64 of deflate (zlib)."""
    return base64.b64encode(zlib.compress(data, _LEVEL)).decode("ascii")


def unpack(packed: str, lengths: Sequence[int]) -> list[np.ndarray]:
    """The columns of such lengths again, int32; raises `ValueError` where the text holds another number."""
    data = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)
    if len(data) != 4 * sum(lengths):
        raise ValueError(f"{len(data)} bytes must be 4 for each of {sum(lengths)} numbers")
    columns, at = [], 0
    for length in lengths:
        planes = data[at : at + 4 * length].reshape(4, length)
        columns.append(np.ascontiguousarray(planes.T).view("<i4").reshape(length))
        at += 4 * length
    return columns


def _planes(column: np.ndarray) -> bytes:
    words = (column.astype(np.int64) & 0xFFFFFFFF).astype("<u4")
    return np.ascontiguousarray(words.view(np.uint8).reshape(len(words), 4).T).tobytes()


def differences(values: np.ndarray) -> np.ndarray:
    """The first value, then what each adds to the one before it."""
    return np.diff(values, prepend=np.zeros(1, values.dtype))
