"""Cycles of known problems and layers by the cycle model, compared with a record.

    python -m bench.cycles [--only sync|prediction|hoisting|layers ...] [--record] [--json]

Covers the 38 problems of `bench.sync`, the 96 of `bench.prediction`, the 114 programs of `bench.hoisting`,
and three layers: BERT (that of `make demo`), BERT-large, and a bottleneck of ResNet-50. The record,
`bench/cycles.json`, has the cycles and the instruction words of all warps. Exit code 1 if a program takes
over 0.1 % more cycles, or a set takes more in total. `--record` writes the results as the new record.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from bench.layers import LAYERS
from bench.prediction import MACHINES, bert, draw, draw_convolution, resnet
from bench.sync import CHANNELS, DEPTH
from cosim.jobs import job_of
from cosim.models.cycle import predict
from cosim.session.tiling import plan_for_machine
from cosim.settings import MemorySettings
from heald.testing.problems import compile_problem
from hw.config import PORTS, MachineConfig, load
from sw.compile.stages import Compiled
from sw.compiler import compile_network
from sw.frontend.network import import_model

RECORD = Path(__file__).with_suffix(".json")
#: Fraction by which a program's cycles may exceed the record.
TOLERANCE = 0.001
#: Random products and convolutions per machine in the set `prediction`.
PRODUCTS, CONVOLUTIONS = 24, 8


@dataclass(frozen=True)
class Figures:
    """One program: cycles, and instruction words of all warps."""

    cycles: int
    words: int


Measurement = tuple[str, Callable[[], Figures]]


def sync() -> Iterator[Measurement]:
    """The problems of `bench.sync`, compiled for `default`, on the machine that all schemes run on."""
    config = load("default")
    large = config.replace(channels=CHANNELS, channel_depth=DEPTH)
    for name, problems in (("bert", bert()), ("resnet", resnet())):
        for problem in problems:
            yield f"sync/{name}/{problem}", lambda p=problem: _problem(p, config, large)


def prediction() -> Iterator[Measurement]:
    """The problems of `bench.prediction`, with the tiles that it uses."""
    for name in MACHINES:
        config = load(name)
        settings = MemorySettings.of(config, bandwidth={p: config.port_bytes(p) for p in PORTS})
        drawn = [draw(config, f"{name}/{i}") for i in range(PRODUCTS)]
        drawn += [draw_convolution(config, f"{name}/{i}") for i in range(CONVOLUTIONS)]
        for number, problem in enumerate(drawn):

            def measured(p=problem, c=config, s=settings) -> Figures:
                return _problem(p, c, c, blocking=plan_for_machine(p, c, s, 0).blocking)

            yield f"prediction/{name}/{number}/{problem}", measured


def hoisting() -> Iterator[Measurement]:
    """The programs of `bench.hoisting`, with the compiler's own strategy."""
    for registers in (8, 16, 32):
        config = load("default").replace(registers=registers)
        for problem in [*bert(), *resnet()]:
            yield f"hoisting/{registers}/{problem}", lambda p=problem, c=config: _problem(p, c, c)


def layers() -> Iterator[Measurement]:
    """Whole layers on `default`."""
    for name, write in LAYERS.items():
        yield f"layers/{name}", lambda w=write: _layer(w)


SETS: dict[str, Callable[[], Iterator[Measurement]]] = {
    f.__name__: f for f in (sync, prediction, hoisting, layers)
}


def _problem(problem, config, machine, **options) -> Figures:
    program = compile_problem(problem, config, **options)
    return _figures([program], machine)


def _layer(write: Callable[[Path], None]) -> Figures:
    config = load("default")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.onnx"
        write(path)
        steps = compile_network(import_model(path), config)
    return _figures([s for s in steps if isinstance(s, Compiled)], config)


def _figures(programs: list[Compiled], machine: MachineConfig) -> Figures:
    settings = MemorySettings.of(machine)
    cycles = sum(predict(machine, job_of(p, {}, settings), values=False).cycles for p in programs)
    return Figures(cycles, sum(len(words) for p in programs for words in p.programs.values()))


# Comparison


def worse(name: str, found: Mapping[str, Figures], record: Mapping[str, Figures]) -> list[str]:
    """What takes more cycles than on record: single programs of a set, or the whole set."""
    own = {key: f for key, f in found.items() if key.startswith(f"{name}/") and key in record}
    lines = [
        f"{key}: {f.cycles:,} cycles, {record[key].cycles:,} on record"
        for key, f in own.items()
        if f.cycles > record[key].cycles * (1 + TOLERANCE)
    ]
    now, before = (sum(figures[key].cycles for key in own) for figures in (found, record))
    if now > before:
        lines.append(f"{name}, all: {now:,} cycles, {before:,} on record")
    return lines


def table(found: Mapping[str, Figures], record: Mapping[str, Figures]) -> Table:
    """A row for each set."""
    made = Table(box=None, header_style="dim")
    for column in ("set", "programs", "cycles", "on record", "fewer", "more", "words", "on record"):
        made.add_column(column, justify="left" if column == "set" else "right")
    for name in SETS:
        keys = [k for k in found if k.startswith(f"{name}/") and k in record]
        if keys:
            pairs = [(found[k], record[k]) for k in keys]
            made.add_row(
                name,
                str(len(keys)),
                f"{sum(a.cycles for a, _ in pairs):,}",
                f"{sum(b.cycles for _, b in pairs):,}",
                str(sum(a.cycles < b.cycles for a, b in pairs)),
                str(sum(a.cycles > b.cycles for a, b in pairs)),
                f"{sum(a.words for a, _ in pairs):,}",
                f"{sum(b.words for _, b in pairs):,}",
            )
    return made


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice(list(SETS)), help="Default: all.")
@click.option("--record", "write", is_flag=True, help="Write what was found as the new record.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def main(names: tuple[str, ...], write: bool, as_json: bool) -> None:
    """Measure, and compare with the record."""
    measurements = [m for name in names or SETS for m in SETS[name]()]
    console = Console(stderr=True)
    found = {key: measure() for key, measure in track(measurements, "programs", console=console)}
    record = {k: Figures(**v) for k, v in json.loads(RECORD.read_text("utf-8")).items()}
    if write:
        merged = {k: vars(f) for k, f in sorted({**record, **found}.items())}
        RECORD.write_text(json.dumps(merged, indent=0) + "\n", "utf-8")
    lines = [line for name in names or SETS for line in worse(name, found, record)]
    if as_json:
        print(json.dumps({"figures": {k: vars(f) for k, f in found.items()}, "worse": lines}))
    else:
        Console(width=120).print(table(found, record))
        for line in lines:
            print(line)
        print(f"{len(found)} programs: {len(lines)} findings")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
