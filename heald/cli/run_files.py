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

#: How a message starts that names a file already.
_FILE = re.compile(r"[^\s:]+\.(npz|onnx|json|txt|toml|py): ")


@dataclass(frozen=True)
class Files:
    """Where a run reads from and writes to, as far as the user asked."""

    inputs: Path | None
    outputs: Path | None
    waves: Path | None
    trace: Path | None
    report: Path | None

    def check(self) -> None:
        """Raise `InputError` where something cannot be written, before work is done for it."""
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
    """Errors with the file that they are about, unless they name one, and options as they are called here."""
    try:
        yield
    except InputError as error:
        text = re.sub(r"\b(waves|refine) (must|goes)", r"--\1 \2", str(error))
        named = path is None or _FILE.match(text) or text.startswith(str(path)) or text.startswith("--")
        raise InputError(text if named else f"{path}: {text}") from None


def read_inputs(path: Path, source: OnnxSource | None = None) -> dict[str, np.ndarray]:
    """Arrays by name out of an .npz file, which a model takes. Raises `InputError`."""
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
        # Broken files raise errors of many unrelated types; of Python objects NumPy says to trust them.
        why = f"array {name!r} must hold numbers" if "pickle" in str(error) else str(error)
        raise InputError(f"{path}: not a readable .npz file: {why}") from None
    with about(path):
        if source is not None:
            source.check(found)
    return found


def write_outputs(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Arrays by name as an .npz file."""
    with atomic(path) as part, part.open("wb") as out:
        np.savez(out, **arrays)  # type: ignore[arg-type]


def write(run: Run, files: Files) -> None:
    """Write what was asked for."""
    if files.outputs is not None:
        write_outputs(files.outputs, run.outputs)
    if files.trace is not None:
        run.trace(files.trace)
    if files.report is not None:
        run.report(files.report)
