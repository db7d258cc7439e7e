"""Bitstreams: the documented words, read back unchanged, and refused where the hardware refuses them."""

from __future__ import annotations

import random
import zlib

import pytest

from hw.errors import InputError
from hw.fabric import Fabric, Link, PEKind, Unit, layout, load
from hw.fabric.bitstream import ArrayEntry, Configuration, Entry, Patch, check_word, encode, parse, to_bytes

#: Two PEs, the second with a table and no registers.
PAIR = Fabric(
    "pair",
    1,
    2,
    (
        PEKind("memory", frozenset({Unit.ALU, Unit.MEMORY}), registers=3),
        PEKind("table", frozenset({Unit.TABLE}), 0, 8),
    ),
    (Link(0, 1), Link(1, 0)),
    contexts=4,
    stages=4,
)


def some(fabric: Fabric, seed: int, ii: int = 3) -> Configuration:
    """Random fields, valid or not."""
    rng = random.Random(seed)
    entries = {}
    for pe in range(fabric.size):
        for context in range(ii):
            values = {f.name: rng.randrange(1 << f.width) for f in layout(fabric, pe).fields}
            fields = {name: value for name, value in values.items() if value}
            entries[pe, context] = Entry(fields, rng.randrange(1 << 32), rng.randrange(1 << 32))
    arrays = (ArrayEntry(1, 0, 64, 20), ArrayEntry(2, 2, (1 << 24) - 1, (1 << 32) - 1))
    patches = (Patch(0, 13, 1, 2), Patch(1, 0, 0, 0), Patch(2, 1, 7, 1), Patch(3, 2, 0, 0))
    tables = {pe: (1, (1 << 32) - 1) for pe, kind in enumerate(fabric.kinds) if kind.table_words}
    return Configuration(fabric, ii, 5, entries, arrays, patches, tables)


@pytest.mark.parametrize("fabric", [PAIR, load("mixed4x4"), load("diagonal3x4"), load("torus2x2")])
@pytest.mark.parametrize("seed", range(4))
def test_what_is_encoded_is_parsed_back_equal(fabric, seed):
    configuration = some(fabric, seed)
    assert parse(encode(configuration), fabric) == configuration


def test_the_words_are_those_of_the_page():
    entry = Entry({"op": 1, "a": 1, "stage": 3, "out0": 1}, const=7, init=0xFFFFFFFF)
    configuration = Configuration(
        PAIR,
        2,
        5,
        {(0, 1): entry},
        (ArrayEntry(2, 1, 0x123456, 99),),
        (Patch(3, 13, 5, 0),),
        {1: (11, -1)},
    )
    words = encode(configuration)
    # PE 0: op 6, a b c 3 each (5 sources), p 2 (4), negate 1, initial 4, first 3, stage 2, array 4, result 2,
    # write 2, write_at 2, read_at 2, out0 3. PE 1 lacks registers and arrays.
    assert [(f.name, f.low) for f in layout(PAIR, 0).fields][-5:] == [
        ("result", 31),
        ("write", 33),
        ("write_at", 35),
        ("read_at", 37),
        ("out0", 39),
    ]
    low = 1 | 1 << 6 | 3 << 25
    assert words == [
        0x4843_0200,
        PAIR.hash,
        len(words),
        2 << 20 | 1 << 12 | 1,
        5,
        3,
        1 << 26 | 2 << 24 | 0x123456,
        99,
        3 << 28 | 13 << 24 | 5 << 12,
        1 << 16 | 2,
        11,
        0xFFFFFFFF,
        *(0, 0, 0, 0),
        *(low, 1 << 7, 7, 0xFFFFFFFF),
        *(0, 0, 0) * 2,
        zlib.crc32(to_bytes(words[:-1])),
    ]


