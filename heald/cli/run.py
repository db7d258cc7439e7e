"""`heald run`: run a model, a compiled model, a GEMM or a tile program on the RTL, and verify it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.table import Table

from cosim.waves import Waves
from heald.cli.options import (
    PATH,
    as_json,
    backend,
    hardware,
    machine,
    memories,
    model_source,
    note,
    port_options,
    print_json,
    printer,
    printing,
    reading,
    refinement,
    sizes,
)
from heald.cli.run_files import Files, about, read_inputs, write
from heald.progress import Progress, shown
from heald.report.console import stdout
from hw.errors import InputError, address
from sw.problem import TYPES, Product

if TYPE_CHECKING:
    from heald.run import Run
    from heald.session import Model

#: Options that only describe `--matmul`.
_OPERANDS = ("type_a", "type_b", "zero_a", "zero_b", "transpose_a", "transpose_b")
_SHAPE_OPTIONS = (*_OPERANDS, "batch", "epilogue", "out")
_MEMORIES = ("stall", "latency", "bandwidth", "base")
#: Options for reading a model.
_OF_MODELS = ("allow_host", "dim", "dynamic", "fixed_point")
#: Options that a kind of source refuses, with what they belong to.
_REFUSED = {
    "--matmul": dict.fromkeys((*_OF_MODELS, "compare", "host_only"), "a model"),
    "a model": {},
    "a tile program": {
        "refine": "products and convolutions",
        **dict.fromkeys((*_OF_MODELS, "compare", "host_only"), "a model"),
    },
    "a directory": {
        **dict.fromkeys(_OF_MODELS, "a model"),
        "print_after": "what is compiled",
        "print_after_all": "what is compiled",
        "refine": "products and convolutions",
    },
    "--device": dict.fromkeys((*_MEMORIES, "waves", "trace", "report"), "a simulation"),
}


@dataclass(frozen=True)
class _Run:
    """The user's request; `source` is the model, program or directory, None with `--matmul`."""

    source: Path | None
    files: Files
    options: dict[str, Any]

    @property
    def title(self) -> str:
        return f"matmul {self.options['matmul']}" if self.source is None else str(self.source)

    @property
    def kind(self) -> str:
        """The kind of source, in words."""
        if self.source is None:
            return "--matmul"
        if self.source.is_dir():
            return "a directory"
        return "a tile program" if self.source.suffix == ".py" else "a model"

    def check(self, context: click.Context) -> None:
        """Raise `InputError` for options that contradict each other, and files that cannot be written."""
        if self.kind == "a directory":
            for name, option in (("hw", "--hw"), ("settings", "--set")):
                if context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT:
                    own = f"{self.source} was compiled for a machine of its own"
                    raise InputError(f"{option} goes with a model: {own}")
        else:
            machine(self.options["hw"], self.options["settings"])  # before the compiler is imported
        self.files.check()
        if self.source is not None:
            for name in _SHAPE_OPTIONS:
                if self.options[name] not in ("int8", 0, None):
                    raise InputError(f"--{name.replace('_', '-')} goes with --matmul, not with a model")
        device = self.options["device"] is not None
        if device and not self.options["device"].startswith(("uart:", "mmio:")):
            raise InputError(
                f"--device must be uart:PORT[@BAUD] or mmio:CSR,MEMORY, not {self.options['device']!r}"
            )
        if device and self.kind in ("--matmul", "a tile program"):
            raise InputError(f"--device goes with a model or a compiled one, not with {self.title}")
        for kind in (self.kind, "--device") if device else (self.kind,):
            for name, belongs in _REFUSED[kind].items():
                if self.options[name]:
                    raise InputError(f"--{name.replace('_', '-')} goes with {belongs}, not with {kind}")


