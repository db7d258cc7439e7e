"""The manifest of a compiled directory (docs/compile.md), and the checked files that it lists.

The contents of a directory are not trusted, as they may come from anywhere. Only regular files inside it that
the manifest lists are read, and each only once.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from cosim.session.program_files import decoded_text, parse_json_file
from hw import toml_text
from hw.config import NO_GRID, MachineConfig
from hw.config import load as load_machine
from hw.errors import InputError

MANIFEST, MACHINE = "manifest.json", "machine.toml"
#: The kind that a manifest must state, and the version of its format.
KIND, FORM = "heald model", 3


@dataclass(frozen=True)
class Held:
    """A directory whose files match the hashes in its manifest; `fields` are the manifest's fields."""

    directory: Path
    fields: Mapping[str, Any]
    files: Mapping[str, bytes]

    @property
    def place(self) -> Path:
        """Path of the manifest, for messages."""
        return self.directory / MANIFEST

    def folder(self, name: str) -> dict[str, bytes]:
        """The files in a folder, by their names in it."""
        inside = {PurePosixPath(path): data for path, data in self.files.items()}
        return {path.name: data for path, data in inside.items() if path.parent == PurePosixPath(name)}

    def machine(self) -> MachineConfig:
        """The machine that the directory was compiled for; raises `InputError`."""
        path = self.directory / MACHINE
        text = decoded_text(self.needs(MACHINE), path)
        grid = toml_text.parsed(text, str(path)).get("cgra")
        if isinstance(grid, str) and grid != NO_GRID:
            raise InputError(f"{path}: cgra must be described here, not in {grid!r}")
        config, told = load_machine(str(path), text=text), self.fields["machine"]
        if told != {"name": config.name, "hash": config.hash}:
            raise InputError(
                f"{path}: must be machine {told['name']!r} ({told['hash']}) that the "
                f"manifest names, not {config.name!r} ({config.hash})"
            )
        return config

    def needs(self, name: str) -> bytes:
        """The bytes of a file; raises `InputError` if the manifest does not list it."""
        if name not in self.files:
            raise InputError(f"{self.place}: files must list {name}")
        return self.files[name]


def is_manifest(directory: Path) -> bool:
    """Whether a directory has a manifest of this project, whatever else is wrong with it."""
    try:
        return bool(_read(directory))
    except (OSError, InputError):
        return False


def held(directory: Path) -> Held:
    """Read a compiled directory and check every file's hash; raises `InputError` for the first problem."""
    place, fields = directory / MANIFEST, _read(directory)
    if fields.get("form") != FORM:
        found = fields.get("form")
        raise InputError(f"{place}: form must be {FORM}, not {found!r}: compile the model again")
    for key, (fits, wanted) in {**_FIELDS, **(_OF_MODELS if "steps" in fields else {})}.items():
        if key not in fields or not fits(fields[key]):
            what = repr(fields[key]) if key in fields else "missing"
            raise InputError(f"{place}: {key} must be {wanted}, not {what}")
    files = {}
    for name, digest in fields["files"].items():
        files[name] = _bytes(directory, name)
        if hashlib.sha256(files[name]).hexdigest() != digest:
            raise InputError(f"{directory / name}: was changed: its SHA-256 differs from the manifest's")
    return Held(directory, fields, files)


def _read(directory: Path) -> dict[str, Any]:
    if not os.path.lexists(directory / MANIFEST):
        raise InputError(f"{directory}: must be a directory of heald compile, it has no {MANIFEST}")
    place = directory / MANIFEST
    fields = parse_json_file(_bytes(directory, MANIFEST), place)
    if not isinstance(fields, dict) or fields.get("kind") != KIND:
        raise InputError(f"{place}: must be the manifest of a compiled model")
    return fields


def _bytes(directory: Path, name: str) -> bytes:
    """The contents of a regular file inside the directory; nothing else is opened."""
    path = directory / name
    try:
        real = Path(os.path.realpath(path))
        if not real.is_relative_to(os.path.realpath(directory)):
            raise InputError(f"{path}: must lie in {directory}, not be {real}")
        if not stat.S_ISREG(real.stat().st_mode):
            raise InputError(f"{path}: must be a regular file")
        return real.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def _texts(value: Any, *keys: str) -> bool:
    """Whether a value is an object with texts under these keys."""
    return isinstance(value, dict) and all(isinstance(value.get(key), str) for key in keys)


def _is_name(text: str) -> bool:
    """Whether a text names a file in a directory or in a folder of it."""
    path = PurePosixPath(text)
    plain = text == str(path) and not path.is_absolute() and ".." not in path.parts and text != "."
    return plain and text.isprintable() and len(path.parts) <= 2


def _is_files(value: Any) -> bool:
    return isinstance(value, dict) and all(
        _is_name(name) and isinstance(digest, str) and re.fullmatch(r"[0-9a-f]{64}", digest)
        for name, digest in value.items()
    )


def _is_step(value: Any) -> bool:
    if _texts(value, "program"):
        return bool(re.fullmatch(r"program(0|[1-9][0-9]{0,5})", value["program"]))
    return _texts(value, "host", "op", "where") and type(value.get("operator")) is int


def _is_steps(value: Any) -> bool:
    if not isinstance(value, list) or not all(map(_is_step, value)):
        return False
    programs = [step["program"] for step in value if "program" in step]
    return len(set(programs)) == len(programs)


def _is_border(value: Any) -> bool:
    """Whether a value is a list of tensors with names, types and shapes."""
    return isinstance(value, list) and all(
        _texts(each, "name", "type")
        and isinstance(each.get("shape"), list)
        and all(type(size) is int for size in each["shape"])
        for each in value
    )


#: The fields of every manifest with their checks, and the fields of models.
_FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "versions": (lambda value: _texts(value, "heald"), "an object with heald"),
    "model": (lambda value: isinstance(value, str), "a text"),
    "machine": (lambda value: _texts(value, "name", "hash"), "an object with name and hash"),
    "files": (_is_files, "SHA-256 by names of files inside"),
}
_OF_MODELS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "hosted": (lambda value: isinstance(value, dict) and _texts(value, *value), "reasons by names of nodes"),
    "allow_host": (lambda value: isinstance(value, bool), "true or false"),
    "inputs": (_is_border, "a list of name, type and shape"),
    "outputs": (_is_border, "a list of name, type and shape"),
    "steps": (_is_steps, "a list of programs and operators of the host"),
}