def changed(words: list[int], at: int, value: int) -> list[int]:
    """Words with one changed, and a check word that is right."""
    found = list(words)
    found[at] = value
    return [*found[:-1], check_word(found[:-1])]


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (0, 0x4843_0100, "word 0: the mark must be 0x48430200, not 0x48430100"),
        (1, 1, "word 1: the hash of the fabric must be 0x[0-9a-f]*, that of 'pair', not 0x00000001"),
        (2, 9, r"word 2: the number of words must be \d+, not 9"),
        (3, 0, "word 3: II must be 1 to 4, not 0"),
        (3, 5 << 20, "word 3: II must be 1 to 4, not 5"),
        (3, 3 << 20 | 17 << 12, "word 3: the number of arrays must be 0 to 16, not 17"),
        (3, 3 << 20 | 65, "word 3: the number of patches must be 0 to 64, not 65"),
        (3, 3 << 20 | 1 << 12 | 4, r"word 2: the number of words must be \d+, the sum of its parts"),
        (4, 0, "word 4: the depth must be 1 to 12, not 0"),
        (4, 13, "word 4: the depth must be 1 to 12, not 13"),
        (10, 4 << 28, "patch 0: what it replaces must be 0 to 3, not 4"),
        (10, 14 << 24, "patch 0: the scalar must be 0 to 13, not 14"),
        (10, 2 << 12, "patch 0: PE must be 0 to 1, not 2"),
        (10, 3, "patch 0: context must be 0 to 2, not 3"),
        (12, 2 << 28 | 2, "patch 2: array must be 0 to 1, not 2"),
        (14, 2 << 16 | 2, "word 14: the PE of a table must be 0 to 1, not 2"),
        (14, 1 << 16, r"word 14: the words of the table of PE \(0, 1\) must be 1 to 2, not 0"),
        (14, 1 << 16 | 3, r"the words of the table of PE \(0, 1\) must be 1 to 2, not 3"),
        (14, 0 << 16 | 1, "word 14: the PE of a table must be one with a table memory, not 0"),
        (14, 1 << 16 | 1, "word 16: the words of the table|word 16: the PE of a table must be"),
    ],
)
def test_what_the_hardware_refuses_is_refused(at, value, message):
    with pytest.raises(InputError, match=message):
        parse(changed(encode(some(PAIR, 1)), at, value), PAIR)


def test_every_flipped_bit_is_noticed():
    words = encode(some(PAIR, 2))
    for at in range(len(words)):
        for bit in range(32):
            wrong = list(words)
            wrong[at] ^= 1 << bit
            with pytest.raises(InputError, match=r"bitstream"):
                parse(wrong, PAIR)
    for length in range(len(words)):
        with pytest.raises(InputError, match=r"bitstream"):
            parse(words[:length], PAIR)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ii": 5}, "II must be 1 to 4, not 5"),
        ({"depth": 0}, "depth must be 1 to 12, not 0"),
        ({"entries": {(0, 3): Entry({})}}, r"PE \(0, 0\), context 3: context must be 0 to 2"),
        ({"entries": {(2, 0): Entry({})}}, "the PE of an entry must be 0 to 1, not 2"),
        ({"entries": {(0, 0): Entry({"op": 64})}}, r"PE \(0, 0\), context 0: op must be 0 to 63, not 64"),
        ({"entries": {(1, 0): Entry({"array": 1})}}, r"PE \(0, 1\), context 0: array must be 0 to 0, not 1"),
        ({"tables": {0: (1,)}}, r"table of PE \(0, 0\): words must be 0 to 0, not 1"),
        ({"tables": {1: (0,) * 9}}, r"table of PE \(0, 1\): words must be 0 to 8, not 9"),
        ({"arrays": (ArrayEntry(0, 0, 1 << 24, 0),)}, "array 0: base must be 0 to 16777215"),
        ({"patches": (Patch(0, 14, 0, 0),)}, "patch 0: the scalar must be 0 to 13, not 14"),
        ({"patches": (Patch(2, 0, 0, 0),)}, "patch 0: array must be absent, there is none"),
    ],
)
def test_what_the_format_cannot_hold_is_refused(changes, message):
    values = {"ii": 3, "depth": 5, "entries": {}} | changes
    with pytest.raises(InputError, match=message):
        encode(Configuration(PAIR, **values))
