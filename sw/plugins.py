"""Operators in a user's own file, which registers them as the modules of `sw.operators` do."""

from __future__ import annotations

import sys
import traceback
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from hw.errors import InputError
from sw.ir.load import read_text

#: The files that were executed in this process, with their texts.
LOADED: dict[Path, str] = {}


def load_plugin(path: Path) -> None:
    """Execute a Python file once in this process.

    Raises `InputError`, with file and line, for a file that cannot be read or executed.
    """
    file = path.resolve()
    if file in LOADED:
        return
    text, name = read_text(path, str(path)), f"heald_plugin_{path.stem}"
    spec = spec_from_file_location(name, file, loader=SourceFileLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    # Classes of the module are looked up by its name.
    sys.modules[name] = module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line, what = error.lineno, error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((f.lineno for f in reversed(frames) if f.filename == str(file)), 1)
            what = str(error)
        raise InputError(f"{path}:{line}: {type(error).__name__}: {what}") from None
    LOADED[file] = text
