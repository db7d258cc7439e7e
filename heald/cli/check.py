"""`heald check`: check warp programs against their sequential tile program."""

from __future__ import annotations

import re

import click
from rich.text import Text

from cosim.session.warps import verdict_on
from heald.cli.options import as_json, hardware, machine, note, print_json, program_file
from heald.report.console import plain_table, stdout
from hw.errors import InputError
from sw.check import Verdict
from sw.ir.load import STDIN, load_object, load_program, named
from sw.warps.assign import assign_warps


@click.command("check")
@program_file
@click.argument("programs", metavar="PROGRAMS.json")
@hardware
@click.option("--samples-suffice", is_flag=True, help="Accept a check of sampled parameter values only.")
@as_json
@click.pass_context
def command(
    context: click.Context,
    file: str,
    programs: str,
    hw: str,
    settings: tuple[str, ...],
    samples_suffice: bool,
    json_: bool,
) -> int:
    """Check warp programs against their sequential tile program (docs/check.md).

    PROGRAMS.json maps warp numbers to assembly, {"0": "...", "1": "..."}, or is the output of `heald warps
    --json`. Instructions without warp= get the warps that `heald warps` assigns. If the programs are wrong,
    the command prints a schedule that shows how and exits with code 1.
    """
    if file == programs == STDIN:
        raise InputError("FILE.py and PROGRAMS.json cannot both be standard input")
    program, texts, config = assign_warps(load_program(file)), read_programs(programs), machine(hw, settings)
    unknown = [w for w in texts if w >= config.warps]
    if unknown:
        raise InputError(f"{programs}: warp {unknown[0]}: the machine has warps 0 to {config.warps - 1}")
    try:
        verdict = verdict_on(program, texts, config, samples_suffice=samples_suffice)
    except RecursionError:
        raise InputError(f"{programs}: nested too deep") from None
    if json_:
        print_json(verdict.as_dict())
    else:
        _render(verdict)
    if verdict.ok and verdict.reason:
        note(verdict.reason)
    # Exit code of a failed check.
    return 0 if verdict.ok else 1


def read_programs(path: str) -> dict[int, str]:
    """Read assembly by warp from a file; raises `InputError`."""
    name, found = named(path), load_object(path, "assembly by warp")
    found = found.get("programs", found)
    if not isinstance(found, dict):
        raise InputError(f"{name}: must be an object of assembly by warp, not {type(found).__name__}")
    texts = {}
    for key, text in found.items():
        if not re.fullmatch(r"0|[1-9][0-9]{0,3}", key):
            raise InputError(f"{name}: a key must be the number of a warp, not {key!r}")
        if not isinstance(text, str):
            raise InputError(f"{name}: warp {key}: must be assembly text, not {type(text).__name__}")
        texts[int(key)] = text
    return texts


def _render(verdict: Verdict) -> None:
    console = stdout()
    if not verdict.ok:
        console.print(Text("\n".join(verdict.failure)))
        return
    over = f" over {verdict.bindings} choices of parameters" if verdict.bindings > 1 else ""
    console.print(
        Text(
            f"correct ({verdict.method}): {verdict.dependences:,} dependences between {verdict.instances:,} "
            f"instances are enforced{over}; no deadlock"
        )
    )
    if not verdict.channels:
        return
    table = plain_table("channel", "from", "to", "tokens", "at most")
    for number, flow in sorted(verdict.channels.items()):
        ends = [", ".join(map(str, warps)) or "none" for warps in (flow.source, flow.sink)]
        table.add_row(str(number), *ends, str(flow.tokens), str(flow.most))
    console.print(table)
