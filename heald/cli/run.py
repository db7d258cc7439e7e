"""`heald run`: a model, a compiled model, a shape, or a tile program on the RTL, checked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.job import Simulator
from cosim.session.tile_program import prepare
from cosim.settings import MemorySettings
from heald.cli.options import (
    PATH,
    as_json,
    backend,
    hardware,
    host,
    machine,
    memories,
    memory_settings,
    note,
    print_json,
    printer,
    printing,
    refinement,
    sizes,
)
from heald.cli.run_files import Files, read_inputs, wave_file, write, write_outputs
from heald.progress import Progress, shown
from heald.report.console import stdout
from heald.report.table import print_report
from heald.run import Run, run_program
from hw.config import MachineConfig
from hw.errors import InputError
from sw.ir.load import load_program
from sw.problem import TYPES, Product

if TYPE_CHECKING:
    from cosim.session.network import CompiledModel
    from heald.model_run import ModelRun
    from sw.compiler import Observer
    from sw.graph.network import Network

#: How a message starts that names a file already.
_FILE = re.compile(r"[^\s:]+\.(npz|onnx|json|txt|toml|py): ")
#: Options that only say what `--matmul` means.
_SHAPE_OPTIONS = ("type_a", "type_b", "zero_a", "zero_b", "transpose_a", "transpose_b", "batch")


@dataclass(frozen=True)
class _Run:
    """What was asked: `source` is the model, program or directory, None with `--matmul`."""

    source: Path | None
    config: MachineConfig
    memory: MemorySettings
    files: Files
    options: dict[str, Any]

    @property
    def title(self) -> str:
        """What runs, for people."""
        return f"matmul {self.options['matmul']}" if self.source is None else str(self.source)

    @property
    def kind(self) -> str:
        """What the source is, in words."""
        if self.source is None:
            return "--matmul"
        if self.source.is_dir():
            return "a directory"
        return "a tile program" if self.source.suffix == ".py" else "a model"

    @property
    def after(self) -> Observer | None:
        """Prints what stages make."""
        return printer(self.options["print_after"], self.options["print_after_all"])

    def inputs(self) -> dict[str, np.ndarray] | None:
        """The arrays that the user gave."""
        return None if self.files.inputs is None else read_inputs(self.files.inputs)

    def refuse(self, option: str, belongs: str, found: str) -> None:
        """Raise `InputError` where an option was used that does not go with what runs."""
        if self.options[option]:
            raise InputError(f"--{option.replace('_', '-')} goes with {belongs}, not with {found}")


@click.command("run")
@click.argument("model", required=False, type=PATH, metavar="[MODEL.onnx|PROGRAM.py|DIR]")
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
@backend
@click.option(
    "--device", metavar="ADDRESS", help="Run on a board: uart:PORT[@BAUD] or mmio:CSR[@OFF],MEM[@OFF][+SIZE]."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random inputs.")
@click.option("--stall", type=int, metavar="SEED", help="Memory stalls in a pattern drawn from this seed.")
@memories
@refinement
@click.option("--waves", type=PATH, metavar="FILE", help="Write waves, .vcd or .fst.")
@click.option("--trace", type=PATH, metavar="FILE", help="Write a trace for Perfetto (JSON).")
@click.option("--report", type=PATH, metavar="FILE.html", help="Write a report of the run as one HTML page.")
@click.option("--inputs", type=PATH, metavar="FILE.npz", help="Inputs by name (A and B with --matmul).")
@printing
@click.option("--outputs", type=PATH, metavar="FILE.npz", help="Write the results (C with --matmul).")
@as_json
@click.pass_context
def command(context: click.Context, /, model: Path | None, json_: bool, **options: Any) -> int:
    """Run MODEL.onnx, a directory of `heald compile`, or --matmul on the RTL; prove result and cycles.

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
    with wave_file(asked.files.waves) as waves, shown(note) as say:

        def simulate() -> Simulator:
            return simulator(asked.config, options["sim"], waves)

        report = _ran(asked, simulate, say)
    write(report, asked.files)
    if json_:
        print_json(report.as_dict())
        first = report.first_divergence
        if first is not None:
            note(f"{first[0].name}: {first[1]}")
    else:
        print_report(report, stdout(140))
    return 0 if report.verified else 1


def _asked(context: click.Context, model: Path | None, options: dict[str, Any]) -> _Run:
    """The options as they are used; raises `InputError` for those that contradict each other."""
    files = Files(*(options[name] for name in ("inputs", "outputs", "waves", "trace", "report")))
    if model is not None and model.is_dir():
        for name, option in (("hw", "--hw"), ("settings", "--set")):
            if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
                raise InputError(f"{option} goes with a model: {model} was compiled for a machine of its own")
        from heald import bundle

        config = bundle.machine(model)
    else:
        config = machine(options["hw"], options["settings"])
    asked = _Run(model, config, memory_settings(config, options), files, options)
    files.check()
    if model is not None:
        for name in _SHAPE_OPTIONS:
            if options[name] not in ("int8", 0, None):
                raise InputError(f"--{name.replace('_', '-')} goes with --matmul, not with a model")
    return asked


def _ran(asked: _Run, simulate: Callable[[], Simulator], say: Progress) -> Run:
    """What became of a tile program or model."""
    if asked.kind != "a tile program":
        model, inputs = _compiled(asked, say)
        if asked.files.waves is not None and len(model.programs) != 1:
            raise InputError(f"--waves must be given for one program, this model is {len(model.programs)}")
        from heald.model_run import run_model

        what = (model, inputs, asked.memory, simulate)
        return run_model(*what, title=asked.title, sim=asked.options["sim"], progress=say)
    asked.refuse("refine", "products and convolutions", "a tile program")
    asked.refuse("allow_host", "a model", "a tile program")
    program = load_program(str(asked.source))
    options = {"seed": asked.options["seed"], "after": asked.after}
    prepared = prepare(program, asked.config, asked.memory, asked.inputs(), **options)
    return run_program(prepared, simulate, title=asked.title, sim=asked.options["sim"], progress=say)


