"""A compiled model as a directory (docs/compile.md): written by `heald compile`, run by `heald run`.

The same model and machine give the same bytes: nothing in it tells of time or place. `manifest.json` holds
the SHA-256 of every other file.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import heald
from cosim.session.machine_program import KernelFacts, MachineProgram, OperatorFacts, decoded
from cosim.session.network import CompiledModel, Step, checked_model
from heald.report.text import filled
from heald.sources import PROGRAM, GraphSource, from_files
from hw.assembly import assemble, listing
from hw.config import MachineConfig, to_toml
from hw.config import load as load_machine
from hw.errors import InputError
from hw.fabric.bitstream import ArrayEntry
from sw.cgra.bounds import MII
from sw.cgra.draw import to_svg
from sw.compile.memory import Allocation, Kind
from sw.dfg.json import format_graph, parse_graph
from sw.graph.host import HostOperator
from sw.graph.network import Network, Tensor, View
from sw.graph.text import text
from sw.ir.load import load_program
from sw.ir.program import Program

MANIFEST, NETWORK, MACHINE = "manifest.json", "network.txt", "machine.toml"
#: What a manifest says that it is, and the number of its form.
KIND, FORM = "heald model", 2


def files(model: CompiledModel, source: GraphSource) -> dict[str, bytes]:
    """All files of the directory by their paths in it."""
    found = source.files() | {
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
    return _sealed(
        found,
        model.network.name,
        model.config,
        allow_host=getattr(source, "allow_host", False),
        inputs=[_typed(model.network, name) for name in model.network.inputs],
        outputs=[_typed(model.network, name) for name in model.network.outputs],
        steps=steps,
    )


def program_files(program: Program, config: MachineConfig) -> dict[str, bytes]:
    """The files of a tile program, which is compiled when it is loaded."""
    found = {PROGRAM: f"{program}\n".encode(), MACHINE: to_toml(config).encode()}
    return _sealed(found, program.name, config)


def _sealed(found: dict[str, bytes], model: str, config: MachineConfig, **more: Any) -> dict[str, bytes]:
    """The files with the manifest that holds their hashes."""
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
    """Raise `InputError` unless a directory can be made there, or replaced because it is one of ours."""
    if directory.is_dir():
        try:
            ours = not any(directory.iterdir()) or bool(_manifest(directory))
        except (OSError, InputError):
            ours = False
        if not ours:
            raise InputError(f"{directory}: is no directory of heald compile, so it is not overwritten")
    elif directory.exists():
        raise InputError(f"{directory}: must be a directory, it is a file")
    if not directory.absolute().parent.is_dir():
        raise InputError(f"{directory}: directory {directory.absolute().parent} does not exist")


def write(contents: Mapping[str, bytes], directory: Path) -> dict[str, int]:
    """Write the files: beside the directory first, which then takes its name.

    Returns their sizes. Raises `InputError` where something else is there, and for what cannot be written.
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
    return {name: len(data) for name, data in contents.items()}


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


def program(directory: Path) -> Program | None:
    """The tile program that a directory holds, None where it holds a graph; raises `InputError`."""
    if PROGRAM not in verified(directory)["files"]:
        return None
    return load_program(directory / PROGRAM)


def _manifest(directory: Path) -> dict[str, Any]:
    place = directory / MANIFEST
    if not place.exists():
        raise InputError(f"{directory}: must be a directory of heald compile, it has no {MANIFEST}")
    manifest = read_json(place)
    if not isinstance(manifest, dict) or manifest.get("kind") != KIND:
        raise InputError(f"{place}: must be the manifest of a compiled model")
    return manifest


def verified(directory: Path) -> dict[str, Any]:
    """The manifest, once every file has its hash; raises `InputError` with the file that differs."""
    place, manifest = directory / MANIFEST, _manifest(directory)
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


