"""The files of `heald run`: inputs, outputs, waves, trace, report."""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cosim.waves import BESIDE
from heald.files import atomic, check_writable, is_special
from hw.errors import InputError

if TYPE_CHECKING:
    from heald.run import Run
    from heald.sources import OnnxSource

#: Start of a message that already names a file.
_FILE = re.compile(r"[^\s:]+\.(npz|onnx|json|txt|toml|py): ")


@dataclass(frozen=True)
class Files:
    """The files that a run reads and writes, as far as the user named them."""

    inputs: Path | None
    outputs: Path | None
    waves: Path | None
    trace: Path | None
    report: Path | None

    def check(self) -> None:
        """Raise `InputError` for files that cannot be written, before any work is done."""
        taken: dict[Path, str] = {}
        given = [(name, getattr(self, name)) for name in ("outputs", "waves", "trace", "report", "inputs")]
        if self.waves is not None and not is_special(self.waves):
            given += [("waves", self.waves.with_suffix(ending)) for ending in BESIDE]
        for name, path in given:
            if path is None:
                continue
            if name != "inputs":
                check_writable(path)
            if is_special(path):
                continue
            other = taken.setdefault(path.resolve(), name)
            if other != name:
                raise InputError(f"--{other} and --{name} must be different files, not both {path}")


@contextlib.contextmanager
def about(path: Path | None) -> Iterator[None]:
    """Prefix errors with the file they are about, unless they name one, and adapt option names."""
    try:
        yield
    except InputError as error:
        text = re.sub(r"\b(waves|refine) (must|goes)", r"--\1 \2", str(error))
        named = path is None or _FILE.match(text) or text.startswith(str(path)) or text.startswith("--")
        raise InputError(text if named else f"{path}: {text}") from None


def read_inputs(path: Path, source: OnnxSource | None = None) -> dict[str, np.ndarray]:
    """Read arrays by name from an .npz file, for a model. Raises `InputError`."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: must be an .npz file, not a directory")
    if not path.is_file() or not zipfile.is_zipfile(path):
        raise InputError(f"{path}: not a readable .npz file: it must be a ZIP archive of arrays")
    found = {}
    name = ""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for name in arrays.files:
                found[name] = arrays[name]
    except Exception as error:
        # Broken files raise many types of errors; for Python objects, NumPy suggests to allow pickles.
        why = f"array {name!r} must hold numbers" if "pickle" in str(error) else str(error)
        raise InputError(f"{path}: not a readable .npz file: {why}") from None
    with about(path):
        if source is not None:
            source.check(found)
    return found


def write_outputs(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name as an .npz file."""
    with atomic(path) as part, part.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def write(run: Run, files: Files) -> None:
    """Write the requested files."""
    if files.outputs is not None:
        write_outputs(files.outputs, run.outputs)
    if files.trace is not None:
        run.trace(files.trace)
    if files.report is not None:
        run.report(files.report)
