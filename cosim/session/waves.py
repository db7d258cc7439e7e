"""Records the waveforms of a run: chooses the window, and writes the accompanying files."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from cosim import wave_files
from cosim.session.operators import OperatorResult, Prediction
from cosim.waves import AFTER_DIVERGENCE, AROUND_OPERATOR, BEFORE_DIVERGENCE, BESIDE, DIVERGENCE, Waves
from hw.errors import InputError

#: The outcome of a run: a dataclass with `results`, `first_divergence`, `sim` and `waves` (`heald.run.Run`).
R = TypeVar("R", bound=Any)
#: Simulators whose waves have the scope `view`.
EXPLAINED = ("verilator", "cpp")
#: Makes a temporary path, which is renamed to the file if all went well.
Atomic = Callable[[Path], AbstractContextManager[Path]]


def recorded(
    waves: Waves | None,
    simulate: Callable[[Waves | None], R],
    predict: Callable[[], Prediction],
    atomic: Atomic,
    progress: Callable[[str], None],
) -> R:
    """Run, and write waves if any are wanted.

    Waves around the first divergence come from a second run; without a divergence there is no file. A save
    file for GTKWave (.gtkw) and a command file for Surfer (.sucl) are written beside the waves. Raises
    `InputError` for cycles and operators that the run does not have.
    """
    if waves is None:
        return simulate(None)
    if waves.around == DIVERGENCE:
        run = simulate(None)
        if run.first_divergence is None:
            progress(f"model and RTL agree: {waves.file} is not written")
            return run
        result, found = run.first_divergence
        cycle = result.observed.cycles if found.cycle is None else found.cycle
        waves = waves.between(cycle - BEFORE_DIVERGENCE, cycle + AFTER_DIVERGENCE)
    elif waves.windowed:
        waves = located(waves, predict())
    with atomic(waves.file.absolute()) as part:
        try:
            run = simulate(replace(waves, file=part))
        except InputError as error:
            raise InputError(str(error).replace(str(part), str(waves.file))) from None
        if waves.file.suffix == ".fst":
            wave_files.shrink(part)
    if waves.file.is_file() and run.sim in EXPLAINED:
        _beside(waves, run, atomic, progress)
    return replace(run, waves=waves.file)


def _beside(waves: Waves, run: Any, atomic: Atomic, progress: Callable[[str], None]) -> None:
    """Write the viewers' files."""
    path = waves.file.absolute()
    texts = dict(zip(BESIDE, (wave_files.gtkwave_save, wave_files.surfer_commands), strict=True))
    for ending, text in texts.items():
        if not wave_files.is_users(beside := path.with_suffix(ending)):
            with atomic(beside) as part:
                part.write_text(text(path, run.results[0].job), encoding="utf-8")
    size, names = path.stat().st_size / 1e6, " and ".join(waves.file.stem + ending for ending in texts)
    progress(f"{waves.file} has {size:.2f} MB of waves; {names} show them in GTKWave and Surfer")


def located(waves: Waves, prediction: Prediction) -> Waves:
    """The waves with first and last cycle set; raises `InputError` for what the run does not have."""
    if waves.around is None:
        if waves.first is not None and waves.first >= prediction.cycles:
            raise InputError(
                f"the first cycle of waves (--waves-from) must be below the run's {prediction.cycles:,}, "
                f"not {waves.first:,}"
            )
        return waves
    operators = [o for o in prediction.operators if isinstance(o, OperatorResult) and o.where == "machine"]
    found = [o for o in operators if waves.around in (o.name, *o.nodes)]
    if not found:
        names = [o.name for o in operators]
        close = difflib.get_close_matches(waves.around, names, cutoff=0.3) or names[:3]
        known = f"an operator on the machine ({', '.join(close)}) or " if names else ""
        raise InputError(f"--waves-around must be {known}{DIVERGENCE!r}, not {waves.around!r}")
    first, last = min(o.start for o in found), max(o.end for o in found)
    return waves.between(first - AROUND_OPERATOR, last + AROUND_OPERATOR)
