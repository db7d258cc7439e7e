"""Memory images, and tables as text for $readmemh."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cosim.images import filled, hex_lines, segments, write_memory
from hw.errors import InputError
from sw.layout import MEMORY_BYTES


def read_back(path: Path) -> dict[int, int]:
    left, found = np.fromfile(path, "<u4").tolist(), {}
    while left:
        first, count, *left = left
        found |= {first + i: word for i, word in enumerate(left[:count])}
        left = left[count:]
    return found


def test_words_are_little_endian_with_the_highest_digit_first() -> None:
    assert hex_lines(np.array([1, 2, 3, 0xF4], np.uint8).view("<u4")) == b"f4030201\n"
    assert hex_lines(np.array([1], np.uint64)) == b"0000000000000001\n"


def test_an_image_holds_every_byte_at_its_address(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pieces = tuple(
        (a, rng.integers(0, 256, n, dtype=np.uint8)) for a, n in ((5, 9), (14, 3), (101, 1), (0, 2))
    )
    write_memory(tmp_path / "m.bin", pieces)
    expected = np.zeros(4 * 26, np.uint8)
    for address, data in pieces:
        expected[address : address + data.size] = data
    words = read_back(tmp_path / "m.bin")
    assert max(words) == 25
    assert [words.get(i, 0) for i in range(26)] == expected.view("<u4").tolist()
    np.testing.assert_array_equal(filled(pieces, 0), expected)
    assert len(filled(pieces, 400)) == 400


def test_where_pieces_overlap_the_later_one_counts() -> None:
    (found,) = segments([(0, np.full(8, 1, np.uint8)), (2, np.full(2, 2, np.uint8))])
    assert found[1].view(np.uint8).tolist() == [1, 1, 2, 2, 1, 1, 1, 1]


def test_far_pieces_leave_a_hole_that_costs_nothing() -> None:
    found = segments([(0, np.ones(4, np.uint8)), (MEMORY_BYTES - 4, np.ones(4, np.uint8))])
    assert [(first, len(words)) for first, words in found] == [(0, 1), (MEMORY_BYTES // 4 - 1, 1)]


@pytest.mark.parametrize("address", [-1, MEMORY_BYTES - 3])
def test_bytes_outside_the_memory_are_refused(address: int) -> None:
    with pytest.raises(InputError, match="memory must lie below 0xfff00000"):
        segments([(address, np.zeros(4, np.uint8))])


def test_images_are_bytes() -> None:
    with pytest.raises(InputError, match="must be bytes"):
        segments([(0, np.zeros(4, np.int8))])
