"""ZigZag, Stream, AccelForge and SCALE-Sim beside the machine, for layers of four networks.

    python -m bench.peers [--tools zigzag,accelforge] [--layers REGEX] [--machine PRESET] [--rtl N] [--json]
    python -m bench.peers --export zigzag --machine tiny > tiny.yaml      # the machine in a tool's YAML
    python -m bench.peers --import tpu_like.yaml > mine.toml              # a machine from a tool's YAML
    python -m bench.peers --anchors [--json]                              # published cycles, rerun

The first run creates an environment for each tool. Answers are cached, so an interrupted run resumes.
bench/peers/README.md describes the machine's model in each tool, bench/README.md the results.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from bench.peers import anchors, asking, machines, ours, table
from bench.peers.asking import Answer
from bench.peers.environments import environment
from bench.peers.layers import Layer, layers
from bench.peers.table import Row
from bench.peers.tools import TOOLS, Tool
from heald.progress import shown
from hw import processes
from hw.config import FIELDS, MachineConfig, load
from hw.errors import InputError

#: Seconds between progress lines.
PULSE = 5.0


def say(text: str) -> None:
    """Print a line of progress."""
    click.echo(text, err=True)


@contextmanager
def _told() -> Iterator[None]:
    """Report bad input in one line with exit code 2; exit with 130 for an interrupt, 143 for SIGTERM."""
    try:
        yield
    except InputError as error:
        click.echo(f"Error: {error}", err=True)
        sys.exit(2)
    except KeyboardInterrupt as error:
        say("stopped: what was answered is kept, the same command goes on")
        sys.exit(128 + (error.number if isinstance(error, processes.Ended) else processes.ENDING[0]))


class Asked:
    """All questions: each (tool, machine, layer) is asked once, however many layers share it."""

    def __init__(self, config: MachineConfig, tools: Sequence[Tool], chosen: Sequence[Layer]):
        self.config, self.tools = config, tools
        self.layers = list({layer.shape: layer for layer in chosen}.values())
        self.answers: dict[tuple[str, str], Answer] = {}

    def run(self, timeout: float, jobs: int) -> None:
        """Ask what is not known yet, small layers first."""
        open_questions = []
        for layer in sorted(self.layers, key=lambda one: one.problem.macs):
            for tool in self.tools:
                known = asking.stored(asking.kept(tool, self.config, layer))
                if known is None:
                    open_questions.append((tool, layer))
                else:
                    self.answers[tool.name, layer.shape] = known
        say(f"{len(self.answers)} answers are known, {len(open_questions)} questions to ask")
        if open_questions:
            self._ask(open_questions, timeout, jobs)

    def _ask(self, questions: Sequence[tuple[Tool, Layer]], timeout: float, jobs: int) -> None:
        pool = ThreadPoolExecutor(jobs)
        begin, done, started = time.monotonic(), 0, dict[Future[Answer], tuple[Tool, Layer]]()
        try:
            pythons = {tool.name: self._python(pool, tool) for tool in dict.fromkeys(t for t, _ in questions)}
            waiting = list(reversed(questions))
            while waiting or started:
                while waiting and len(started) < jobs:
                    tool, layer = waiting.pop()
                    job = (asking.ask, tool, pythons[tool.name], self.config, layer, timeout)
                    started[pool.submit(*job)] = tool, layer
                finished, _ = wait(started, PULSE, FIRST_COMPLETED)
                for future in finished:
                    tool, layer = started.pop(future)
                    self.answers[tool.name, layer.shape] = answer = future.result()
                    done += 1
                    found = answer.failed or f"{answer.cycles:,.0f} cycles"
                    count = f"{done} of {len(questions)}"
                    say(f"{count}: {tool.title}, {layer.title}: {found}, {table.seconds(answer.seconds)}")
                if not finished:
                    names = ", ".join(f"{tool.title} {layer.title}" for tool, layer in started.values())
                    say(f"{done} of {len(questions)}, {time.monotonic() - begin:,.0f} s: {names}")
        finally:
            # Threads end with the processes that they wait for.
            processes.end_all()
            pool.shutdown(cancel_futures=True)

    def _python(self, pool: ThreadPoolExecutor, tool: Tool) -> Path:
        future, begin = pool.submit(environment, tool, say), time.monotonic()
        while not wait([future], PULSE).done:
            say(f"{tool.title}: makes its environment, {time.monotonic() - begin:,.0f} s")
        return future.result()

    def rows(self, chosen: Sequence[Layer]) -> list[Row]:
        """The lines of the table."""
        own: dict[str, Answer] = {}
        then = time.monotonic()
        for number, layer in enumerate(self.layers):
            own[layer.shape] = ours.predicted(self.config, layer)
            if time.monotonic() - then > PULSE - 1:
                then = time.monotonic()
                say(f"our cycles: {number + 1} of {len(self.layers)}")
        return [
            Row(one, own[one.shape], {t.name: self.answers[t.name, one.shape] for t in self.tools})
            for one in chosen
        ]


def on_rtl(config: MachineConfig, rows: Sequence[Row], count: int) -> bool:
    """Run the fastest layers on the RTL; returns whether cycles and results are as predicted."""
    good = True
    distinct = {row.layer.shape: row for row in rows if row.ours.cycles is not None}.values()
    with shown(say) as progress:
        for row in sorted(distinct, key=lambda r: r.ours.cycles or 0)[:count]:
            title = row.layer.title
            progress(f"RTL: {title}")
            cycles, fine = ours.observed(config, row.layer)
            fine &= cycles == row.ours.cycles
            good &= fine
            progress(f"RTL: {title}: {cycles:,} cycles, {'as predicted, bit-exact' if fine else 'DIFFERS'}")
    return good


def toml(config: MachineConfig, notes: Sequence[str]) -> str:
    """The fields read from a tool's file, as TOML, with notes as comments."""
    lines = [f"# {note}" for note in dict.fromkeys(notes)]
    for name in FIELDS:
        value = getattr(config, name)
        if name != "cgra" and (name == "name" or value != FIELDS[name].default):
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines)


