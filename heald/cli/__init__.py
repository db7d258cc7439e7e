"""The command `heald`: one module per command, exit codes in one place.

0: all is well. 1: what was checked does not hold. 2: bad input, one line on stderr. 70: an error of
Heald itself. 130: interrupted.
"""

from __future__ import annotations

import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from heald import __version__
from hw.errors import InputError

OK, FAILED, BAD_INPUT, INTERNAL, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141

#: In the order of the help; each is a module with a `command`.
COMMANDS = (
    *("run", "compare", "compile", "explore", "tile", "opt", "check", "config", "isa", "csr"),
    *("disasm", "verilog", "deps", "warps", "map", "cgra", "fabric", "fpga"),
)
try:
    _modules = [importlib.import_module(f"heald.cli.{name}") for name in COMMANDS]
except KeyboardInterrupt:  # the libraries behind the commands take seconds to import
    click.echo("heald: interrupted", err=True)
    raise SystemExit(INTERRUPTED) from None


@click.group(
    invoke_without_command=True,
    epilog="Exit codes: 0 all is well, 1 what was checked does not hold, 2 bad input.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Heald: an AI accelerator and its compiler, with a cycle-exact proof."""
    context.ensure_object(dict)["debug"] = debug
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _module in _modules:
    cli.add_command(_module.command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; no traceback reaches a user who did not ask for it."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without some sign gets the rest
    # Programs are trees of small objects: an eighth of the time of a compilation went to looking for garbage.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    sys.exit(call(arguments))


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    state: dict[str, bool] = {}
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = cli.main(given, prog_name="heald", standalone_mode=False, obj=state)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except InputError as error:
        return _say(str(error), BAD_INPUT)
    except click.ClickException as error:
        return _say(error.format_message(), BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader went away (`| head`); Python would complain when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except Exception as error:
        # The one place that takes everything: a user gets a line, a developer the traceback.
        if state.get("debug"):
            traceback.print_exc()
        hint = "" if state.get("debug") else " (heald --debug ... shows where)"
        return _say(f"internal error: {type(error).__name__}: {error}{hint}", INTERNAL)


def _say(message: str, code: int) -> int:
    """One line on stderr."""
    text = " ".join(part.strip() for part in message.splitlines() if part.strip())
    click.echo(f"heald: {text}", err=True)
    return code
