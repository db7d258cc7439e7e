"""Shared by several commands: options, tile programs, output."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from cosim.backends import BACKENDS
from hw.config import PORTS, MachineConfig, load, parse_setting
from hw.errors import InputError
from sw.frontend.sizes import parse_sizes
from sw.ir.program import Program

F = TypeVar("F", bound=Callable[..., Any])
#: Type of options that name files.
PATH = click.Path(path_type=Path)

#: `--set`, as `settings`.
changes = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override one field of the machine; repeatable.",
)
#: `--allow-host`, as `allow_host`.
host = click.option(
    "--allow-host", is_flag=True, help="Let the host run nodes that the machine cannot (models only)."
)
#: `--dim`, as `dim`.
dimensions = click.option(
    "--dim",
    multiple=True,
    metavar="NAME=SIZE",
    callback=lambda context, option, texts: parse_sizes(texts),
    help="Set a size that the model leaves open, by its name or as INPUT.AXIS; repeatable.",
)
#: `--dynamic`, as `dynamic`.
run_time = click.option(
    "--dynamic",
    is_flag=True,
    help="Quantise activations at run time where only weights are quantised (models only).",
)
#: `--fixed-point`, as `fixed_point`.
fixed = click.option(
    "--fixed-point",
    is_flag=True,
    help="Use fixed point, with a stated error bound, where no exact integer form exists (models only).",
)
#: `--inputs`, as `inputs`.
known = click.option(
    "--inputs", type=PATH, metavar="FILE.npz", help="Values of inputs that the compiler needs to know."
)
#: `--refine`, as `refine`.
refinement = click.option(
    "--refine",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Compile the best N plans, predict their cycles exactly, and use the fastest.",
)
#: `--sim`, as `sim`.
backend = click.option(
    "--sim", type=click.Choice(BACKENDS), default="verilator", show_default=True, help="Simulator of the RTL."
)


def _load_plugins(context: click.Context, option: click.Parameter, files: tuple[Path, ...]) -> None:
    for file in files:
        from sw.plugins import load_plugin  # the compiler behind it takes time to import

        load_plugin(file)


#: `--plugin`, which is done with before the command begins.
plugins = click.option(
    "--plugin",
    type=PATH,
    multiple=True,
    expose_value=False,
    callback=_load_plugins,
    metavar="FILE.py",
    help="Execute a Python file that registers operators; repeatable.",
)
#: `--grid`, which `grid_size` reads.
grid_option = click.option(
    "--grid", metavar="RxC", help="Rows and columns of the CGRA, instead of the fabric's own."
)
#: `--json`, as `json_`.
as_json = click.option("--json", "json_", is_flag=True, help="Print one JSON object on stdout.")
#: The argument FILE.py, as `file`, for `load_program`.
program_file = click.argument("file", metavar="FILE.py|-")


def hardware(function: F) -> F:
    """`--hw` and `--set`; the command gets them as `hw` and `settings`, for `machine`."""
    function = changes(function)
    return click.option(
        "--hw", default="default", show_default=True, metavar="PRESET|FILE.toml", help="The machine."
    )(function)


def reading(function: F) -> F:
    """Options for reading a model: `--allow-host`, `--dim`, `--dynamic`, `--fixed-point` and `--plugin`."""
    return host(dimensions(run_time(fixed(plugins(function)))))


def model_source(model: Path, options: Mapping[str, Any]) -> Any:
    """Read a model file as an `OnnxSource`, with the options of `reading`."""
    from heald.sources import onnx_source  # this imports the compiler, which takes time

    names = ("allow_host", "dynamic", "fixed_point")
    return onnx_source(model, dims=options["dim"], **{name: options[name] for name in names})


def directory(about: str, *, required: bool = True) -> Callable[[F], F]:
    """`-o DIR`, as `output`."""
    return click.option("-o", "--output", type=PATH, required=required, metavar="DIR", help=about)


def machine(hw: str, settings: tuple[str, ...]) -> MachineConfig:
    """The machine that `--hw` and `--set` describe."""
    return load(hw, dict(parse_setting(text) for text in settings))


def memories(function: F) -> F:
    """`--latency` and `--bandwidth`; the command gets texts, for `port_options`."""
    function = click.option(
        "--bandwidth", multiple=True, metavar="PORT=N", help="Bytes per cycle of a memory port; repeatable."
    )(function)
    return click.option(
        "--latency", multiple=True, metavar="PORT=N", help="Latency of a memory port in cycles; repeatable."
    )(function)


def port_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """`--latency`, `--bandwidth` and, if the command has it, `--stall`, as the session takes them."""
    ports = {name: _by_port(f"--{name}", options[name]) for name in ("latency", "bandwidth")}
    return {**ports, "stall": options.get("stall")}


def _by_port(option: str, texts: tuple[str, ...]) -> dict[str, int]:
    """Parse `PORT=N` options into numbers by memory port."""
    values = {}
    for text in texts:
        port, sign, number = text.partition("=")
        if not sign or port not in PORTS or not re.fullmatch(r"[0-9]{1,9}", number):
            raise InputError(f"{option} must be PORT=N with a port of {', '.join(PORTS)}, not {text!r}")
        values[port] = int(number)
    return values


def sizes(option: str, text: str, form: str) -> tuple[int, ...]:
    """Parse whole numbers joined by x: as many as `form` has, or any number if it is not all letters."""
    several = form.isalpha() and text.count("x") != form.count("x")
    if not re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9})*", text) or several:
        example = re.sub("[A-Z]+", "8", form)
        raise InputError(f"{option} must be {form} with whole numbers, not {text!r} (for example {example})")
    return tuple(int(size) for size in text.split("x"))


def grid_size(text: str | None) -> tuple[int, int] | None:
    """Parse `RxC` into rows and columns."""
    if text is None:
        return None
    rows, cols = sizes("--grid", text, "ROWSxCOLS")
    return rows, cols


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    click.echo(json.dumps(value, indent=2))


def note(text: str) -> None:
    """Print a line of progress on stderr, ignoring errors of stderr."""
    with contextlib.suppress(OSError):
        click.echo(text, err=True)


def printing(function: F) -> F:
    """`--print-after` and `--print-after-all`; the command gets both, for `printer`."""
    function = click.option(
        "--print-after", metavar="STAGE", help="Print the result of this stage on stderr (docs/compile.md)."
    )(function)
    return click.option(
        "--print-after-all", is_flag=True, help="Print the tile program after every stage on stderr."
    )(function)


def printer(stage: str | None, every: bool) -> Callable[[str, Program | str], None] | None:
    """A function that prints the results of one stage or of all; raises `InputError` for an unknown stage."""
    if every or stage is None:
        return print_after if every else None
    # This imports the compiler, which takes time.
    from sw.compiler import PIPELINE

    names = [step.name for step in PIPELINE]
    if stage not in names:
        raise InputError(f"--print-after must be one of {', '.join(names)}, not {stage!r}")

    def show(step: str, made: Program | str) -> None:
        if step.partition(",")[0] == stage:
            print_after(step, made)

    return show


def print_after(step: str, program: Program | str) -> None:
    """Print a program, or a graph's text, on stderr, below the name of the stage that made it."""
    note(f"# ----- after {step} -----\n{program}")
