"""Reads and writes a model's program as files: words, memory, operators, bitstreams (docs/compile.md)."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cosim.session import program_form
from cosim.session.machine_program import KernelFacts, MachineProgram, OperatorFacts, decoded
from cosim.session.program_form import check_form, check_program
from hw.assembly import assemble, listing
from hw.config import MachineConfig
from hw.errors import InputError
from hw.fabric.bitstream import ArrayEntry
from sw.cgra.bounds import MII
from sw.cgra.draw import to_svg
from sw.compile.memory import Allocation, Kind
from sw.dfg.json import format_graph, parse_graph
from sw.graph.network import Tensor, View
from sw.ir.check import check
from sw.ir.parse import parse_program
from sw.ir.program import Program

SOURCE, SYNCHRONISED = "sequential.py", "synchronised.py"
MEMORY, PLAN, CONSTANTS = "memory.json", "plan.json", "constants.bin"


def write_program(program: MachineProgram) -> dict[str, bytes]:
    """The files of a compiled program, by name."""
    compiled = program.compiled
    assert compiled is not None
    images = [np.ascontiguousarray(data, np.uint8).tobytes() for _, data in program.constants]
    found = {
        SOURCE: str(program.source),
        SYNCHRONISED: str(compiled.synchronised),
        MEMORY: _json(_memory(program)),
        PLAN: _json(_plan(program)),
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


def read_program(folder: Path, files: Mapping[str, bytes], config: MachineConfig) -> MachineProgram:
    """Read a program from the bytes of its files, by their names in `folder` (for messages).

    Configurations are decoded again. Raises `InputError` for files that do not fit together.
    """
    held = _Files(folder, files)
    memory, plan = (parse_json_file(held[name], folder / name) for name in (MEMORY, PLAN))
    check_form(memory, program_form.MEMORY, f"{folder / MEMORY}: it")
    check_form(plan, program_form.PLAN, f"{folder / PLAN}: it")
    try:
        program = _program(held, memory, plan, config)
        check_program(program)
        return program
    except InputError as error:
        raise error if str(folder) in str(error) else InputError(f"{folder}: {error}") from None
    except (AttributeError, KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
        # If both a file and its hash were changed, anything may be missing.
        what = f"{type(error).__name__}: {error}"
        raise InputError(
            f"{folder / PLAN} and {MEMORY}: must hold what was compiled, not this ({what})"
        ) from None


class _Files(dict[str, bytes]):
    """Bytes of files by name; a missing file is an `InputError`."""

    def __init__(self, folder: Path, files: Mapping[str, bytes]):
        super().__init__(files)
        self.folder = folder

    def __missing__(self, name: str) -> bytes:
        raise InputError(f"{self.folder / str(name)}: must be in the manifest")

    def text(self, name: str) -> str:
        """A file as text."""
        return decoded_text(self[name], self.folder / name)

    def words(self, name: str) -> list[int]:
        """A file as 32-bit words."""
        if len(self[name]) % 4:
            raise InputError(f"{self.folder / name}: must hold words of 4 bytes, not {len(self[name])} bytes")
        return [int(word) for word in np.frombuffer(self[name], "<u4")]


def _program(files: _Files, memory: Any, plan: Any, config: MachineConfig) -> MachineProgram:
    """Build the program from the contents of its files; `memory` and `plan` are parsed already."""
    folder = files.folder
    programs = {int(w): files.words(f"warp{w}.bin") for w in plan["warps"]}
    for warp, words in programs.items():
        place = folder / f"warp{warp}.s"
        if assemble(files.text(place.name), str(place)) != words:
            raise InputError(f"{place}: must be the text of warp{warp}.bin")
    kernels = tuple(_kernel(files, entry, config) for entry in plan["kernels"])
    data = np.frombuffer(files[CONSTANTS], np.uint8)
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
        parse(files[SOURCE], folder / SOURCE),
    )


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


def _kernel_entry(kernel: KernelFacts, program: MachineProgram) -> dict[str, Any]:
    image = np.array(kernel.words, "<u4").view(np.uint8)
    return kernel.as_dict() | {
        "addresses": [a for a, data in program.constants if np.array_equal(data, image)],
        "arrays": {n: [a.space, a.element, a.base, a.length] for n, a in kernel.arrays.items()},
        "scalars": kernel.scalars,
        "places": kernel.places,
    }


def _kernel(files: _Files, entry: Mapping[str, Any], config: MachineConfig) -> KernelFacts:
    name = entry["name"]
    words = files.words(f"{name}.bin")
    graph = parse_graph(files.text(f"{name}.json"), str(files.folder / f"{name}.json"))
    arrays = {n: ArrayEntry(*numbers) for n, numbers in entry["arrays"].items()}
    scalars = tuple(entry["scalars"])
    return KernelFacts(
        name,
        files.text(f"{name}.py"),
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


def read_json(path: Path) -> Any:
    """Read a JSON file; raises `InputError`."""
    try:
        return parse_json_file(path.read_bytes(), path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def parse_json_file(data: bytes, path: Path) -> Any:
    """Parse the bytes of a JSON file; raises `InputError` with its path."""
    try:
        return json.loads(data)
    except RecursionError:
        raise InputError(f"{path}: must be JSON, not nested so deep") from None
    except ValueError as error:
        raise InputError(f"{path}: must be JSON: {error}") from None


def decoded_text(data: bytes, path: Path) -> str:
    """Decode a file's UTF-8 text; raises `InputError` with its path."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: must be text in UTF-8: {error}") from None


def parse(data: bytes, path: Path) -> Program:
    """Parse a file as a tile program; raises `InputError`."""
    program = parse_program(decoded_text(data, path), str(path))
    check(program)
    return program
