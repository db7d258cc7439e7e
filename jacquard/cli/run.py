"""`jacquard run`: a model's products and convolutions, a shape, or a tile program on the RTL, checked."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Console

from cosim import trace as chrome
from cosim.backends import BACKENDS, simulator
from cosim.job import Simulator
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.errors import InputError
from jacquard.cli.options import (
    as_json,
    by_port,
    hardware,
    machine,
    memories,
    note,
    print_json,
    refinement,
    sizes,
)
from jacquard.cli.programs import print_after, read
from jacquard.execute import Task, execute
from jacquard.files import atomic, check_writable
from jacquard.program_run import run_program
from jacquard.report.table import print_report
from jacquard.results import Report, outputs
from sw.layout import place
from sw.problem import TYPES, Product

_PATH = click.Path(path_type=Path)
#: Options that only say what `--matmul` means, and their defaults.
_SHAPE_OPTIONS = {
    "type_a": "int8",
    "type_b": "int8",
    "zero_a": 0,
    "zero_b": 0,
    "transpose_a": False,
    "transpose_b": False,
    "batch": None,
}


@dataclass(frozen=True)
class _Files:
    """Where a run reads from and writes to, as far as the user asked."""

    inputs: Path | None
    outputs: Path | None
    waves: Path | None
    trace: Path | None


@click.command("run")
@click.argument("model", required=False, type=_PATH, metavar="[MODEL.onnx|PROGRAM.py]")
@click.option("--matmul", metavar="MxKxN", help="Run one product of this shape instead of a model.")
@click.option("--type-a", type=click.Choice(list(TYPES)), default="int8", help="Type of A (with --matmul).")
@click.option("--type-b", type=click.Choice(list(TYPES)), default="int8", help="Type of B (with --matmul).")
@click.option("--zero-a", type=int, default=0, metavar="N", help="Zero point of A (with --matmul).")
@click.option("--zero-b", type=int, default=0, metavar="N", help="Zero point of B (with --matmul).")
@click.option("--transpose-a", is_flag=True, help="A is stored [K, M] (with --matmul).")
@click.option("--transpose-b", is_flag=True, help="B is stored [N, K] (with --matmul).")
@click.option("--batch", metavar="N[xN...]", help="As many products, one after the other (with --matmul).")
@hardware
@click.option(
    "--sim", type=click.Choice(BACKENDS), default="verilator", show_default=True, help="What runs the RTL."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random inputs.")
@click.option("--stall", type=int, metavar="SEED", help="Memory stalls in a pattern drawn from this seed.")
@memories
@refinement
@click.option("--waves", type=_PATH, metavar="FILE", help="Write waves, .vcd or .fst.")
@click.option("--trace", type=_PATH, metavar="FILE", help="Write a trace for Perfetto (JSON).")
@click.option("--inputs", type=_PATH, metavar="FILE.npz", help="Inputs by name (A and B with --matmul).")
@click.option("--print-after-all", is_flag=True, help="Print the tile program after every step on stderr.")
@click.option("--outputs", type=_PATH, metavar="FILE.npz", help="Write the results (C with --matmul).")
@as_json
def command(
    model: Path | None,
    matmul: str | None,
    hw: str,
    settings: tuple[str, ...],
    sim: str,
    seed: int,
    stall: int | None,
    latency: tuple[str, ...],
    bandwidth: tuple[str, ...],
    json_: bool,
    **rest: Any,
) -> int:
    """Run the products and convolutions of MODEL.onnx, or --matmul, on the RTL, and prove result and cycles.

    Results are compared with NumPy's bit for bit, and the cycle of every event with the cycle model's.
    A tile program, PROGRAM.py, is compared with its sequential execution; its inputs are buffers in memory,
    which are random if not given, and parameters. Ports are load_a, load_b, load_c and store.
    """
    files = _Files(rest["inputs"], rest["outputs"], rest["waves"], rest["trace"])
    config = machine(hw, settings)
    memory = MemorySettings.of(
        config,
        latency=by_port("--latency", latency),
        bandwidth=by_port("--bandwidth", bandwidth),
        stall_seed=stall,
    )
    for path in (files.outputs, files.waves, files.trace):
        if path is not None:
            check_writable(path)
    shape = {name: rest[name] for name in _SHAPE_OPTIONS}
    if (model is None) == (matmul is None):
        raise InputError("run must be given either a model file or --matmul MxKxN")
    after = print_after if rest["print_after_all"] else None
    if matmul is None:
        for name, default in _SHAPE_OPTIONS.items():
            if shape[name] != default:
                raise InputError(f"--{name.replace('_', '-')} goes with --matmul, not with a model")
    title = f"matmul {matmul}" if model is None else str(model)
    with _wave_file(files.waves) as waves:

        def simulate() -> Simulator:
            return simulator(config, sim, waves)

        if model is not None and model.suffix == ".py":
            if rest["refine"]:
                raise InputError("--refine goes with products and convolutions, not with a tile program")
            given = {} if files.inputs is None else read_inputs(files.inputs)
            report = run_program(
                read(str(model)),
                config,
                memory,
                simulate,
                given,
                seed=seed,
                sim=sim,
                after=after,
                progress=note,
            )
        else:
            if matmul is not None:
                tasks = _shape_tasks(config, matmul, shape, files.inputs, seed)
            else:
                assert model is not None
                tasks = _model_tasks(model, files.inputs, seed)
            report = execute(
                tasks,
                config,
                memory,
                simulate,
                sim=sim,
                candidates=rest["refine"],
                after=after,
                progress=note,
            )
    _write(report, files)
    if json_:
        print_json(report.as_dict())
        first = report.first_divergence
        if first is not None:
            note(f"{first[0].name}: {first[1]}")
    else:
        console = Console()
        print_report(report, title, console if console.is_terminal else Console(width=140))
    return 0 if report.proven else 1


def _shape_tasks(
    config: MachineConfig, text: str, shape: dict[str, Any], inputs: Path | None, seed: int
) -> list[Task]:
    m, k, n = sizes("--matmul", text, 3)
    batch = sizes("--batch", shape["batch"], None) if shape["batch"] is not None else ()
    problem = Product(
        m,
        k,
        n,
        shape["type_a"],
        shape["type_b"],
        shape["zero_a"],
        shape["zero_b"],
        shape["transpose_a"],
        shape["transpose_b"],
        batch,
        batch,
    )
    place(problem, config)  # refuses what does not fit memory before arrays of that size are drawn
    if inputs is None:
        a, b = problem.random(np.random.default_rng(seed))
    else:
        arrays = read_inputs(inputs)
        if sorted(arrays) != ["A", "B"]:
            raise InputError(f"{inputs}: must hold A and B, not {', '.join(sorted(arrays)) or 'nothing'}")
        a, b = arrays["A"], arrays["B"]
        try:
            problem.check(a, b)
        except InputError as error:
            raise InputError(f"{inputs}: {error}") from None
    return [Task("matmul", problem, a, b)]


def _model_tasks(model: Path, inputs: Path | None, seed: int) -> list[Task]:
    from sw.frontend import onnx

    parsed = onnx.read(model)
    if inputs is None:
        arrays = onnx.random_inputs(parsed, np.random.default_rng(seed))
    else:
        arrays = read_inputs(inputs)
    try:
        bound = onnx.bind(parsed, arrays)
    except InputError as error:
        raise InputError(f"{model}: {error}") from None
    return [Task(x.name, x.problem, x.a, x.b, x.op, x.output, x.shape) for x in bound]


def read_inputs(path: Path) -> dict[str, np.ndarray]:
    """Arrays by name out of an .npz file. Raises `InputError`."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except Exception as error:
        # Files that are no archives, or broken ones, raise errors of many unrelated types.
        raise InputError(f"{path}: not a readable .npz file: {error}") from None


@contextlib.contextmanager
def _wave_file(path: Path | None) -> Iterator[str | None]:
    if path is None:
        yield None
    else:
        with atomic(path.absolute()) as part:
            try:
                yield str(part)
            except InputError as error:
                raise InputError(str(error).replace(str(part), str(path))) from None


def _write(report: Report, files: _Files) -> None:
    if files.outputs is not None:
        arrays = outputs(report)
        with atomic(files.outputs) as part, part.open("wb") as out:
            np.savez(out, **arrays)  # type: ignore[arg-type]
    if files.trace is not None:
        with atomic(files.trace) as part:
            part.write_text(json.dumps(_trace(report)))


def _trace(report: Report) -> dict[str, Any]:
    """The traces of all products in one document, each with processes of its own."""
    whole: dict[str, Any] = {"traceEvents": []}
    for number, result in enumerate(report.results):
        name = result.name
        outcomes = {f"{name} (model)": result.predicted, f"{name} (RTL)": result.observed}
        part = chrome.document(result.job, outcomes)
        for event in part["traceEvents"]:
            event["pid"] += len(outcomes) * number
        whole = part | {"traceEvents": whole["traceEvents"] + part["traceEvents"]}
    return whole