def _on_device(asked: _Run, address: str, json_: bool) -> int:
    """A model on a board."""
    if asked.kind in ("--matmul", "a tile program"):
        raise InputError(f"--device goes with a model or a compiled one, not with {asked.title}")
    for option in ("stall", "latency", "bandwidth", "waves", "trace", "report"):
        asked.refuse(option, "a simulation", "--device")
    from heald.model_run import run_on_device

    with shown(note) as say:
        run = run_on_device(*_compiled(asked, say), address, progress=say)
    if asked.files.outputs is not None:
        write_outputs(asked.files.outputs, run.outputs)
    if json_:
        print_json(run.as_dict())
    else:
        _show(run)
    return 0 if run.verified else 1


def _compiled(asked: _Run, say: Progress) -> tuple[CompiledModel, dict[str, np.ndarray]]:
    """A product or model, compiled now or into a directory before, and its inputs."""
    from cosim.session.network import draw_inputs

    if asked.kind == "a directory":
        model, arrays = _loaded(asked), asked.inputs()
    else:
        model, arrays = _compile(asked, say)
    try:
        return model, draw_inputs(model.network, asked.options["seed"], arrays)
    except InputError as error:
        raise _at(asked.files.inputs or asked.source or Path(), error) from None


def _loaded(asked: _Run) -> CompiledModel:
    """A model that was compiled into a directory."""
    from heald import bundle

    assert asked.source is not None
    asked.refuse("allow_host", "a model", "a compiled one")
    for option in ("print_after", "print_after_all"):
        asked.refuse(option, "what is compiled", "a directory")
    asked.refuse("refine", "products and convolutions", "a compiled model")
    return bundle.load(asked.source)[0]


def _compile(asked: _Run, say: Progress) -> tuple[CompiledModel, dict[str, np.ndarray] | None]:
    """A product or model, compiled, and the inputs that were given."""
    from cosim.refine import refined_blockings
    from cosim.session.network import compile_model
    from sw.graph.problems import network_of

    options: dict[str, Any] = {"bandwidth": asked.memory.bandwidth}
    if asked.source is None:
        asked.refuse("allow_host", "a model", "--matmul")
        arrays, problem = asked.inputs(), _problem(asked.options)
        network = network_of(problem)
        if arrays is not None:
            _check_operands(problem, arrays, asked.files.inputs)
    else:
        network, arrays = _imported(asked.source, asked)
        options["progress"] = say
    config, after = asked.memory.behind(asked.config), asked.after
    try:
        if asked.options["refine"]:
            chosen = refined_blockings(network, config, asked.memory, asked.options["refine"])
            if not chosen:
                raise InputError("--refine goes with products whose sums are results, there is none")
            options["blockings"] = chosen
        return compile_model(network, config, after, **options), arrays
    except InputError as error:
        raise _at(asked.source, error) if asked.source is not None else error from None


def _imported(source: Path, asked: _Run) -> tuple[Network, dict[str, np.ndarray] | None]:
    """The graph of a model, and the inputs that are left where some had to become constants."""
    from sw.frontend.bindings import import_bound
    from sw.frontend.network import import_model

    arrays = asked.inputs()
    try:
        return import_model(source, allow_host=asked.options["allow_host"]), arrays
    except InputError as error:
        found = None
        with contextlib.suppress(InputError):  # the first message names the reason
            found = import_bound(source, arrays, asked.options["seed"])
        if found is None:
            raise _at(source, error) from None
        return found


def _at(path: Path, error: InputError) -> InputError:
    """The error with the file that it is about, unless it names one."""
    text = str(error)
    return error if _FILE.match(text) or text.startswith(str(path)) else InputError(f"{path}: {text}")


def _problem(options: dict[str, Any]) -> Product:
    """The product that `--matmul` and the options beside it describe."""
    m, k, n = sizes("--matmul", options["matmul"], 3)
    batch = sizes("--batch", options["batch"], None) if options["batch"] is not None else ()
    operands = [options[name] for name in _SHAPE_OPTIONS[:-1]]
    return Product(*(m, k, n, *operands, batch, batch))


def _check_operands(problem: Product, arrays: dict[str, np.ndarray], file: Path | None) -> None:
    """Raise `InputError` unless a file holds A and B as the product takes them."""
    if sorted(arrays) != ["A", "B"]:
        raise InputError(f"{file}: must hold A and B, not {', '.join(sorted(arrays)) or 'nothing'}")
    try:
        problem.check(arrays["A"], arrays["B"])
    except InputError as error:
        raise InputError(f"{file}: {error}") from None


def _show(run: ModelRun) -> None:
    """Cycles and results for people."""
    table = Table("program", "cycles", "seconds", "stopped by", box=None)
    for result in run.results:
        error = result.observed.error.text if result.observed.error is not None else ""
        table.add_row(result.name, f"{result.observed.cycles:,}", f"{result.observed.seconds:.2f}", error)
    Console().print(table)
    if run.first_wrong is None:
        click.echo("\N{CHECK MARK} every result equals the reference's, bit for bit")
    else:
        click.echo(f"\N{BALLOT X} {run.first_wrong[0]}: {run.first_wrong[1]}")
