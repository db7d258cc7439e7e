"""A compiled model as a directory (docs/compile.md): written by `heald compile`, run by `heald run`.

The same model and machine give the same bytes, as nothing depends on time or place. `manifest.json` holds the
SHA-256 of every other file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import heald
from cosim.session.manifest import FORM, KIND, MACHINE, MANIFEST, Held, held, is_manifest
from cosim.session.network import CompiledModel, Step, checked_model
from cosim.session.program_files import parse, read_program, write_program
from cosim.session.program_form import check_steps
from heald.files import check_directory
from heald.sources import PROGRAM, GraphSource, from_files
from hw import processes
from hw.config import MachineConfig, to_toml
from hw.errors import InputError
from hw.package.text import filled
from sw.graph.host import HostOperator
from sw.graph.network import Network
from sw.graph.text import text
from sw.ir.program import Program

NETWORK = "network.txt"


def files(
    model: CompiledModel, source: GraphSource, bench: Mapping[str, bytes] | None = None
) -> dict[str, bytes]:
    """All files of the directory by path; those of a test bench are in `testbench`."""
    found = {f"testbench/{name}": data for name, data in (bench or {}).items()}
    found |= dict(source.files())
    found |= {NETWORK: (text(model.network) + "\n").encode(), MACHINE: to_toml(model.config).encode()}
    steps: list[dict[str, Any]] = []
    for step in model.steps:
        if isinstance(step, HostOperator):
            number = model.network.operators.index(step)
            where = "edge" if step.edge else "host"
            steps.append({"host": step.name, "op": step.op, "operator": number, "where": where})
        else:
            folder = f"program{sum('program' in s for s in steps)}"
            texts = {
                name: filled(name, "heald", program=step).encode() for name in ("memory.txt", "plan.txt")
            }
            made = write_program(step) | texts
            found |= {f"{folder}/{name}": data for name, data in made.items()}
            steps.append({"program": folder})
    return _sealed(
        found,
        model.network.name,
        model.config,
        allow_host=getattr(source, "allow_host", False),
        hosted=dict(getattr(source, "hosted", {})),
        inputs=[_typed(model.network, name) for name in model.network.inputs],
        outputs=[_typed(model.network, name) for name in model.network.outputs],
        steps=steps,
    )


def program_files(program: Program, config: MachineConfig) -> dict[str, bytes]:
    """The files of a tile program, which is compiled when it is loaded."""
    found = {PROGRAM: f"{program}\n".encode(), MACHINE: to_toml(config).encode()}
    return _sealed(found, program.name, config)


def _sealed(found: dict[str, bytes], model: str, config: MachineConfig, **more: Any) -> dict[str, bytes]:
    """The files, with a manifest that holds their hashes."""
    manifest = {
        "kind": KIND,
        "form": FORM,
        "versions": {"heald": heald.__version__},
        "model": model,
        "machine": {"name": config.name, "hash": config.hash},
        **more,
        "files": {name: hashlib.sha256(found[name]).hexdigest() for name in sorted(found)},
    }
    return found | {MANIFEST: (json.dumps(manifest, indent=2) + "\n").encode()}


def _typed(network: Network, name: str) -> dict[str, Any]:
    tensor = network.tensors[name]
    return {"name": name, "type": tensor.element, "shape": list(tensor.shape)}


def check_target(directory: Path) -> None:
    """Raise `InputError` unless the directory can be created, or replaces one written here."""
    if directory.is_dir():
        try:
            ours = is_manifest(directory) or not any(directory.iterdir())
        except OSError:
            ours = False
        if not ours:
            kept = "it holds other files than those of heald compile, so it is not overwritten"
            raise InputError(f"{directory}: {kept}: name one inside it, such as {directory / 'compiled'}")
    if not (parent := directory.absolute().parent).is_dir():
        raise InputError(f"{directory}: directory {parent} does not exist: make it first, or name another")
    check_directory(directory)


def write(contents: Mapping[str, bytes], directory: Path) -> dict[str, int]:
    """Write the files to a temporary directory beside the target, and rename it.

    Returns their sizes. Raises `InputError` if something else is there, and for what cannot be written.
    """
    check_target(directory)
    target = Path(os.path.realpath(directory))
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{target.name[:200]}-", dir=target.parent, ignore_cleanup_errors=True
        ) as name:
            part = Path(name)
            _fill(part / "new", contents)
            with processes.held():
                if target.exists():
                    target.rename(part / "old")
                try:
                    (part / "new").rename(target)
                except OSError:
                    if (part / "old").exists():
                        (part / "old").rename(target)
                    raise
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror or error}") from None
    return {name: len(data) for name, data in contents.items()}


def _fill(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def load(directory: Path) -> tuple[MachineConfig, Program | tuple[CompiledModel, GraphSource]]:
    """The machine that a directory was compiled for, and its contents: a tile program or a compiled model.

    A model's programs and images come from the files, the host's operators from the source. Warps are checked
    and configurations decoded again. Raises `InputError` if a file was changed, and if this version reads the
    model as another network than the compiler did.
    """
    found = held(directory)
    config = found.machine()
    if "steps" not in found.fields:
        return config, parse(found.needs(PROGRAM), directory / PROGRAM)
    try:
        whole = {name: data for name, data in found.files.items() if "/" not in name}
        source = from_files(whole, allow_host=found.fields["allow_host"], hosted=found.fields["hosted"])
        network = source.network()
    except InputError as error:
        raise InputError(f"{directory}: {error}") from None
    if f"{text(network)}\n".encode() != found.needs(NETWORK):
        made = found.fields["versions"]["heald"]
        raise InputError(
            f"{directory / NETWORK}: this version ({heald.__version__}) reads the model as another "
            f"network than the one that compiled it ({made}): compile it again"
        )
    for key, names in (("inputs", network.inputs), ("outputs", network.outputs)):
        if found.fields[key] != [_typed(network, name) for name in names]:
            raise InputError(f"{found.place}: {key} must be those of the model")
    steps = list[Step](_steps(found, network, config))
    try:
        check_steps(steps, network)
    except InputError as error:
        raise InputError(f"{found.place}: steps: {error}") from None
    return config, (checked_model(network, config, steps, {}), source)


def _steps(found: Held, network: Network, config: MachineConfig) -> Iterator[Step]:
    for step in found.fields["steps"]:
        if "program" in step:
            name = step["program"]
            yield read_program(found.directory / name, found.folder(name), config)
            continue
        number = step["operator"]
        operator = network.operators[number] if 0 <= number < len(network.operators) else None
        if not isinstance(operator, HostOperator) or operator.name != step["host"]:
            raise InputError(f"{found.place}: step {step['host']!r} must be an operator of the host")
        yield operator
