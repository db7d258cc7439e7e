"""`heald compile`: the same bytes each time, a directory that runs, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from cosim.session.manifest import held
from cosim.session.network import compile_model
from heald import __version__, bundle
from heald.sources import OnnxSource
from hw.assembly import assemble
from hw.config import load
from hw.errors import InputError
from sw.frontend.model import read_file
from sw.ir.load import load_program
from tests.caches import forget_configurations
from tests.heald.network_models import hosted, perceptron, save

RUN = ("--sim", "cpp", "--json")


def contents(directory: Path) -> dict[str, bytes]:
    """All files by path."""
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of a small model."""
    folder = tmp_path_factory.mktemp("compiled")
    path = save(folder, perceptron())
    source = OnnxSource(str(path), read_file(path))
    bundle.write(bundle.files(compile_model(source.network(), load("test")), source), folder / "out")
    return folder / "out"


def test_compiling_again_gives_the_same_bytes(
    heald: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = save(tmp_path, perceptron())
    told = []
    for name in ("one", "other"):
        # Nothing that an earlier compilation left behind may matter.
        monkeypatch.setenv("HEALD_CACHE", str(tmp_path / f"cache of {name}"))
        forget_configurations()
        ended = heald("compile", source, "--hw", "test", "-o", tmp_path / name, "--json")
        assert ended.code == 0, ended.err
        told.append(json.loads(ended.out))
    forget_configurations()
    one, other = (contents(tmp_path / name) for name in ("one", "other"))
    assert one == other
    assert set(told[0]["files"]) == set(one)
    assert told[0]["hw"] == load("test").hash


def test_the_directory_holds_what_its_manifest_says(made: Path) -> None:
    files = contents(made)
    manifest = json.loads(files.pop("manifest.json"))
    assert set(manifest["files"]) == set(files)
    assert manifest["inputs"] == [{"name": "x", "type": "float32", "shape": [5, 9]}]
    assert manifest["outputs"] == [{"name": "y", "type": "float32", "shape": [5, 9]}]
    assert manifest["versions"]["heald"] == __version__
    assert files["model.onnx"] == perceptron().SerializeToString()
    assert load(str(made / "machine.toml")) == load("test")
    for name in files:
        if name.endswith(".s"):
            words = np.frombuffer(files[name.replace(".s", ".bin")], "<u4")
            assert assemble(files[name].decode()) == words.tolist()
    assert load_program(made / "program0" / "sequential.py").body
    assert load_program(made / "program0" / "synchronised.py").body
    assert not any(str(made.parent).encode() in data for data in files.values())


def test_people_are_told_what_to_read(heald: Any, made: Path, tmp_path: Path) -> None:
    ended = heald("compile", made / "model.onnx", "--hw", "test", "-o", tmp_path / "out")
    assert ended.code == 0, ended.err
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    first, *others = ended.out.splitlines()
    assert first.startswith(f"{tmp_path / 'out'}: {len(files)} files, {size:,} bytes")
    assert [Path(line.split()[0]).name for line in others] == ["plan.txt", "memory.txt", "synchronised.py"]
    assert all(Path(line.split()[0]).is_file() for line in others)


def test_a_directory_runs_as_its_model_does(heald: Any, made: Path, tmp_path: Path) -> None:
    source = save(tmp_path, perceptron())
    compiled = heald("run", made, *RUN)
    assert compiled.code == 0, compiled.err
    assert "compiling" not in compiled.err
    model = heald("run", source, "--hw", "test", *RUN)
    one, other = (json.loads(ended.out) for ended in (compiled, model))
    for volatile in ("build_seconds", "sim_seconds", "cycles_per_second", "model_seconds", "compile_seconds"):
        del one[volatile], other[volatile]
    assert one == other


def test_the_host_has_its_place_in_a_directory(heald: Any, tmp_path: Path) -> None:
    source, out = save(tmp_path, hosted()), tmp_path / "out"
    assert heald("compile", source, "--hw", "test", "-o", out).code == 2
    assert heald("compile", source, "--hw", "test", "-o", out, "--allow-host").code == 0
    ended = heald("run", out, *RUN)
    assert ended.code == 0, ended.err
    assert "sine" in json.loads(ended.out)["host_operators"]


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """A copy of the directory that a test may change."""
    for name, data in contents(made).items():
        path = tmp_path / "copy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "copy"


@pytest.mark.parametrize(
    "name", ["model.onnx", "network.txt", "machine.toml", "program0/constants.bin", "program0/warp5.bin"]
)
def test_a_changed_file_is_named(heald: Any, copy: Path, name: str) -> None:
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 2] ^= 1
    (copy / name).write_bytes(data)
    ended = heald("run", copy, *RUN)
    assert (ended.code, ended.out) == (2, "")
    assert f"{copy / name}: was changed" in ended.err
    (copy / name).unlink()
    assert f"{copy / name}: cannot be read" in heald("run", copy, *RUN).err


