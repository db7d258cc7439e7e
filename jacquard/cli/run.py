"""`jacquard run`: a model, a compiled model, a shape, or a tile program on the RTL, checked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from cosim.backends import BACKENDS, simulator
from cosim.job import Simulator
from cosim.settings import MemorySettings
from hw.config import MachineConfig
from hw.errors import InputError
from jacquard.cli.options import (
    as_json,
    by_port,
    hardware,
    host,
    machine,
    memories,
    note,
    print_json,
    refinement,
    sizes,
)
from jacquard.cli.programs import printer, printing, read
from jacquard.cli.run_files import Files, read_inputs, wave_file, write
from jacquard.program_run import run_program
from jacquard.report.console import stdout
from jacquard.report.table import print_report
from jacquard.results import Report
from sw.problem import TYPES, Product

if TYPE_CHECKING:
    from jacquard.network_run import CompiledModel
    from sw.graph.network import Network

_PATH = click.Path(path_type=Path)
#: How a message starts that names a file already.
_FILE = re.compile(r"[^\s:]+\.(npz|onnx|json|txt|toml|py): ")
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
class _Run:
    """What was asked: `source` is the model, program or directory, None with `--matmul`."""

    source: Path | None
    config: MachineConfig
    memory: MemorySettings
    files: Files
    sim: str
    seed: int
    options: dict[str, Any]

    @property
    def title(self) -> str:
        """What runs, for people."""
        return f"matmul {self.options['matmul']}" if self.source is None else str(self.source)

    def inputs(self) -> dict[str, np.ndarray] | None:
        """The arrays that the user gave."""
        return None if self.files.inputs is None else read_inputs(self.files.inputs)

    def common(self) -> dict[str, Any]:
        """Arguments that all ways of running take."""
        after = printer(self.options["print_after"], self.options["print_after_all"])
        return {"sim": self.sim, "after": after, "progress": note}

    def refuse(self, option: str, belongs: str, found: str) -> None:
        """Raise `InputError` where an option was used that does not go with what runs."""
        if self.options[option]:
            raise InputError(f"--{option.replace('_', '-')} goes with {belongs}, not with {found}")


@click.command("run")
@click.argument("model", required=False, type=_PATH, metavar="[MODEL.onnx|PROGRAM.py|DIR]")
@click.option("--matmul", metavar="MxKxN", help="Run one product of this shape instead of a model.")
@click.option("--type-a", type=click.Choice(list(TYPES)), default="int8", help="Type of A (with --matmul).")
@click.option("--type-b", type=click.Choice(list(TYPES)), default="int8", help="Type of B (with --matmul).")
@click.option("--zero-a", type=int, default=0, metavar="N", help="Zero point of A (with --matmul).")
@click.option("--zero-b", type=int, default=0, metavar="N", help="Zero point of B (with --matmul).")
@click.option("--transpose-a", is_flag=True, help="A is stored [K, M] (with --matmul).")
@click.option("--transpose-b", is_flag=True, help="B is stored [N, K] (with --matmul).")
@click.option("--batch", metavar="N[xN...]", help="As many products, one after the other (with --matmul).")
@hardware
@host
@click.option(
    "--sim", type=click.Choice(BACKENDS), default="verilator", show_default=True, help="What runs the RTL."
)
@click.option(
    "--device", metavar="ADDRESS", help="Run on a board: uart:PORT[@BAUD] or mmio:CSR[@OFF],MEM[@OFF][+SIZE]."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random inputs.")
@click.option("--stall", type=int, metavar="SEED", help="Memory stalls in a pattern drawn from this seed.")
@memories
@refinement
@click.option("--waves", type=_PATH, metavar="FILE", help="Write waves, .vcd or .fst.")
@click.option("--trace", type=_PATH, metavar="FILE", help="Write a trace for Perfetto (JSON).")
@click.option("--report", type=_PATH, metavar="FILE.html", help="Write a report of the run as one HTML page.")
@click.option("--inputs", type=_PATH, metavar="FILE.npz", help="Inputs by name (A and B with --matmul).")
@printing
@click.option("--outputs", type=_PATH, metavar="FILE.npz", help="Write the results (C with --matmul).")
@as_json
@click.pass_context
def command(context: click.Context, /, model: Path | None, json_: bool, **options: Any) -> int:
    """Run MODEL.onnx, a directory of `jacquard compile`, or --matmul on the RTL; prove result and cycles.

    Results are compared bit for bit with NumPy, or for a whole model with what its operators mean
    (docs/network.md), and the cycle of every event with the cycle model's. A tile program, PROGRAM.py, is
    compared with its sequential execution; its inputs are parameters and buffers in memory, which are random
    if not given. Ports are load_a, load_b, load_c and store. With --device a model runs on a board, and only
    its results are compared.
    """
    if (model is None) == (options["matmul"] is None):
        raise InputError("run must be given either a model file or --matmul MxKxN")
    asked = _asked(context, model, options)
    if options["device"] is not None:
        return _on_device(asked, options["device"], json_)
    with wave_file(asked.files.waves) as waves:

        def simulate() -> Simulator:
            return simulator(asked.config, asked.sim, waves)

        report = _way(asked)(asked, simulate)
    write(report, asked.files, asked.title, asked.memory)
    if json_:
        print_json(report.as_dict())
        first = report.first_divergence
        if first is not None:
            note(f"{first[0].name}: {first[1]}")
    else:
        print_report(report, asked.title, stdout(140))
    return 0 if report.proven else 1


def _asked(context: click.Context, model: Path | None, options: dict[str, Any]) -> _Run:
    """The options as they are used; raises `InputError` for those that contradict each other."""
    files = Files(*(options[name] for name in ("inputs", "outputs", "waves", "trace", "report")))
    if model is not None and model.is_dir():
        for name, option in (("hw", "--hw"), ("settings", "--set")):
            if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
                raise InputError(f"{option} goes with a model: {model} was compiled for a machine of its own")
        from jacquard import bundle

        config = bundle.machine(model)
    else:
        config = machine(options["hw"], options["settings"])
    memory = MemorySettings.of(
        config,
        latency=by_port("--latency", options["latency"]),
        bandwidth=by_port("--bandwidth", options["bandwidth"]),
        stall_seed=options["stall"],
    )
    files.check()
    if model is not None:
        for name, default in _SHAPE_OPTIONS.items():
            if options[name] != default:
                raise InputError(f"--{name.replace('_', '-')} goes with --matmul, not with a model")
    return _Run(model, config, memory, files, options["sim"], options["seed"], options)


Way = Callable[[_Run, Callable[[], Simulator]], Report]


def _way(asked: _Run) -> Way:
    """How the source is run."""
    if asked.source is None:
        asked.refuse("allow_host", "a model", "--matmul")
        return _graph
    if asked.source.is_dir():
        asked.refuse("allow_host", "a model", "a compiled one")
        asked.refuse("print_after", "what is compiled", "a directory")
        asked.refuse("print_after_all", "what is compiled", "a directory")
        return _compiled
    if asked.source.suffix == ".py":
        asked.refuse("refine", "products and convolutions", "a tile program")
        asked.refuse("allow_host", "a model", "a tile program")
        return _program
    return _graph


def _program(asked: _Run, simulate: Callable[[], Simulator]) -> Report:
    """A tile program."""
    return run_program(
        read(str(asked.source)),
        asked.config,
        asked.memory,
        simulate,
        asked.inputs(),
        seed=asked.seed,
        **asked.common(),
    )


def _graph(asked: _Run, simulate: Callable[[], Simulator]) -> Report:
    """A product or a whole model."""
    return _run_compiled(asked, *_compile(asked), simulate)


def _compile(asked: _Run) -> tuple[CompiledModel, dict[str, np.ndarray]]:
    """A product or a whole model, compiled, and its inputs."""
    from cosim.refine import refined_blockings
    from jacquard.network_run import compile_model
    from sw.graph.problems import network_of

    arrays = asked.inputs()
    problem = _problem(asked.options) if asked.source is None else None
    options: dict[str, Any] = {"bandwidth": asked.memory.bandwidth}
    if problem is None:
        network, arrays = _imported(asked, arrays)
        options["progress"] = note
    else:
        network = network_of(problem)
        if arrays is not None:
            _check_operands(problem, arrays, asked.files.inputs)
    config, after = asked.memory.behind(asked.config), asked.common()["after"]
    try:
        if asked.options["refine"]:
            chosen = refined_blockings(network, config, asked.memory, asked.options["refine"])
            if not chosen:
                raise InputError("--refine goes with products whose sums are results, there is none")
            options["blockings"] = chosen
        model = compile_model(network, config, after, **options)
    except InputError as error:
        raise _at(asked.source, error) if asked.source is not None else error from None
    return model, _inputs(asked, network, arrays)


def _imported(
    asked: _Run, arrays: dict[str, np.ndarray] | None
) -> tuple[Network, dict[str, np.ndarray] | None]:
    """The graph of a model, and the inputs that are left where some had to become constants."""
    from sw.frontend.bindings import import_bound
    from sw.frontend.network import import_model

    assert asked.source is not None
    try:
        return import_model(asked.source, allow_host=asked.options["allow_host"]), arrays
    except InputError as error:
        found = None
        with contextlib.suppress(InputError):  # the first message names the reason
            found = import_bound(asked.source, arrays, asked.seed)
        if found is None:
            raise _at(asked.source, error) from None
        return found


def _compiled(asked: _Run, simulate: Callable[[], Simulator]) -> Report:
    """A model that was compiled into a directory."""
    return _run_compiled(asked, *_load(asked), simulate)


def _load(asked: _Run) -> tuple[CompiledModel, dict[str, np.ndarray]]:
    """A model that was compiled into a directory, and its inputs."""
    from jacquard import bundle

    assert asked.source is not None
    asked.refuse("refine", "products and convolutions", "a compiled model")
    model = bundle.load(asked.source)
    return model, _inputs(asked, model.network, asked.inputs())


def _on_device(asked: _Run, address: str, json_: bool) -> int:
    """A model on a board."""
    if asked.source is None or asked.source.suffix == ".py":
        raise InputError(f"--device goes with a model or a compiled one, not with {asked.title}")
    for option in ("stall", "latency", "bandwidth", "waves", "trace", "report"):
        asked.refuse(option, "a simulation", "--device")
    from jacquard.cli.run_device import run_at

    _way(asked)  # refuses options that do not go with the source
    model, inputs = _load(asked) if asked.source.is_dir() else _compile(asked)
    return run_at(model, inputs, address, asked.files, json_)


def _inputs(asked: _Run, network: Network, given: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
    """The inputs that were given, else random ones; raises `InputError` for those that do not fit."""
    from jacquard.network_run import draw_inputs

    try:
        return draw_inputs(network, asked.seed, given)
    except InputError as error:
        raise _at(asked.files.inputs or asked.source or Path(), error) from None


def _run_compiled(
    asked: _Run, model: CompiledModel, inputs: dict[str, np.ndarray], simulate: Callable[[], Simulator]
) -> Report:
    from jacquard.network_run import run_model

    programs = len(model.programs)
    if asked.files.waves is not None and programs != 1:
        raise InputError(f"--waves must be given for one program, this model is {programs}")
    return run_model(model, inputs, asked.memory, simulate, sim=asked.sim, progress=note)


def _at(path: Path, error: InputError) -> InputError:
    """The error with the file that it is about, unless it names one."""
    text = str(error)
    return error if _FILE.match(text) or text.startswith(str(path)) else InputError(f"{path}: {text}")


def _problem(options: dict[str, Any]) -> Product:
    """The product that `--matmul` and the options beside it describe."""
    m, k, n = sizes("--matmul", options["matmul"], 3)
    batch = sizes("--batch", options["batch"], None) if options["batch"] is not None else ()
    return Product(
        m,
        k,
        n,
        options["type_a"],
        options["type_b"],
        options["zero_a"],
        options["zero_b"],
        options["transpose_a"],
        options["transpose_b"],
        batch,
        batch,
    )


def _check_operands(problem: Product, arrays: dict[str, np.ndarray], file: Path | None) -> None:
    """Raise `InputError` unless a file holds A and B as the product takes them."""
    if sorted(arrays) != ["A", "B"]:
        raise InputError(f"{file}: must hold A and B, not {', '.join(sorted(arrays)) or 'nothing'}")
    try:
        problem.check(arrays["A"], arrays["B"])
    except InputError as error:
        raise InputError(f"{file}: {error}") from None
