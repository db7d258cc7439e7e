"""Encodes CGRA configurations as 32-bit words, and parses them (docs/cgra.md, "Bitstream")."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hw.errors import InputError
from hw.fabric.fabric import Fabric
from hw.fabric.layout import ARRAYS, PATCHES, Layout, layout

MAGIC = 0x4843
VERSION = 2
#: Number of words before the arrays.
HEADER_WORDS = 6
#: Index of the header word with the II and the numbers of arrays and patches.
SIZES = 3
#: Number of scalars of a launch: `live0`, `live1`, `cgra_0` to `cgra_11`.
SCALARS = 14
#: Targets of a patch, by number.
PATCHED = ("const", "init", "base", "length")
#: Names of the spaces of arrays, and their numbers.
SPACES = ("accumulator", "scratchpad", "output buffer")
ACC, SCRATCH, OUT = range(len(SPACES))
#: Element types of arrays by number, and their sizes in bytes.
ELEMENTS = ("int32", "int8", "uint8")
ELEMENT_BYTES = (4, 1, 1)
#: Maximum number of words in a bitstream: a header can count them and the largest scratchpad holds them.
WORDS = 1 << 18
_WORD = (1 << 32) - 1


@dataclass(frozen=True)
class ArrayEntry:
    """An array: numbers of its space and element type, base in bytes within the space, length in elements."""

    space: int
    element: int
    base: int
    length: int


@dataclass(frozen=True)
class Patch:
    """A scalar of the launch that replaces a value in an entry or array.

    `what` indexes `PATCHED`. `at` is the context of an entry of `pe`, or the number of an array.
    """

    what: int
    scalar: int
    pe: int
    at: int


@dataclass(frozen=True)
class Entry:
    """The operation of one PE in one context: fields by name (0 if absent), `const`, `init`."""

    fields: Mapping[str, int]
    const: int = 0
    init: int = 0

    def __getitem__(self, name: str) -> int:
        return self.fields.get(name, 0)


#: An entry without an operation.
NOTHING = Entry({})


@dataclass(frozen=True)
class Configuration:
    """A configured fabric: entries by PE and context (absent: idle), table contents by PE."""

    fabric: Fabric
    ii: int
    depth: int
    entries: Mapping[tuple[int, int], Entry]
    arrays: tuple[ArrayEntry, ...] = ()
    patches: tuple[Patch, ...] = ()
    tables: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def entry(self, pe: int, context: int) -> Entry:
        """The entry of a PE in a context."""
        return self.entries.get((pe, context), NOTHING)


def entry_words(fabric: Fabric) -> int:
    """Number of words in the entries of all PEs for one context."""
    return sum(layout(fabric, pe).words for pe in range(fabric.size))


def check_word(words: Sequence[int]) -> int:
    """The CRC-32 of words, each little-endian."""
    return zlib.crc32(to_bytes(words))


def to_bytes(words: Sequence[int]) -> bytes:
    """The words as bytes in memory, each little-endian."""
    return b"".join(word.to_bytes(4, "little") for word in words)


def encode(configuration: Configuration) -> list[int]:
    """Encodes a configuration as the words of a bitstream.

    Raises `InputError` if the format cannot hold a value: with the place, what was found, and what is needed.
    """
    c = configuration
    _check(c)
    tables: list[int] = []
    for pe, contents in sorted(c.tables.items()):
        if contents:
            tables += [pe << 16 | len(contents), *(word & _WORD for word in contents)]
    sizes = c.ii << 20 | len(c.arrays) << 12 | len(c.patches)
    words = [MAGIC << 16 | VERSION << 8, c.fabric.hash, 0, sizes, c.depth, len(tables)]
    for array in c.arrays:
        words += [array.element << 26 | array.space << 24 | array.base, array.length]
    words += [p.what << 28 | p.scalar << 24 | p.pe << 12 | p.at for p in c.patches]
    words += tables
    for pe in range(c.fabric.size):
        shape = layout(c.fabric, pe)
        for context in range(c.ii):
            words += _entry_words(shape, c.entry(pe, context))
    if len(words) + 1 > WORDS:
        raise InputError(f"a bitstream must have at most {WORDS} words, not {len(words) + 1}")
    words[2] = len(words) + 1
    return [*words, check_word(words)]


def _entry_words(shape: Layout, entry: Entry) -> Iterator[int]:
    bits = sum(entry[f.name] << f.low for f in shape.fields)
    for i in range(shape.field_words):
        yield bits >> 32 * i & _WORD
    yield entry.const & _WORD
    yield entry.init & _WORD


def _range(place: str, what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        needed = f"{low} to {high}" if low <= high else "absent, there is none"
        raise InputError(f"{place}: {what} must be {needed}, not {value}")


def _check(c: Configuration) -> None:
    place = f"configuration of {c.fabric.name!r}"
    _range(place, "II", c.ii, 1, c.fabric.contexts)
    _range(place, "depth", c.depth, 1, c.ii * c.fabric.stages)
    _range(place, "number of arrays", len(c.arrays), 0, ARRAYS)
    _range(place, "number of patches", len(c.patches), 0, PATCHES)
    for i, array in enumerate(c.arrays):
        here = f"{place}: array {i}"
        _range(here, "space", array.space, 0, 3)
        _range(here, "element", array.element, 0, 3)
        _range(here, "base", array.base, 0, (1 << 24) - 1)
        _range(here, "length", array.length, 0, _WORD)
    for i, patch in enumerate(c.patches):
        _check_patch(f"{place}: patch {i}", c, patch)
    for pe, contents in c.tables.items():
        _range(place, "the PE of a table", pe, 0, c.fabric.size - 1)
        most = c.fabric.kinds[pe].table_words
        _range(f"{place}: table of PE {c.fabric.at(pe)}", "words", len(contents), 0, most)
    for (pe, context), entry in c.entries.items():
        _range(place, "the PE of an entry", pe, 0, c.fabric.size - 1)
        here = f"{place}: PE {c.fabric.at(pe)}, context {context}"
        _range(here, "context", context, 0, c.ii - 1)
        widths = {f.name: f.width for f in layout(c.fabric, pe).fields}
        for name, value in entry.fields.items():
            _range(here, name, value, 0, (1 << widths.get(name, 0)) - 1)


def _check_patch(place: str, c: Configuration, patch: Patch) -> None:
    _range(place, "what it replaces", patch.what, 0, len(PATCHED) - 1)
    _range(place, "the scalar", patch.scalar, 0, SCALARS - 1)
    if PATCHED[patch.what] in ("const", "init"):
        _range(place, "PE", patch.pe, 0, c.fabric.size - 1)
        _range(place, "context", patch.at, 0, c.ii - 1)
    else:
        # The hardware ignores the PE.
        _range(place, "PE", patch.pe, 0, (1 << 12) - 1)
        _range(place, "array", patch.at, 0, len(c.arrays) - 1)


class _WordReader:
    """Reads words in order and remembers the position of the last one."""

    def __init__(self, words: Sequence[int]):
        self.words = words
        self.at = 0

    def word(self, what: str) -> int:
        if self.at >= len(self.words):
            raise InputError(f"bitstream: ends after {len(self.words)} words, {what} is needed")
        self.at += 1
        return self.words[self.at - 1]

    def part(self, what: str, count: int) -> Iterator[int]:
        for _ in range(count):
            yield self.word(what)

    def fail(self, what: str, needed: str, found: object) -> InputError:
        return InputError(f"bitstream word {self.at - 1}: {what} must be {needed}, not {found}")


def parse(words: Sequence[int], fabric: Fabric) -> Configuration:
    """Parses words into a configuration; fields that are 0 and entries with only such fields are absent.

    Raises `InputError` for anything that the hardware rejects: with the place, what was found, and what is
    needed.
    """
    reader = _WordReader(words)
    ii, depth, arrays, patches, tables = _header(reader, fabric)
    entries: dict[tuple[int, int], Entry] = {}
    found_arrays = []
    for _ in range(arrays):
        first, length = reader.part("an array", 2)
        found_arrays.append(ArrayEntry(first >> 24 & 3, first >> 26 & 3, first & 0xFFFFFF, length))
    found_patches = tuple(
        Patch(word >> 28, word >> 24 & 15, word >> 12 & 0xFFF, word & 0xFFF)
        for word in reader.part("a patch", patches)
    )
    contents = _tables(reader, fabric, tables)
    for pe in range(fabric.size):
        shape = layout(fabric, pe)
        for context in range(ii):
            entry = _entry(shape, list(reader.part("an entry", shape.words)))
            if entry != NOTHING:
                entries[pe, context] = entry
    check = reader.word("the check word")
    if check != check_word(words[: reader.at - 1]):
        raise reader.fail("the check word", f"{check_word(words[: reader.at - 1]):#010x}", f"{check:#010x}")
    found = Configuration(fabric, ii, depth, entries, tuple(found_arrays), found_patches, contents)
    for i, patch in enumerate(found_patches):
        _check_patch(f"bitstream: patch {i}", found, patch)
    return found


def split_sizes(word: int) -> tuple[int, int, int]:
    """II, number of arrays and number of patches from word `SIZES`."""
    return word >> 20, word >> 12 & 0xFF, word & 0xFFF


def _header(reader: _WordReader, fabric: Fabric) -> tuple[int, int, int, int, int]:
    """Parses the header: II, depth, number of arrays, number of patches, words of the table section."""
    mark = reader.word("the header")
    if mark != MAGIC << 16 | VERSION << 8:
        raise reader.fail("the mark", f"{MAGIC << 16 | VERSION << 8:#010x}", f"{mark:#010x}")
    own = reader.word("the hash of the fabric")
    if own != fabric.hash:
        needed = f"{fabric.hash:#010x}, that of {fabric.name!r}"
        raise reader.fail("the hash of the fabric", needed, f"{own:#010x}")
    count = reader.word("the number of words")
    if count != len(reader.words):
        raise reader.fail("the number of words", str(len(reader.words)), count)
    ii, arrays, patches = split_sizes(reader.word("II"))
    for what, value, low, high in (
        ("II", ii, 1, fabric.contexts),
        ("the number of arrays", arrays, 0, ARRAYS),
        ("the number of patches", patches, 0, PATCHES),
    ):
        if not low <= value <= high:
            raise reader.fail(what, f"{low} to {high}", value)
    depth = reader.word("the depth")
    if not 1 <= depth <= ii * fabric.stages:
        raise reader.fail("the depth", f"1 to {ii * fabric.stages}", depth)
    tables = reader.word("the words of tables")
    size = HEADER_WORDS + 2 * arrays + patches + tables + ii * entry_words(fabric) + 1
    if size != count:
        parts = f"{size}, the sum of its parts"
        raise InputError(f"bitstream word 2: the number of words must be {parts}, not {count}")
    return ii, depth, arrays, patches, tables


def _tables(reader: _WordReader, fabric: Fabric, size: int) -> dict[int, tuple[int, ...]]:
    """Parses the contents of the table memories."""
    end = reader.at + size
    found: dict[int, tuple[int, ...]] = {}
    last = -1
    while reader.at < end:
        head = reader.word("a table")
        pe, count = head >> 16, head & 0xFFFF
        if pe >= fabric.size:
            raise reader.fail("the PE of a table", f"0 to {fabric.size - 1}", pe)
        most = fabric.kinds[pe].table_words
        if not most:
            raise reader.fail("the PE of a table", "one with a table memory", pe)
        if not 1 <= count <= min(most, end - reader.at):
            room = min(most, end - reader.at)
            raise reader.fail(f"the words of the table of PE {fabric.at(pe)}", f"1 to {room}", count)
        if pe <= last:
            raise reader.fail("the PE of a table", f"greater than {last}, the one before", pe)
        last = pe
        found[pe] = tuple(reader.part("a word of a table", count))
    return found


def _entry(shape: Layout, words: Sequence[int]) -> Entry:
    bits = sum(word << 32 * i for i, word in enumerate(words[: shape.field_words]))
    values = {f.name: bits >> f.low & (1 << f.width) - 1 for f in shape.fields}
    return Entry({name: value for name, value in values.items() if value}, words[-2], words[-1])
