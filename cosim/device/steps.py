"""The accesses of `cosim.host.script`, gathered into steps that can be repeated as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cosim.host import Entry, Op
from hw import csr

_PROGRAM = {r.name: r.offset for r in csr.FIXED if r.name.startswith("PROGRAM_")}


@dataclass(frozen=True)
class Write:
    """Words for one register, in order."""

    offset: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class Program:
    """The program of a warp: writes that give the same when all are done again from the first on."""

    writes: tuple[Write, ...]


@dataclass(frozen=True)
class Read:
    """Successive registers."""

    offset: int
    count: int


@dataclass(frozen=True)
class Wait:
    """Until the machine is done and quiet."""


@dataclass(frozen=True)
class Dump:
    """Words of memory: first and number."""

    first: int
    words: int


Step = Write | Program | Read | Wait | Dump


def steps(script: Sequence[Entry]) -> Iterator[Step]:
    """The steps of a script, in its order."""
    at = 0
    while script[at].op != Op.END:
        entry = script[at]
        end = at + 1
        match entry.op:
            case Op.WRITE if entry.address == _PROGRAM["PROGRAM_ADDRESS"]:
                while script[end - 1].address != _PROGRAM["PROGRAM_CHECK"]:
                    end += 1
                yield Program(tuple(_writes(script[at:end])))
            case Op.WRITE:
                yield Write(entry.address, (entry.data,))
            case Op.READ:
                while script[end].op == Op.READ and script[end].address == script[end - 1].address + 4:
                    end += 1
                yield Read(entry.address, end - at)
            case Op.WAIT:
                yield Wait()
            case Op.DUMP_FIRST:
                end += 1
                yield Dump(entry.data, script[end - 1].data)
            case _:
                raise ValueError(f"unknown entry {entry}")
        at = end


def _writes(entries: Sequence[Entry]) -> Iterator[Write]:
    """Entries of writes; those to one register are one write."""
    at = 0
    while at < len(entries):
        end = at + 1
        while end < len(entries) and entries[end].address == entries[at].address:
            end += 1
        yield Write(entries[at].address, tuple(e.data for e in entries[at:end]))
        at = end