def _signed(copy: Path, name: str, data: bytes) -> None:
    """A changed file whose hash is in the manifest."""
    import hashlib

    (copy / name).write_bytes(data)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def test_what_runs_is_what_the_files_hold(heald: Any, copy: Path) -> None:
    # Another constant gives another result, which the reference of the model does not have.
    memory = json.loads((copy / "program0" / "memory.json").read_text())
    first = next(t for t in memory["tensors"] if t["kind"] == "constant" and t["element"] == "int8")
    at, number = 0, [a for a, _ in memory["constants"]].index(first["address"])
    at = sum(size for _, size in memory["constants"][:number])
    data = bytearray((copy / "program0" / "constants.bin").read_bytes())
    data[at : at + first["size"]] = bytes(127 for _ in range(first["size"]))
    _signed(copy, "program0/constants.bin", bytes(data))
    ended = heald("run", copy, *RUN)
    assert ended.code == 1
    run = json.loads(ended.out)
    assert run["first_wrong"]["operator"] == run["operators"][1]["name"]
    assert run["first_divergence"] is None


def test_configurations_from_files_are_decoded_again(heald: Any, copy: Path) -> None:
    folder = copy / "program0"
    name = json.loads((folder / "plan.json").read_text())["kernels"][0]["name"]
    old = (folder / f"{name}.bin").read_bytes()
    changed = bytearray(old)
    changed[-3] ^= 2
    constants = (folder / "constants.bin").read_bytes()
    assert constants.count(old) == 1
    _signed(copy, f"program0/{name}.bin", bytes(changed))
    assert "where its launches load it from" in heald("run", copy, *RUN).err
    _signed(copy, "program0/constants.bin", constants.replace(old, bytes(changed)))
    _, found = bundle.load(copy)
    assert isinstance(found, tuple)
    model = found[0]
    assert model.programs[0].kernels[0].differences


def test_another_reading_of_the_model_is_refused(heald: Any, copy: Path) -> None:
    _signed(copy, "network.txt", (copy / "network.txt").read_bytes() + b"more\n")
    assert "reads the model as another network" in heald("run", copy, *RUN).err


def test_only_directories_of_its_own_are_replaced(heald: Any, copy: Path, tmp_path: Path) -> None:
    source = save(tmp_path, perceptron())
    assert heald("compile", source, "--hw", "test", "-o", copy).code == 0
    other = tmp_path / "other"
    other.mkdir()
    (other / "mine").write_text("x")
    ended = heald("compile", source, "--hw", "test", "-o", other)
    assert ended.code == 2
    assert "so it is not overwritten" in ended.err
    assert (other / "mine").read_text() == "x"
    assert "it has no manifest.json" in heald("run", other, *RUN).err
    assert "must be a directory" in heald("compile", source, "--hw", "test", "-o", source).err
    missing = heald("compile", source, "--hw", "test", "-o", tmp_path / "no" / "where")
    assert "does not exist" in missing.err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy", "model.onnx", "other"]