def load(directory: Path) -> tuple[CompiledModel, GraphSource]:
    """The model as it was compiled: programs and images from the files, the host's operators from the source.

    Warps are checked and configurations decoded again. Raises `InputError` for a file that was changed, and
    where this version reads the model as another network than the one that compiled it.
    """
    manifest = verified(directory)
    config = load_machine(str(directory / MACHINE))
    try:
        held = {name: (directory / name).read_bytes() for name in manifest["files"] if "/" not in name}
        source = from_files(held, allow_host=bool(manifest["allow_host"]))
        network = source.network()
    except InputError as error:
        raise InputError(f"{directory}: {error}") from None
    if text(network) + "\n" != (directory / NETWORK).read_text(encoding="utf-8"):
        made = manifest["versions"]["heald"]
        raise InputError(
            f"{directory / NETWORK}: this version ({heald.__version__}) reads the model as another "
            f"network than the one that compiled it ({made}): compile it again"
        )
    steps = list[Step](_steps(directory, manifest, network, config))
    return checked_model(network, config, steps, {}), source


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


SOURCE, SYNCHRONISED = "sequential.py", "synchronised.py"
MEMORY, PLAN, CONSTANTS = "memory.json", "plan.json", "constants.bin"


def write_program(program: MachineProgram) -> dict[str, bytes]:
    """The files of a program that the compiler made, by name."""
    compiled = program.compiled
    assert compiled is not None
    images = [np.ascontiguousarray(data, np.uint8).tobytes() for _, data in program.constants]
    found = {
        SOURCE: str(program.source),
        SYNCHRONISED: str(compiled.synchronised),
        MEMORY: _json(_memory(program)),
        "memory.txt": filled("memory.txt", program=program),
        PLAN: _json(_plan(program)),
        "plan.txt": filled("plan.txt", program=program),
    }
    files = {name: text.encode() for name, text in found.items()} | {CONSTANTS: b"".join(images)}
    for warp, words in sorted(program.programs.items()):
        files[f"warp{warp}.s"] = listing(words).encode()
        files[f"warp{warp}.bin"] = np.array(words, "<u4").tobytes()
    for kernel in program.kernels:
        files[f"{kernel.name}.py"] = (kernel.text.rstrip() + "\n").encode()
        files[f"{kernel.name}.bin"] = np.array(kernel.words, "<u4").tobytes()
        files[f"{kernel.name}.json"] = (format_graph(kernel.graph).rstrip() + "\n").encode()
        if kernel.configured is not None:
            files[f"{kernel.name}.svg"] = to_svg(kernel.configured.mapping).encode()
    return files


def read_program(folder: Path, listed: set[str], config: MachineConfig) -> MachineProgram:
    """A program from its files, of which those in `listed` have the hashes of the manifest.

    Configurations are decoded again. Raises `InputError` for files that do not fit each other.
    """
    memory, plan = (read_json(folder / name) for name in (MEMORY, PLAN))
    try:
        return _program(folder, memory, plan, listed, config)
    except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        # Whoever changes a file and its hash may leave out anything.
        what = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{folder / PLAN} and {MEMORY}: must hold what was compiled, not this ({what})"
        ) from None