@click.command("run")
@click.argument("model", required=False, type=PATH, metavar="[MODEL.onnx|PROGRAM.py|DIR]")
@click.option("--matmul", metavar="MxKxN", help="Run one GEMM of this shape instead of a model.")
@click.option("--type-a", type=click.Choice(list(TYPES)), default="int8", help="Type of A (with --matmul).")
@click.option("--type-b", type=click.Choice(list(TYPES)), default="int8", help="Type of B (with --matmul).")
@click.option("--zero-a", type=int, default=0, metavar="N", help="Zero point of A (with --matmul).")
@click.option("--zero-b", type=int, default=0, metavar="N", help="Zero point of B (with --matmul).")
@click.option("--transpose-a", is_flag=True, help="A is stored as [K, M] (with --matmul).")
@click.option("--transpose-b", is_flag=True, help="B is stored as [N, K] (with --matmul).")
@click.option("--batch", metavar="N[xN...]", help="Batch dimensions (with --matmul).")
@click.option("--epilogue", metavar="FILE.py:FUNCTION", help="Applied to every sum (with --matmul).")
@click.option("--out", type=click.Choice([*TYPES, "int32"]), default="int8", help="Type that it stores.")
@hardware
@reading
@backend
@click.option(
    "--device", metavar="ADDRESS", help="A board: uart:PORT[@BAUD] or mmio:CSR[@OFF],MEM[@OFF][+SIZE][=BASE]."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Seed of random inputs.")
@click.option("--stall", type=int, metavar="SEED", help="Stall the memory at random, with this seed.")
@memories
@click.option("--base", metavar="ADDRESS", type=address, default="0", help="Base address in memory.")
@refinement
@click.option("--waves", type=PATH, metavar="FILE", help="Write waveforms, .fst or .vcd (docs/waves.md).")
@click.option("--waves-from", type=int, metavar="CYCLE", help="First cycle to record.")
@click.option("--waves-to", type=int, metavar="CYCLE", help="Last cycle to record.")
@click.option("--waves-around", metavar="OPERATOR", help="Record around an operator, or `divergence`.")
@click.option(
    "--waves-scope", multiple=True, metavar="NAME", help="Record only this part: gemm, cgra.pe*; repeatable."
)
@click.option("--trace", type=PATH, metavar="FILE", help="Write a trace for Perfetto (JSON).")
@click.option("--report", type=PATH, metavar="FILE.html", help="Write a report of the run as one HTML page.")
@click.option("--compare", type=click.Choice(["onnxruntime"]), help="Also compare every tensor of a model.")
@click.option("--host-only", is_flag=True, help="Accept a model that runs entirely on the host.")
@click.option("--inputs", type=PATH, metavar="FILE.npz", help="Inputs by name (A and B with --matmul).")
@printing
@click.option("--outputs", type=PATH, metavar="FILE.npz", help="Write the results (C with --matmul).")
@as_json
@click.pass_context
def command(context: click.Context, /, model: Path | None, json_: bool, **options: Any) -> int:
    """Run a model or a program on the RTL, and verify its results and cycles.

    The source is a model, a directory of `heald compile`, a tile program (PROGRAM.py), or a GEMM (--matmul).
    Inputs (of a tile program: parameters and buffers in memory) are random if not given. Results must equal a
    NumPy reference, or those of the sequential tile program, bit for bit (docs/network.md). Every event must
    happen in the predicted cycle. With --device, a model runs on a board, and only its results are compared.
    Ports are load_a, load_b, load_c and store.
    """
    if (model is None) == (options["matmul"] is None):
        raise InputError("run must be given either a model file or --matmul MxKxN")
    options["waves"] = waves = Waves.asked(**{n: v for n, v in options.items() if n.startswith("waves")})
    paths = {name: options[name] for name in ("inputs", "outputs", "trace", "report")}
    files = Files(**paths, waves=waves.file if waves else None)
    asked = _Run(model, files, options)
    asked.check(context)
    with shown(note) as say:
        run = _ran(asked, say)
    write(run, files)
    device = options["device"] is not None
    if json_:
        print_json(run.as_dict())
        if run.first_divergence is not None:
            note(f"{run.first_divergence[0].name}: {run.first_divergence[1]}")
    elif device:
        _show(run)
    else:
        from heald.report.table import print_report

        print_report(run, stdout(140))
    return 0 if run.verified else 1


def _ran(asked: _Run, say: Progress) -> Run:
    """Compile and run the request; errors name the file or option that they are about."""
    ports, seed = port_options(asked.options), asked.options["seed"]
    address = asked.options["device"]
    if address is not None:
        from heald.model_run import check_device  # the compiler behind it takes time to import

        say(f"looking for the machine at {address}")  # not after minutes
        own = asked.kind == "a directory"
        check_device(address, None if own else machine(asked.options["hw"], asked.options["settings"]))
    with about(None):
        arrays = None if asked.files.inputs is None else read_inputs(asked.files.inputs)
        made = _compiled(asked, arrays, ports, say)
        if asked.options["compare"]:
            made.check_reference()  # now, not after minutes
        with about(asked.files.inputs or asked.source):
            given = made.given(arrays, seed, exact=True)
        ports |= {name: asked.options[name] for name in ("waves", "base", "host_only")}
        run = made.run(given, on=address or asked.options["sim"], seed=seed, progress=say, **ports)
        if asked.options["compare"]:
            say("onnxruntime executes the model")
            run.compare_reference()
        if asked.options["report"]:
            run.advise(say)
    return replace(run, title=asked.title)


def _compiled(
    asked: _Run, arrays: dict[str, np.ndarray] | None, ports: dict[str, Any], say: Progress
) -> Model:
    """The source, loaded from a compiled directory or compiled now."""
    # These import the compiler, which takes time.
    from cosim.session.arguments import function_of
    from heald import session
    from heald.problems import EpilogueSource, Problem
    from sw.dfg.text import FunctionText

    options = asked.options
    if asked.kind == "a directory":
        return session.load(str(asked.source))
    config, source = machine(options["hw"], options["settings"]), asked.source
    found: Any = source
    if source is None:
        found = Problem(shape := _product(options))
        if options["epilogue"] is not None:
            file, name = function_of(options["epilogue"], "an epilogue must be FILE.py:FUNCTION")
            finish = EpilogueSource.read(FunctionText.from_file(file, name))
            found = Problem(shape, finish, options["out"])
        elif arrays is not None:
            _check_operands(shape, arrays, asked.files.inputs)
    elif asked.kind == "a model":
        found = model_source(source, options)
        if arrays is not None:
            with about(asked.files.inputs):
                found.check(arrays, whole=True)  # now, not after minutes
    return session.compile(
        found,
        config,
        refine=options["refine"],
        inputs=arrays or {},
        seed=options["seed"],
        after=printer(options["print_after"], options["print_after_all"]),
        # A single operator compiles instantly.
        progress=say if source is not None else lambda text: None,
        **ports,
    )


def _product(options: dict[str, Any]) -> Product:
    """The product that `--matmul` and its options describe."""
    m, k, n = sizes("--matmul", options["matmul"], "MxKxN")
    batch = sizes("--batch", options["batch"], "N or NxN...") if options["batch"] is not None else ()
    return Product(*(m, k, n, *(options[name] for name in _OPERANDS), batch, batch))


def _check_operands(problem: Product, arrays: dict[str, np.ndarray], file: Path | None) -> None:
    """Raise `InputError` unless a file holds A and B in the form that the product needs."""
    if sorted(arrays) != ["A", "B"]:
        raise InputError(f"{file}: must hold A and B, not {', '.join(sorted(arrays)) or 'nothing'}")
    with about(file):
        problem.check(arrays["A"], arrays["B"])


def _show(run: Run) -> None:
    """Print a board's cycles and results."""
    table = Table("program", "cycles", "seconds", "stopped by", box=None)
    for result in run.results:
        o = result.observed
        table.add_row(
            result.name, f"{o.cycles:,}", f"{o.seconds:.2f}", o.error.text if o.error is not None else ""
        )
    console = stdout()
    console.print(table)
    for check in run.checks:
        if check.ok:
            told = {"results": "every result equals the reference's, bit for bit"}
            text = told.get(check.name, check.what)
            console.print(f"\N{CHECK MARK} {text}", markup=False, highlight=False)
        else:
            console.print(f"\N{BALLOT X} {check.detail}", markup=False, highlight=False)