def test_a_directory_that_cannot_be_named_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename
    bundle.write({bundle.MANIFEST: b"{}"}, tmp_path / "old")
    monkeypatch.setattr(bundle, "is_manifest", lambda directory: True)

    def denied(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", denied)
    for name in ("old", "new directory"):
        with pytest.raises(InputError, match=f"{name}: cannot be written: Permission denied"):
            bundle.write({bundle.MANIFEST: b"other"}, tmp_path / name)
    assert contents(tmp_path) == {f"old/{bundle.MANIFEST}": b"{}"}


def test_a_directory_has_its_own_machine(heald: Any, made: Path) -> None:
    assert "--hw goes with a model" in heald("run", made, "--hw", "tiny").err
    assert "--set goes with a model" in heald("run", made, "--set", "rows=8").err
    assert "--allow-host goes with a model" in heald("run", made, "--allow-host").err


@pytest.mark.parametrize("name", ["memory.json", "plan.json"])
@pytest.mark.parametrize("change", [b"{", b"{}", b"[]"])
def test_files_that_say_nothing_are_named(heald: Any, copy: Path, name: str, change: bytes) -> None:
    _signed(copy, f"program0/{name}", change)
    ended = heald("run", copy, *RUN)
    assert ended.code == 2
    assert name in ended.err


def _manifest(copy: Path, **changes: Any) -> None:
    """Fields of the manifest changed."""
    path = copy / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"files": None}, "files must be SHA-256 by names of files inside, not None"),
        ({"files": {"../model.onnx": "0" * 64}}, "files must be SHA-256 by names of files inside"),
        ({"files": {"/etc/passwd": "0" * 64}}, "files must be SHA-256 by names of files inside"),
        (
            {"steps": [{"program": "../program0"}]},
            "steps must be a list of programs and operators",
        ),
        ({"steps": [{"program": "program7"}]}, "memory.json: must be in the manifest"),
        (
            {"steps": [{"host": "x", "op": "y", "where": "z", "operator": 99}]},
            "must be an operator of the host",
        ),
        ({"steps": []}, "steps: the steps must make: ['y']"),
        ({"allow_host": 1}, "allow_host must be true or false, not 1"),
        ({"inputs": []}, "inputs must be those of the model"),
        ({"machine": {"name": "test", "hash": "0"}}, "must be machine 'test' (0) that the manifest names"),
        ({"form": 2, "hosted": None}, "form must be 3, not 2: compile the model again"),
        ({"hosted": None}, "hosted must be reasons by names of nodes, not None"),
        ({"kind": "x"}, "must be the manifest of a compiled model"),
    ],
)
def test_a_manifest_is_not_trusted(heald: Any, copy: Path, changes: dict[str, Any], told: str) -> None:
    _manifest(copy, **changes)
    ended = heald("run", copy, *RUN)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert ended.err.count("\n") == 1


def test_the_machine_is_that_of_the_bytes_whose_hash_was_compared(heald: Any, copy: Path) -> None:
    found, path = held(copy), copy / "machine.toml"
    path.write_text('preset = "tiny"\n')
    assert found.machine() == load("test")
    _signed(copy, "machine.toml", b'preset = "test"\ncgra = "grid"\n')
    assert f"{path}: cgra must be described here, not in 'grid'" in heald("run", copy, *RUN).err
    _signed(copy, "machine.toml", b"rows = 0\n")
    assert f"{path}: rows (rows of the GEMM array) must be" in heald("run", copy, *RUN).err


def test_only_regular_files_inside_are_opened(heald: Any, copy: Path) -> None:
    for name in ("program0/plan.json", "manifest.json"):
        (copy / name).unlink()
        os.mkfifo(copy / name)  # would wait for ever
        assert f"{copy / name}: must be a regular file" in heald("run", copy, *RUN).err
        (copy / name).unlink()
        (copy / name).symlink_to("/etc/passwd")
        assert f"{copy / name}: must lie in {copy}, not be /etc/passwd" in heald("run", copy, *RUN).err


@pytest.mark.parametrize(
    ("name", "place", "value", "told"),
    [
        ("plan.json", ("operators", 0, "macs"), "5", "it.operators[0].macs must be a whole number, not '5'"),
        ("plan.json", ("operators", 0, "output", 3), 10**6, "its output must lie in"),
        ("plan.json", ("kernels", 0, "name"), "../../x", "x.bin: must be in the manifest"),
        ("plan.json", ("warps", 0), 77, "warp77.bin: must be in the manifest"),
        ("plan.json", ("operator_of", 0, 1), 10**6, "operator_of must name instructions and operators"),
        ("memory.json", ("windows", 0, 0), -128, "a window must lie in the memory"),
        ("memory.json", ("windows", 0, 2), 1, "it.windows[0][2] must be true or false, not 1"),
        ("memory.json", ("tensors", 0, "pitch"), 0, "pitch: 0"),
        ("memory.json", ("tensors", 0, "address"), 1 << 33, "must lie in the memory"),
        ("memory.json", ("tensors", 0, "shape"), [10**9], "elements of a row"),
        ("memory.json", ("constants", 0, 0), None, "it.constants[0][0] must be a whole number, not None"),
    ],
)
def test_numbers_of_a_program_are_not_trusted(
    heald: Any, copy: Path, name: str, place: tuple[Any, ...], value: Any, told: str
) -> None:
    held = json.loads((copy / "program0" / name).read_text())
    *way, last = place
    inner = held
    for key in way:
        inner = inner[key]
    inner[last] = value
    _signed(copy, f"program0/{name}", json.dumps(held).encode())
    ended = heald("run", copy, *RUN)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err


def test_a_model_of_which_nothing_runs_on_the_machine_is_told(heald: Any, tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", 1, [2, 3])
    y = helper.make_tensor_value_info("y", 1, [2, 3])
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "exp", [x], [y])
    path = save(tmp_path, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    ended = heald("compile", path, "--allow-host", "-o", tmp_path / "out")
    assert ended.code == 0
    assert "nothing runs on the machine: `heald explain " in ended.err