def read_json(path: Path) -> Any:
    """What a JSON file holds; raises `InputError`."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: must be JSON: {error}") from None


def _program(folder: Path, memory: Any, plan: Any, listed: set[str], config: MachineConfig) -> MachineProgram:
    """The program of what two files say."""
    programs = {int(w): _words(folder / f"warp{w}.bin", listed) for w in plan["warps"]}
    for warp, words in programs.items():
        place = folder / f"warp{warp}.s"
        if assemble(place.read_text(encoding="utf-8"), str(place)) != words:
            raise InputError(f"{place}: must be the text of warp{warp}.bin")
    kernels = tuple(_kernel(folder, entry, listed, config) for entry in plan["kernels"])
    data = np.frombuffer((folder / CONSTANTS).read_bytes(), np.uint8)
    constants, at = [], 0
    for address, size in memory["constants"]:
        constants.append((address, data[at : at + size]))
        at += size
    if at != len(data):
        raise InputError(f"{folder / CONSTANTS}: must hold {at} bytes, not {len(data)}")
    lying = {address: image.tobytes() for address, image in constants}
    for kernel, entry in zip(kernels, plan["kernels"], strict=True):
        image = np.array(kernel.words, "<u4").tobytes()
        addresses = entry["addresses"]
        if not addresses or any(lying.get(address) != image for address in addresses):
            raise InputError(
                f"{folder / CONSTANTS}: must hold {kernel.name}.bin where its launches load it from"
            )
    return MachineProgram(
        config,
        tuple(_operator(entry) for entry in plan["operators"]),
        kernels,
        {entry["name"]: _home(entry) for entry in memory["tensors"]},
        tuple(tuple(w) for w in memory["windows"]),
        tuple(constants),
        programs,
        {(warp, pc): number for warp, pc, number in plan["operator_of"]},
        load_program(folder / SOURCE),
    )


def _words(path: Path, listed: set[str]) -> list[int]:
    if path.name not in listed:
        raise InputError(f"{path}: must be in the manifest")
    return [int(word) for word in np.frombuffer(path.read_bytes(), "<u4")]


# Memory


def _memory(program: MachineProgram) -> dict[str, Any]:
    return {
        "windows": [list(w) for w in program.windows],
        "constants": [[address, len(data)] for address, data in program.constants],
        "tensors": [
            {
                "name": name,
                "kind": home.kind.value,
                "element": home.tensor.element,
                "shape": list(home.tensor.shape),
                **{key: getattr(home, key) for key in ("address", "row", "pitch", "size", "first", "last")},
            }
            for name, home in program.homes.items()
        ],
    }


def _home(entry: Mapping[str, Any]) -> Allocation:
    tensor = Tensor(entry["name"], tuple(entry["shape"]), entry["element"])
    place = (entry["address"], entry["pitch"], entry["first"], entry["last"], entry["row"])
    return Allocation.of(tensor, Kind(entry["kind"]), *place)


# Plan


def _plan(program: MachineProgram) -> dict[str, Any]:
    owners = sorted(program.operator_of.items())
    return {
        "operators": [_operator_entry(o) for o in program.operators],
        "kernels": [_kernel_entry(k, program) for k in program.kernels],
        "warps": sorted(program.programs),
        "operator_of": [[warp, pc, number] for (warp, pc), number in owners],
    }


def _operator_entry(o: OperatorFacts) -> dict[str, Any]:
    view = o.output
    return dataclasses.asdict(o) | {"output": [view.tensor, view.shape, view.strides, view.offset]}


def _operator(entry: Mapping[str, Any]) -> OperatorFacts:
    tensor, shape, strides, offset = entry["output"]
    sequences = {key: tuple(entry[key]) for key in ("nodes", "kernels")}
    loops = tuple((name, count) for name, count in entry["loops"])
    output = View(tensor, tuple(shape), tuple(strides), offset)
    return OperatorFacts(**{**entry, **sequences, "loops": loops, "output": output})


# Configurations


def _kernel_entry(kernel: KernelFacts, program: MachineProgram) -> dict[str, Any]:
    image = np.array(kernel.words, "<u4").view(np.uint8)
    return kernel.as_dict() | {
        "addresses": [a for a, data in program.constants if np.array_equal(data, image)],
        "arrays": {n: [a.space, a.element, a.base, a.length] for n, a in kernel.arrays.items()},
        "scalars": kernel.scalars,
        "places": kernel.places,
    }


def _kernel(folder: Path, entry: Mapping[str, Any], listed: set[str], config: MachineConfig) -> KernelFacts:
    name = entry["name"]
    words = _words(folder / f"{name}.bin", listed)
    place = folder / f"{name}.json"
    graph = parse_graph(place.read_text(encoding="utf-8"), str(place))
    arrays = {n: ArrayEntry(*numbers) for n, numbers in entry["arrays"].items()}
    scalars = tuple(entry["scalars"])
    return KernelFacts(
        name,
        (folder / f"{name}.py").read_text(encoding="utf-8"),
        tuple(words),
        graph,
        arrays,
        scalars,
        entry["ii"],
        MII(entry["res_mii"], entry["rec_mii"], entry["why"]),
        entry["depth"],
        entry["proved_minimal"],
        decoded(graph, words, arrays, scalars, entry["places"], config),
        tuple((pe, step) for pe, step in entry["places"]),
    )


def _json(value: Any) -> str:
    return json.dumps(value, indent=1) + "\n"
