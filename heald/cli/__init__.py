"""The `heald` command: one module per subcommand, and the exit codes."""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

try:
    import click

    from heald import __version__
    from heald.cli.messages import shortened
    from heald.cli.streams import STDOUT, leave_streams, open_streams
    from hw.errors import InputError, of_surroundings
    from hw.processes import Ended, asked, install

    #: In the order of the help; each is a module with a `command`.
    COMMANDS = (
        *("run", "compare", "compile", "explain", "explore", "tile", "opt", "check", "config", "isa", "csr"),
        *("disasm", "verilog", "deps", "warps", "map", "cgra", "fabric", "fpga"),
    )
    _modules = [importlib.import_module(f"heald.cli.{name}") for name in COMMANDS]
except BaseException as error:  # importing the libraries behind the commands takes seconds
    # In some places Python wraps an interrupt in another error, so the causes are searched too.
    causes: list[BaseException | None] = [error]
    while (cause := causes[-1]) is not None:
        causes.append(cause.__cause__ or cause.__context__)
    if not any(isinstance(cause, KeyboardInterrupt) for cause in causes):
        raise
    print("heald: interrupted", file=sys.stderr)
    raise SystemExit(130) from None

OK, FAILED, BAD_INPUT, INTERNAL, INTERRUPTED, PIPE_CLOSED = 0, 1, 2, 70, 130, 141
#: Meaning of the exit codes, for the help.
_EXIT_CODES = """\b
Exit codes:
  0    success
  1    a check failed
  2    invalid input, or an error of a file, memory or disk; the last line says what is wrong
  70   internal error of Heald
  129  ended by SIGHUP    130  interrupted (Ctrl-C)
  141  the reader of the output closed the pipe    143  ended by SIGTERM"""


@click.group(
    invoke_without_command=True,
    epilog=_EXIT_CODES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.option("--debug", is_flag=True, help="Show the traceback of an internal error.")
@click.version_option(__version__)
@click.pass_context
def cli(context: click.Context, debug: bool) -> None:
    """Generate an AI accelerator, compile models for it, and verify its RTL cycle by cycle."""
    context.ensure_object(dict)["debug"] = debug
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _module in _modules:
    cli.add_command(_module.command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit; users see no traceback unless they ask for one."""
    install()
    open_streams()
    # Programs are trees of small objects; garbage collection took an eighth of the compilation time.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    code = call(arguments)
    leave_streams()
    sys.exit(code)


def call(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    state: dict[str, bool] = {}
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _invoked(given, state)
        sys.stdout.flush()
        return code if isinstance(code, int) else OK
    except InputError as error:
        return _say(str(error), BAD_INPUT)
    except click.UsageError as error:
        path = "heald" if error.ctx is None else error.ctx.command_path
        bare = isinstance(error, click.exceptions.NoArgsIsHelpError)
        text = f"`{path}` needs a command" if bare else error.format_message().rstrip(".")
        return _say(f"{text} (see `{path} --help`)", BAD_INPUT)
    except click.ClickException as error:
        return _say(error.format_message(), BAD_INPUT)
    except Ended as error:
        return _ended(error)
    except (click.Abort, KeyboardInterrupt):
        return _say("interrupted", INTERRUPTED)
    except Exception as error:
        if (number := asked()) is not None:
            return _ended(Ended(number))  # what was running was killed, and failed
        # The only catch-all: a user gets a line, a developer the traceback.
        if state.get("debug"):
            traceback.print_exc()
        return _unexpected(error, debug=bool(state.get("debug")))


def _invoked(arguments: list[str], state: dict[str, bool]) -> Any:
    """Run the command. Click's own entry point would hide interrupts, ends of files and closed pipes."""
    try:
        with cli.make_context("heald", arguments, obj=state) as context:
            return cli.invoke(context)
    except click.exceptions.Exit as error:
        return error.exit_code


def _ended(error: Ended) -> int:
    code = 128 + error.number
    return _say("interrupted" if code == INTERRUPTED else str(error), code)


def _unexpected(error: Exception, *, debug: bool) -> int:
    """Report an unexpected error in one line and return its exit code."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, MemoryError):
        return _say(f"out of memory: {error or 'none is left'}", BAD_INPUT)
    if isinstance(error, BrokenPipeError) and error.filename == STDOUT:
        return PIPE_CLOSED  # the reader closed the pipe (`| head`)
    if isinstance(error, OSError) and (error.filename == STDOUT or of_surroundings(error)):
        place = "a file" if error.filename is None else error.filename
        return _say(f"{place}: cannot be read or written: {error.strerror or error}", BAD_INPUT)
    hint = "" if debug else " (heald --debug ... shows where)"
    return _say(f"internal error: {text}{hint}", INTERNAL)


def _say(message: str, code: int) -> int:
    """Print one line on stderr, if it can be written."""
    with contextlib.suppress(OSError):
        click.echo(shortened(f"heald: {message}"), err=True)
    return code
