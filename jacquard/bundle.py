"""A compiled model as a directory (docs/compile.md): written by `jacquard compile`, run by `jacquard run`.

The same model and machine give the same bytes: nothing in it tells of time or place. `manifest.json` holds
the SHA-256 of every other file.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jacquard
from hw.config import MachineConfig, to_toml
from hw.config import load as load_machine
from hw.errors import InputError
from jacquard.bundle_program import read_program, write_program
from jacquard.network_run import CompiledModel, Step, checked_model
from sw.graph.host import HostOperator
from sw.graph.network import Network
from sw.graph.text import text

MANIFEST, MODEL, NETWORK, MACHINE = "manifest.json", "model.onnx", "network.txt", "machine.toml"
#: What a manifest says that it is, and the number of its form.
KIND, FORM = "jacquard model", 1


def files(model: CompiledModel, source: bytes, allow_host: bool) -> dict[str, bytes]:
    """All files of the directory by their paths in it; `source` is the ONNX model."""
    found: dict[str, bytes] = {
        MODEL: source,
        NETWORK: (text(model.network) + "\n").encode(),
        MACHINE: to_toml(model.config).encode(),
    }
    steps: list[dict[str, Any]] = []
    for step in model.steps:
        if isinstance(step, HostOperator):
            number = model.network.operators.index(step)
            where = "edge" if step.edge else "host"
            steps.append({"host": step.name, "op": step.op, "operator": number, "where": where})
        else:
            folder = f"program{sum('program' in s for s in steps)}"
            found |= {f"{folder}/{name}": data for name, data in write_program(step).items()}
            steps.append({"program": folder})
    manifest = {
        "kind": KIND,
        "form": FORM,
        "versions": {"jacquard": jacquard.__version__},
        "model": model.network.name,
        "allow_host": allow_host,
        "machine": {"name": model.config.name, "hash": model.config.hash},
        "inputs": [_typed(model.network, name) for name in model.network.inputs],
        "outputs": [_typed(model.network, name) for name in model.network.outputs],
        "steps": steps,
        "files": {name: hashlib.sha256(found[name]).hexdigest() for name in sorted(found)},
    }
    found[MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
    return found


def _typed(network: Network, name: str) -> dict[str, Any]:
    tensor = network.tensors[name]
    return {"name": name, "type": tensor.element, "shape": list(tensor.shape)}


def check_target(directory: Path) -> None:
    """Raise `InputError` unless a directory can be made there, or replaced because it is one of ours."""
    if directory.is_dir():
        if any(directory.iterdir()) and _kind(directory) != KIND:
            raise InputError(f"{directory}: is no directory of jacquard compile, so it is not overwritten")
    elif directory.exists():
        raise InputError(f"{directory}: must be a directory, it is a file")
    if not directory.absolute().parent.is_dir():
        raise InputError(f"{directory}: directory {directory.absolute().parent} does not exist")


def _kind(directory: Path) -> object:
    try:
        found = json.loads((directory / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found.get("kind") if isinstance(found, dict) else None


def write(contents: Mapping[str, bytes], directory: Path) -> None:
    """Write the files: beside the directory first, which then takes its name.

    Raises `InputError` where something else is there, and for what cannot be written.
    """
    check_target(directory)
    target = directory.absolute()
    try:
        part = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        try:
            _fill(part / "new", contents)
            if target.exists():
                target.rename(part / "old")
            (part / "new").rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{directory}: cannot be written: {error.strerror or error}") from None


def _fill(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.mkdir()
    for name, data in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def machine(directory: Path) -> MachineConfig:
    """The machine that a directory was compiled for, after all files were compared with the manifest."""
    verified(directory)
    return load_machine(str(directory / MACHINE))


def verified(directory: Path) -> dict[str, Any]:
    """The manifest, once every file has its hash; raises `InputError` with the file that differs."""
    place = directory / MANIFEST
    try:
        manifest = json.loads(place.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"{directory}: must be a directory of jacquard compile, it has no {MANIFEST}"
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{place}: cannot be read: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise InputError(f"{place}: must be the manifest of a compiled model")
    if manifest.get("form") != FORM:
        raise InputError(
            f"{place}: form must be {FORM}, not {manifest.get('form')!r}: compile the model again"
        )
    for name, digest in manifest["files"].items():
        try:
            data = (directory / name).read_bytes()
        except OSError as error:
            raise InputError(f"{directory / name}: cannot be read: {error.strerror}") from None
        if hashlib.sha256(data).hexdigest() != digest:
            raise InputError(
                f"{directory / name}: is not what was compiled, its SHA-256 differs from the manifest's"
            )
    return manifest


def load(directory: Path) -> CompiledModel:
    """The model as it was compiled: programs and images from the files, the host's operators from the model.

    Warps are checked and configurations decoded again. Raises `InputError` for a file that was changed, and
    where this version reads the model as another network than the one that compiled it.
    """
    from sw.frontend.network import import_model

    manifest = verified(directory)
    config = load_machine(str(directory / MACHINE))
    network = import_model(directory / MODEL, allow_host=bool(manifest["allow_host"]))
    if text(network) + "\n" != (directory / NETWORK).read_text(encoding="utf-8"):
        made = manifest["versions"]["jacquard"]
        raise InputError(
            f"{directory / NETWORK}: this version ({jacquard.__version__}) reads the model as another "
            f"network than the one that compiled it ({made}): compile it again"
        )
    steps = list[Step](_steps(directory, manifest, network, config))
    return checked_model(network, config, steps, {})


def _steps(
    directory: Path, manifest: Mapping[str, Any], network: Network, config: MachineConfig
) -> Iterator[Step]:
    for step in manifest["steps"]:
        if "program" in step:
            folder = directory / step["program"]
            listed = {Path(n).name for n in manifest["files"] if Path(n).parent.name == folder.name}
            yield read_program(folder, listed, config)
            continue
        operator = network.operators[step["operator"]]
        if not isinstance(operator, HostOperator):
            raise InputError(f"{directory / MANIFEST}: step {step['host']!r} must be an operator of the host")
        yield operator


def source_bytes(path: Path) -> bytes:
    """A model file as it stands, or with its external data inside; raises `InputError` for too much."""
    import onnx

    proto = onnx.load(str(path), load_external_data=False)
    if not any(onnx.external_data_helper.uses_external_data(t) for t in proto.graph.initializer):
        return path.read_bytes()
    whole = onnx.load(str(path))
    for tensor in whole.graph.initializer:
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
    try:
        found: bytes = whole.SerializeToString(deterministic=True)
    except ValueError as error:
        raise InputError(f"{path}: its constants do not fit one file: {error}") from None
    return found
