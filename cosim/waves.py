"""Waveforms of a run: their file, and which cycles and parts of the machine to record."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hw.errors import InputError, whole_number

#: Extensions of wave files; the first format is by far the smaller.
ENDINGS = (".fst", ".vcd")
#: Extensions of the accompanying files: GTKWave's and Surfer's.
BESIDE = (".gtkw", ".sucl")
#: Value of `around` for the first divergence between model and RTL.
DIVERGENCE = "divergence"
#: Cycles shown before and after an operator, and before and after the first divergence.
AROUND_OPERATOR, BEFORE_DIVERGENCE, AFTER_DIVERGENCE = 20, 1000, 200
#: Last cycle of a window without an end.
OPEN = (1 << 64) - 2

_MODULE = re.compile(r"module (\\?\S+) ?\(")
_INSTANCE = re.compile(r"  (\\heald\.\S+) +\\?(\S+) +\(")


@dataclass(frozen=True)
class Waves:
    """Which waveforms of a run to record, and the file for them (.fst or .vcd; .fst by default).

    `first` and `last` are the first and last cycle; None means the start or the end of the run. `around` is
    the name of an operator, or `divergence` for the first divergence between model and RTL. `scopes` are
    names or patterns of parts of the machine (`gemm`, `cgra.pe*`), recorded with everything inside them; by
    default the whole machine is recorded.
    """

    file: Path
    first: int | None = None
    last: int | None = None
    around: str | None = None
    scopes: tuple[str, ...] = ()

    @staticmethod
    def of(asked: str | Path | Waves | None) -> Waves | None:
        """Check the waveforms asked for; raises `InputError` if they contradict each other."""
        if asked is None:
            return None
        waves = asked if isinstance(asked, Waves) else Waves(Path(asked))
        file = Path(waves.file)
        if not file.suffix and not file.exists():
            file = file.with_name(f"{file.name}{ENDINGS[0]}")
        if file.suffix not in ENDINGS:
            raise InputError(f"the wave file must end in {' or '.join(ENDINGS)}, not {str(waves.file)!r}")
        for name, option, cycle in (("first", "from", waves.first), ("last", "to", waves.last)):
            if cycle is not None:
                whole_number(f"the {name} cycle of waves (--waves-{option})", cycle, 0)
        first, last = waves.first, waves.last
        if first is not None and last is not None and last < first:
            raise InputError(f"the last cycle of waves (--waves-to) must be {first} or later, not {last}")
        if waves.around is not None and (first, last) != (None, None):
            raise InputError("waves are of cycles (--waves-from, --waves-to) or --waves-around, not both")
        return replace(waves, file=file, scopes=tuple(waves.scopes))

    @staticmethod
    def asked(
        waves: Path | None,
        waves_from: int | None,
        waves_to: int | None,
        waves_around: str | None,
        waves_scope: tuple[str, ...],
    ) -> Waves | None:
        """The waveforms that command-line options ask for; raises `InputError` if they are invalid."""
        names = ("--waves-from", "--waves-to", "--waves-around", "--waves-scope")
        values = (waves_from, waves_to, waves_around, waves_scope)
        given = [name for name, value in zip(names, values, strict=True) if value not in (None, ())]
        if waves is None:
            if given:
                raise InputError(f"{given[0]} goes with --waves FILE, which is missing")
            return None
        return Waves.of(Waves(waves, *values))

    @property
    def windowed(self) -> bool:
        """Whether only part of the run is recorded."""
        return (self.first, self.last, self.around) != (None, None, None)

    @property
    def window(self) -> tuple[int, int]:
        """First and last cycle; `around` must have been resolved."""
        assert self.around is None
        return self.first or 0, OPEN if self.last is None else min(self.last, OPEN)

    def between(self, first: int, last: int) -> Waves:
        """The same waves for other cycles."""
        return replace(self, first=max(0, first), last=last, around=None)


def scopes_of(verilog: str) -> list[str]:
    """Names of the machine's parts in waves, outermost first: `gemm`, `gemm.array`, ..."""
    inside: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for line in verilog.splitlines():
        if found := _MODULE.match(line):
            current = inside.setdefault(found[1], [])
        elif found := _INSTANCE.match(line):
            current.append((found[1], found[2]))

    def below(module: str, name: str) -> Iterator[str]:
        for kind, instance in inside.get(module, ()):
            yield name + instance
            yield from below(kind, f"{name}{instance}.")

    return list(below("heald", ""))


def chosen(patterns: Sequence[str], scopes: Sequence[str]) -> list[str]:
    """The scopes that match names or patterns, without those inside another match.

    Raises `InputError` for a pattern without a match.
    """
    found: list[str] = []
    for pattern in patterns:
        fitting = [scope for scope in scopes if fnmatch.fnmatchcase(scope, pattern)]
        if not fitting:
            outer = ", ".join(scope for scope in scopes if "." not in scope)
            raise InputError(
                f"a scope of waves (--waves-scope) must be a part of the machine ({outer}), not {pattern!r}"
            )
        found += fitting
    every = set(found)
    return [scope for scope in dict.fromkeys(found) if not every.intersection(_above(scope))]


def _above(scope: str) -> Iterator[str]:
    while "." in scope:
        scope = scope.rpartition(".")[0]
        yield scope
