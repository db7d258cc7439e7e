"""A model always becomes the same program: by run, compile and run, explore, and the ONNX backend."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import heald as hd
from cosim import energy
from cosim.job import Outcome
from cosim.session.network import draw_inputs
from heald import backend
from heald.exploration import command
from heald.exploration.evaluate import Evaluation, Workload, confirm, evaluate, load_model
from heald.exploration.results import Point, State
from heald.exploration.space import from_values
from heald.session import GraphModel
from heald.sources import OnnxSource, onnx_source
from heald.testing.models import Builder
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.compile.refused import OperatorsError
from sw.compiler import compile_network
from sw.frontend.network import import_model
from tests.budget import sweep
from tests.heald.conftest import Quick
from tests.heald.network_models import integers, perceptron
from tests.sw.models import conv_integer, matmul_integer

#: Changes of the machine `test`, by name.
MACHINES: dict[str, dict[str, Any]] = {
    "test": {"cgra": "torus4x4"},
    "wide": {"cgra": "torus4x4", "load_a_bytes": 4, "load_b_bytes": 16, "store_bytes": 8, "acc_banks": 1},
    "without": {"cgra": None, "warps": 4},
}
ZEROS = {"za": np.array(7, np.uint8), "zb": np.array(-3, np.int8)}
VECTORS = {"za": np.array(7, np.uint8), "zb": np.array([-3, 5, 90], np.int8)}
#: Models whose results are sums as the array leaves them.
SUMS: dict[str, Callable[[], onnx.ModelProto]] = {
    "one product": lambda: matmul_integer((9, 21), (21, 13)),
    "vector": lambda: matmul_integer((21,), (21, 13)),
    "deep": lambda: matmul_integer((3, 301), (301, 5)),
    "zero points": lambda: matmul_integer((9, 21), (21, 13), constants=ZEROS, zero_points=("za", "zb")),
    "batch": lambda: matmul_integer((2, 3, 5, 8), (8, 11)),
    "batches": lambda: matmul_integer((3, 5, 8), (3, 8, 11)),
    "three products": lambda: matmul_integer((9, 10), (10, 13), nodes=3),
    "convolution": lambda: conv_integer((1, 3, 9, 11), (5, 3, 3, 3), pads=[1, 1, 1, 1]),
    "strides": lambda: conv_integer((2, 4, 9, 8), (6, 4, 3, 2), strides=[2, 1]),
    "groups": lambda: conv_integer((1, 4, 7, 6), (6, 2, 3, 3), group=2),
    "zero points per column": lambda: matmul_integer(
        (9, 21), (21, 3), constants=VECTORS, zero_points=("za", "zb")
    ),
    "pixels": lambda: conv_integer((2, 6, 5, 5), (7, 6, 1, 1)),
}
#: Models that need a CGRA.
OTHERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "perceptron": perceptron,
    "larger perceptron": lambda: perceptron(13, 33, 18),
    "sum of integers": integers,
    "largest": lambda: integers("Max", onnx.TensorProto.INT8),
    "product of integers": lambda: integers("Mul", onnx.TensorProto.INT8, (7, 9)),
}
MODELS = SUMS | OTHERS
SHAPES = ((5, 6, 7), (17, 40, 9), (33, 5, 64), (1, 1, 1))


def evaluated(proto: onnx.ModelProto, config: MachineConfig, allow_host: bool = False) -> Evaluation:
    """A machine as `heald explore` evaluates it."""
    given = Workload((OnnxSource("model", proto, allow_host),), "ecp5", False, energy.read(None))
    return evaluate((load_model(given.models[0]),), config, given)


def explored(proto: onnx.ModelProto, config: MachineConfig) -> int:
    """Cycles as `heald explore` gives them."""
    (model,) = evaluated(proto, config).models
    return model.cycles


def with_softmax() -> onnx.ModelProto:
    """A product, and a softmax that needs a CGRA."""
    b = Builder()
    total = b.op("MatMulInteger", b.input((5, 9)), b.constant(np.ones((9, 7), np.int8)))
    return b.model(total, b.quantised(b.op("Softmax", b.real(b.input((4, 8)), "int8", 0.1)), "int8", 0.01))


def of_backend(proto: onnx.ModelProto, config: MachineConfig, monkeypatch: pytest.MonkeyPatch) -> int:
    """Cycles of a run of `heald.backend`."""
    cycles: list[int] = []

    def seen(outcome: Outcome) -> Outcome:
        cycles.append(outcome.cycles)
        return outcome

    monkeypatch.setattr("heald.session.simulator", lambda machine, name, waves: Quick(machine, spoil=seen))
    backend.Rep(proto, config).run(draw_inputs(import_model(proto), 0))
    return sum(cycles)


def file_of(config: MachineConfig, folder: Path) -> Path:
    """A machine as a file."""
    from hw.config import to_toml

    path = folder / "machine.toml"
    path.write_text(to_toml(config))
    return path


#: Every model on one of the machines, in turn, and every machine.
KEPT = list(zip(MODELS, itertools.cycle(MACHINES), strict=False))


@pytest.mark.parametrize("cell", sweep(itertools.product(MODELS, MACHINES), kept=KEPT), ids="-".join)
def test_every_way_takes_the_same_cycles(
    heald: Any, quick: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cell: tuple[str, str]
) -> None:
    name, machine = cell
    config, proto = load("test", MACHINES[machine]), MODELS[name]()
    hw, model, folder = file_of(config, tmp_path), tmp_path / "model.onnx", tmp_path / "compiled"
    model.write_bytes(proto.SerializeToString())
    ran = heald("run", model, "--hw", hw, "--json")
    compiled = heald("compile", model, "--hw", hw, "-o", folder)
    if config.cgra is None and name in OTHERS:
        assert (ran.code, compiled.code) == (2, 2)
        assert "must have a CGRA, it has none" in ran.err
        with pytest.raises(InputError, match="must have a CGRA"):
            explored(proto, config)
        return
    assert (ran.code, compiled.code) == (0, 0), ran.err + compiled.err
    cycles = json.loads(ran.out)["cycles"]
    assert json.loads(heald("run", folder, "--json").out)["cycles"] == cycles
    assert explored(proto, config) == cycles
    assert of_backend(proto, config, monkeypatch) == cycles


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_takes_the_cycles_of_its_model(
    heald: Any, quick: Any, tmp_path: Path, shape: tuple[int, int, int], machine: str
) -> None:
    m, k, n = shape
    config = load("test", MACHINES[machine])
    hw, model = file_of(config, tmp_path), tmp_path / "model.onnx"
    model.write_bytes(matmul_integer((m, k), (k, n), type_a="int8").SerializeToString())
    of_shape = json.loads(heald("run", "--matmul", f"{m}x{k}x{n}", "--hw", hw, "--json").out)
    of_model = json.loads(heald("run", model, "--hw", hw, "--json").out)
    assert of_shape["correct"]
    assert of_shape["cycles"] == of_model["cycles"]
    assert of_shape["instructions"].keys() <= {"0", "1", "2", "3"}


def test_a_loop_that_a_cgra_has_no_room_for_is_told_with_a_machine_that_has() -> None:
    config = load("test")
    assert config.cgra is not None
    small = config.replace(cgra=replace(config.cgra, contexts=4, name="small"))
    text = (
        r"^test: n2 \(Softmax\): loop 'row_maxima.1' does not fit the CGRA 'small': contexts must be at least"
    )
    with pytest.raises(
        InputError, match=rf"{text}.*; --set cgra=torus4x4 would do, or --allow-host leaves it"
    ):
        hd.compile(with_softmax(), small)


def test_every_command_takes_the_sizes_that_a_model_leaves_open(
    heald: Any, quick: Any, tmp_path: Path
) -> None:
    config, proto, opened = load("test"), perceptron(), perceptron()
    opened.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    size = proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value
    model, folder = tmp_path / "model.onnx", tmp_path / "compiled"
    model.write_bytes(opened.SerializeToString())
    given = ("--hw", "test", "--dim", f"batch={size}")
    ran = json.loads(heald("run", model, *given, "--json").out)
    assert heald("compile", model, *given, "-o", folder).code == 0
    assert json.loads(heald("run", folder, "--json").out)["cycles"] == ran["cycles"]
    assert explored(onnx_source(opened, dims={"batch": size}).proto, config) == ran["cycles"]
    for wrong, text in (
        (given[:2], f"{model}: inputs must have fixed sizes"),
        ((*given, "--dim", "n"), "NAME=SIZE"),
    ):
        ended = heald("run", model, *wrong)
        assert (ended.code, text in ended.err, ended.err.count("\n")) == (2, True, 1)


def test_what_a_machine_refuses_goes_to_the_host_on_every_way(
    heald: Any, quick: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, proto = load("test", MACHINES["without"]), with_softmax()
    model, folder, hw = tmp_path / "model.onnx", tmp_path / "compiled", file_of(config, tmp_path)
    model.write_bytes(proto.SerializeToString())
    refused = heald("run", model, "--hw", hw)
    assert refused.code == 2
    assert f"(Softmax): machine {config.name!r} must have a CGRA, it has none; " in refused.err
    assert refused.err.endswith("; --set cgra=torus4x4 would do, or --allow-host leaves it to the host\n")
    ran = heald("run", model, "--hw", hw, "--allow-host", "--json")
    assert ran.code == 0, ran.err
    run = json.loads(ran.out)
    hosted = {o["name"]: o["why"] for o in run["operators"] if o["where"] == "host"}
    assert f"machine {config.name!r} must have a CGRA, it has none" in hosted["n2"]
    assert [o["op"] for o in run["operators"] if o["where"] == "machine"] == ["MatMulInteger"]
    assert heald("compile", model, "--hw", hw, "--allow-host", "-o", folder).code == 0
    again = json.loads(heald("run", folder, "--json").out)
    assert again["cycles"] == run["cycles"]
    assert {o["name"]: o["why"] for o in again["operators"] if o["where"] == "host"} == hosted
    assert again["islands"] == run["islands"] != []
    found = evaluated(proto, config, allow_host=True)
    assert (found.metrics["cycles"], found.metrics["host_operators"]) == (run["cycles"], len(hosted))
    monkeypatch.setattr("heald.exploration.evaluate.simulator", lambda machine, name: Quick(machine))
    point = Point(0, {}, State.COMPLETE, {}, None, found.metrics, found.models)
    loaded = (load_model(OnnxSource("model", proto, allow_host=True)),)
    confirmation = confirm(point, config, loaded, "cpp", print)
    assert (confirmation.difference, confirmation.cycles) == (None, run["cycles"])
    told = heald("explain", model, "--hw", hw)
    assert told.code == 1
    assert told.out.splitlines()[1:3] == [
        "    --set cgra=torus4x4 would do, or --allow-host leaves it to the host",
        "1 refused",
    ]
    assert told.out.splitlines()[3].startswith("with --allow-host: ")
    told = heald("explain", model, "--hw", hw, "--allow-host")
    assert told.code == 0
    assert told.out.splitlines()[1:3] == ["    --set cgra=torus4x4 would do", "1 left to the host"]
    assert heald("explain", model, "--hw", "test").code == 0
    assert heald("explain", model).code == 0
    told = heald("explain", model, "--set", "cgra=none", "--json")
    assert (told.code, list(json.loads(told.out)["too_much"])) == (1, ["n2"])
    assert heald("explain", model, "--set", "cgra").code == 2
    ended = heald("explain", model, "--inputs", tmp_path / "nothing.npz")
    assert (ended.code, ended.err) == (2, f"heald: {tmp_path / 'nothing.npz'}: no such file\n")


def test_a_point_of_which_nothing_runs_on_the_machine_is_confirmed(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder()
    proto = b.model(b.quantised(b.op("Softmax", b.real(b.input((4, 8)), "int8", 0.1)), "int8", 0.01))
    config = load("test", MACHINES["without"])
    found = evaluated(proto, config, allow_host=True)
    point = Point(0, {}, State.COMPLETE, {}, None, found.metrics, found.models)
    monkeypatch.setattr("heald.exploration.evaluate.simulator", lambda machine, name: Quick(machine))
    confirmation = confirm(point, config, (load_model(OnnxSource("model", proto, True)),), "cpp", print)
    assert (confirmation.confirmed, confirmation.cycles) == (True, 0)


def test_a_compiled_model_is_compiled_again_for_what_the_other_machine_has(tmp_path: Path) -> None:
    config, proto = load("test", MACHINES["without"]), with_softmax()
    first = hd.compile(proto, config, allow_host=True)
    assert {o.where for o in first.predict().operators} == {"machine", "host"}
    first.save(tmp_path / "made")
    for model in (first, hd.load(tmp_path / "made")):
        assert {o.where for o in hd.compile(model, "test").predict().operators} == {"machine"}
    # What the second call is given counts too, or it is refused.
    second = hd.compile(hd.compile(proto, "test"), config, allow_host=True)
    assert second.predict().cycles == first.predict().cycles
    with pytest.raises(InputError, match="no axis 'batch' is open; the model has no open sizes"):
        hd.compile(first, "test", dims={"batch": 3})
    with pytest.raises(InputError, match="no product has int8 or uint8 weights"):
        hd.compile(first, "test", dynamic=True)
    assert isinstance(first, GraphModel)
    space = from_values({"base": "test", "parameters": {"rows": [4]}})
    made = [
        command.prepare(command.Request(space, (source,), storage=f"sqlite:///{tmp_path}/study.db"))
        for source in (first.source, onnx_source(proto))
    ]
    assert made[0].workload.models == (onnx_source(proto, allow_host=True),)
    one, other = (command.fingerprints(prepared) for prepared in made)
    assert [name for name in one if one[name] != other[name]] == ["list of models"]


def test_all_operators_that_a_machine_refuses_are_told_at_once() -> None:
    b = Builder()
    first = b.quantised(b.op("Softmax", b.real(b.input((4, 8)), "int8", 0.1)), "int8", 0.01)
    there = b.quantised(b.op("Hardmax", b.real(first, "int8", 0.01)), "int8", 0.01)
    last = b.quantised(b.op("Softmax", b.real(there, "int8", 0.01)), "int8", 0.01)
    network = import_model(b.model(last), allow_host=True)
    with pytest.raises(OperatorsError, match=r"^n1 \(Softmax\): .*; 1 more operator is refused$") as error:
        compile_network(network, load("test", MACHINES["without"]))
    assert [o.name for o, _ in error.value.refused] == ["n1", "n7"]