#: The text above; its block of commands keeps its line breaks.
HELP = (__doc__ or "").replace("\n\n    python", "\n\n\b\n    python")


@click.command(help=HELP)
@click.option("--tools", "named", default=",".join(TOOLS), show_default=True, help="Which tools, by commas.")
@click.option("--layers", "pattern", default="", help="Only layers whose `NETWORK LAYER` matches REGEX.")
@click.option("--machine", default="default", show_default=True, help="Preset or TOML file.")
@click.option(
    "--timeout",
    default=600.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds for a tool and layer.",
)
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(1), help="Questions at once.")
@click.option("--rtl", default=0, type=click.IntRange(0), help="Run the N quickest layers on the RTL, too.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--markdown", is_flag=True, help="The table for a document.")
@click.option("--export", "target", type=click.Choice(list(machines.EXPORTERS)), help="Write the machine.")
@click.option("--import", "source", type=click.Path(path_type=Path), help="Read a machine.")
@click.option("--anchors", "published", is_flag=True, help="Cycles that others published, and ours.")
def main(
    named: str,
    pattern: str,
    machine: str,
    timeout: float,
    jobs: int,
    rtl: int,
    as_json: bool,
    markdown: bool,
    target: str | None,
    source: Path | None,
    published: bool,
) -> None:
    """Ask, and print the table and a summary of each tool."""
    with _told():
        if source is not None:
            config, notes = machines.read(source)
            click.echo(toml(config, notes))
            return
        if published:
            show_anchors(as_json)
            return
        config = load(machine)
        if target is not None:
            click.echo(machines.export(target, config), nl=False)
            return
        tools, chosen = chosen_tools(named), chosen_layers(pattern)
        asked = Asked(config, tools, chosen)
        asked.run(timeout, jobs)
        rows = asked.rows(chosen)
        good = on_rtl(config, rows, rtl)
        show(rows, [t.name for t in tools], as_json, markdown)
    sys.exit(0 if good else 1)


def chosen_tools(named: str) -> list[Tool]:
    """The tools of `--tools`."""
    names = [name.strip() for name in named.split(",")]
    for name in names:
        if name not in TOOLS:
            raise InputError(f"--tools must name some of {', '.join(TOOLS)}, not {name!r}")
    return [TOOLS[name] for name in dict.fromkeys(names)]


def chosen_layers(pattern: str) -> list[Layer]:
    """The layers of `--layers`."""
    try:
        found = [layer for layer in layers() if re.search(pattern, layer.title)]
    except re.error as error:
        raise InputError(f"--layers must be a regular expression, not {pattern!r}: {error}") from None
    if not found:
        raise InputError(f"--layers must match a layer such as 'resnet-50 conv1', {pattern!r} matches none")
    return found


def show_anchors(as_json: bool) -> None:
    """Run the layers of all anchors, and print both."""
    with shown(say) as progress:
        found = anchors.rerun(anchors.anchors(), progress)
    if as_json:
        click.echo(json.dumps({"anchors": [one.as_dict() for one in found]}))
        return
    Console(width=max(160, Console().width)).print(anchors.table(found))
    click.echo("\n".join(anchors.notes(found)))


def show(rows: Sequence[Row], tools: Sequence[str], as_json: bool, markdown: bool) -> None:
    """Print the results."""
    found = [table.summary(tool, rows) for tool in tools]
    if as_json:
        versions = {tool: TOOLS[tool].version for tool in tools}
        made = {"versions": versions, "layers": [row.as_dict() for row in rows]}
        click.echo(json.dumps(made | {"summary": [one.as_dict() for one in found]}))
        return
    if markdown:
        click.echo(table.markdown(rows, tools))
    else:
        Console(width=max(240, Console().width)).print(table.table(rows, tools))
    for one in found:
        click.echo("\n".join(table.sentences(one)))


if __name__ == "__main__":
    processes.install()
    main()
