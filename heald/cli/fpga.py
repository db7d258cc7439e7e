"""`heald fpga`: synthesise, place and route a machine, and write the files for a tool flow."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

from heald.cli.options import as_json, directory, hardware, machine, note, print_json
from heald.fpga import check_target, write
from heald.progress import shown, stages
from heald.report.console import stdout
from hw.errors import InputError
from hw.rtl.bus.protocol import Serial
from hw.synthesis import DEVICES, FAMILIES, find_device
from hw.synthesis.fit import estimated_fit
from hw.synthesis.flow import BAUD, FREQUENCY, MEMORY_BYTES, TOPS, Build, Target, Top, build, design
from hw.synthesis.report import as_json as result
from hw.synthesis.report import clock_name, path
from hw.synthesis.resources import DEFAULT, NAMES
from hw.synthesis.tools import find

if TYPE_CHECKING:
    from hw.rtl.bus.board import Board

#: Largest seed that the placers accept.
LAST_SEED = (1 << 31) - 1
#: Options that only placement and routing uses.
_PLACEMENT = ("device", "speed", "package", "board", "seed", "seeds")


@click.command("fpga")
@hardware
@click.option("--family", default="ecp5", show_default=True, metavar="|".join(FAMILIES), help="FPGA family.")
@click.option("--device", metavar="|".join(list(DEVICES)[:4]), help=f"ECP5 device (default: {DEFAULT}).")
@click.option("--speed", type=int, metavar="6|7|8", help="Speed grade of the device.")
@click.option("--package", metavar="NAME", help="Package of the device.")
@click.option(
    "--board",
    metavar="NAME|FILE.toml",
    help="A board, such as ulx3s, which sets device and pins; implies --top board.",
)
@click.option(
    "--top",
    metavar="|".join(TOPS),
    help="Interface around the machine: none, AXI4, a UART, or a board's pins (default: core).",
)
@click.option(
    "--memory",
    type=int,
    default=MEMORY_BYTES,
    show_default=True,
    metavar="BYTES",
    help="Size of the block RAM behind the UART.",
)
@click.option("--baud", type=int, default=BAUD, show_default=True, help="Bits per second of the UART.")
@click.option("--frequency", type=float, metavar="MHZ", help="Target clock; exit code 1 if missed.")
@click.option(
    "--seed", type=click.IntRange(0, LAST_SEED), default=1, show_default=True, help="Seed of the placement."
)
@click.option(
    "--seeds",
    type=click.IntRange(1, 100),
    default=1,
    show_default=True,
    metavar="K",
    help="Try K seeds, starting at --seed, and keep the best.",
)
@click.option("--synth-only", is_flag=True, help="Synthesise only; do not place and route.")
@directory("Output directory.", required=False)
@as_json
def command(hw: str, settings: tuple[str, ...], output: Path | None, json_: bool, **options: Any) -> int:
    """Build a machine for an FPGA: clock, resources, critical path, build files.

    For ECP5, Heald synthesises, places and routes; for Xilinx (7 series), it only synthesises.
    """
    config = machine(hw, settings)
    top, board, target = _target(options)
    if output is not None:
        check_target(output)
    find("yosys")
    if target.device is not None:
        find("nextpnr-ecp5")
        if board is not None and output is not None:
            find("ecppack")
        memory = options["memory"] if top.name in ("uart", "board") else 0
        note(estimated_fit(config, target.device, memory))
    with shown(stages(note)) as tell:
        tell(f"generating {TOPS[top.name].module} of {config.name} ({config.hash})")
        serial = Serial(options["memory"], round(target.frequency * 1e6), options["baud"])
        made = build(config, design(config, top, board, serial), target, tell)
        files = [] if output is None else write(made, output)
    missed = (options["frequency"] or board) and made.placement is not None and not made.placement.reached
    if json_:
        print_json(result(made, [str(file) for file in files]))
    else:
        _show(made, stdout(80))
        for file in files:
            click.echo(file)
    if missed:
        note(f"heald: {target.frequency:g} MHz is not reached: {made.fmax_mhz:.2f} MHz")
    return 1 if missed else 0


def _target(options: dict[str, Any]) -> tuple[Top, Board | None, Target]:
    """Top, board and target from the options; raises `InputError` for options that contradict each other."""
    for name, known in (("family", FAMILIES), ("top", TOPS)):
        if options[name] is not None and options[name] not in known:
            raise InputError(f"--{name} must be one of {', '.join(known)}, not {options[name]!r}")
    frequency = options["frequency"]
    if frequency is not None and not 1 <= frequency <= 1000:
        raise InputError(f"--frequency must be from 1 to 1000 MHz, not {frequency:g}")
    board = None
    if options["board"] is not None:
        from hw.rtl.bus.board import load_board  # importing Amaranth takes half a second

        board = load_board(options["board"])
    top = TOPS[options["top"] or ("board" if board else "core")]
    if board is not None and top.name != "board":
        raise InputError(f"--board must not be given with --top {top.name}")
    if board is None and top.name == "board":
        from hw.rtl.bus.board import board_names

        raise InputError(f"--top board needs --board: one of {', '.join(board_names())}, or a TOML file")
    for name in ("memory", "baud"):
        if _given(name) and top.name not in ("uart", "board"):
            raise InputError(f"--{name} must not be given with --top {top.name}")
    given = [name for name in _PLACEMENT if _given(name)]
    if options["family"] != "ecp5":
        if given or top.name == "board":
            raise InputError(
                f"--{(given or ['top board'])[0]} must not be given for {options['family']}: "
                "it is synthesised only"
            )
        return top, None, Target(options["family"], None, "", 0, frequency or FREQUENCY, ())
    name, package, speed = (options[key] for key in ("device", "package", "speed"))
    if name is None:
        name = board.device if board else DEFAULT
    device = find_device(name)
    if package is None:
        package = board.package if board else device.package
    if speed is None:
        speed = board.speed if board else device.speed()
    if not package:
        raise InputError(f"the package must be one of {', '.join(device.packages)}, not {package!r}")
    device.check(package, speed)
    if board is not None and (device.name, package, speed) != (board.device, board.package, board.speed):
        raise InputError(
            f"the board {board.name} has the device {board.device}, package {board.package}, "
            f"speed grade {board.speed}"
        )
    if options["synth_only"] and {"seed", "seeds"} & set(given):
        raise InputError("--seed and --seeds must not be given with --synth-only")
    seeds = tuple(range(options["seed"], options["seed"] + options["seeds"]))
    placed = None if options["synth_only"] else device
    return top, board, Target("ecp5", placed, package, speed, frequency or FREQUENCY, seeds)


def _given(name: str) -> bool:
    """Whether an option was given on the command line."""
    return click.get_current_context().get_parameter_source(name) is ParameterSource.COMMANDLINE


def _show(made: Build, console: Console) -> None:
    """Print resources by component, clock and critical path."""
    data = result(made, [])
    table = Table("component", box=None, pad_edge=False, header_style="dim", show_footer=True)
    table.columns[0].footer = "all"
    for field, name in NAMES.items():
        table.add_column(name, f"{data[field]:,}", justify="right")
    for row in data["components"]:
        table.add_row(row["component"], *(f"{row[field]:,}" for field in NAMES))
    say = functools.partial(console.print, highlight=False)
    say(f"{made.config.name} ({made.config.hash}), top {made.design.module}")
    console.print(table)
    placement = made.placement
    if placement is None:
        say(f"synthesised only, for {made.target.family}")
        return
    for field, use in data["utilisation"].items():
        share = use["used"] / use["available"]
        say(f"{NAMES[field]}: {use['used']:,} of {use['available']:,} in {placement.device} ({share:.0%})")
    for name, (reached, required) in placement.clocks.items():
        say(f"{clock_name(name)}: {reached:.2f} MHz (aimed at {required:g}), seed {placement.seed}")
    if critical := path(placement):
        say(
            f"critical path: {critical['delay_ns']:.2f} ns from {critical['from']} to {critical['to']}, "
            f"through {', '.join(critical['components'])}"
        )
