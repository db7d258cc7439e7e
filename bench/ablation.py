"""What each stage of the compiler contributes: each one switched off, or simplified, over many programs.

    python -m bench.ablation [--set SET ...] [--off NAME ...] [--workers N] [--json]

The programs are the layers of `bench.layers`, 40 random products and convolutions, 40 random models, and the
114 programs of `bench.hoisting`. Each is compiled by the whole compiler and by compilers that lack something.
The table of each set has ratios to the whole compiler: cycles by the cycle model (of all programs together,
and the geometric mean), instruction words, registers (the most that a warp names), and CPU seconds of
compiling. Programs that do not compile without a stage are counted in `refused`, and in no other column.
Every compilation is a separate process, so none benefits from another's caches.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import math
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

import sw.compiler
import sw.dependence.edges
import sw.kernels.choose
import sw.kernels.mappings
import sw.tiling.candidates
import sw.tiling.uniform
from bench.layers import LAYERS
from bench.prediction import bert, resnet
from bench.schemes import barrier
from cosim.jobs import job_of
from cosim.models.cycle import predict
from cosim.settings import MemorySettings
from heald.testing.models import draw as draw_model
from heald.testing.operators import KINDS
from heald.testing.problems import draw as draw_product
from heald.testing.problems import draw_convolution
from heald.testing.views import IMAGES, VIEWS
from hw import isa
from hw.assembly import decode
from hw.config import MachineConfig, load
from hw.errors import InputError
from sw.canonical.hoist import Strategy
from sw.compile.stages import AssignWarps, Canonicalise, Compiled, Hoist, RemoveDeadStores
from sw.compiler import compile_network
from sw.frontend.network import import_model
from sw.graph.network import Network
from sw.graph.problems import network_of
from sw.ir.expression import Const
from sw.ir.program import Instruction, Interval, Program, Region, Statement
from sw.ir.walk import map_accesses, rewrite
from sw.warps.channels import Channels
from sw.warps.convert import convert
from sw.warps.reduce import Reduction

#: Numbers of random products, convolutions and models.
PRODUCTS, CONVOLUTIONS, MODELS = 28, 12, 40
#: Number of tiles, the smallest, that a compiler without a planner considers.
SMALLEST = 16


@dataclass(frozen=True)
class Figures:
    """The results of a compilation; `cycles` is None if it was refused."""

    cycles: int | None
    words: int = 0
    registers: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Ablation:
    """A compiler that lacks something: `without` says what, and the context `applied` removes it."""

    name: str
    without: str
    applied: Callable[[], contextlib.AbstractContextManager[Any]]


# What is removed


def _instead(original: Any, substitute: Any) -> contextlib.AbstractContextManager[Any]:
    """Replace an object in every module of the compiler that has imported it."""
    stack = contextlib.ExitStack()
    found = [
        (module, name)
        for key, module in list(sys.modules.items())
        if key.partition(".")[0] in ("sw", "cosim")
        for name, value in list(vars(module).items())
        if value is original
    ]
    assert found, original
    for module, name in found:
        stack.enter_context(mock.patch.object(module, name, substitute))
    return stack


def _stages(change: Callable[[Any], Any]) -> contextlib.AbstractContextManager[Any]:
    """Replace the list of stages by `change` of each stage; None removes a stage."""
    stages = [made for stage in sw.compiler.PROGRAM_STAGES if (made := change(stage)) is not None]
    return mock.patch.object(sw.compiler, "PROGRAM_STAGES", tuple(stages))


def _left_out(kind: type) -> contextlib.AbstractContextManager[Any]:
    return _stages(lambda stage: None if isinstance(stage, kind) else stage)


def _replaced(new: Any) -> contextlib.AbstractContextManager[Any]:
    return _stages(lambda stage: new if isinstance(stage, type(new)) else stage)


def _warps(**options: Any) -> contextlib.AbstractContextManager[Any]:
    """Choose waits and signals with other options."""
    return _replaced(AssignWarps(lambda program, config: convert(program, config, **options).program))


def _smallest_tiles() -> contextlib.AbstractContextManager[Any]:
    """No planner: the first of the smallest tiles that the operator can use."""
    original = sw.tiling.candidates.candidates

    def smallest(*args: Any, **options: Any) -> Iterator[Any]:
        found = sorted(
            original(*args, **options), key=lambda t: t.partition_m * t.partition_k * t.partition_n
        )
        return iter(found[:SMALLEST])

    stack = contextlib.ExitStack()
    stack.enter_context(_instead(original, smallest))
    stack.enter_context(_instead(sw.tiling.uniform.uniform, lambda *args, **options: None))
    return stack


def _whole_buffers() -> contextlib.AbstractContextManager[Any]:
    """Dependences of whole buffers instead of the regions that instructions read and write."""
    original = sw.dependence.edges.edges

    def coarse(program: Program) -> Any:
        shapes = {b.name: b.shape for b in program.buffers}

        def whole(region: Region) -> Region:
            every = tuple(Interval(Const(0), size) for size in shapes[region.buffer])
            return Region(region.buffer, every)

        def widened(s: Statement) -> Statement:
            return map_accesses(s, whole) if isinstance(s, Instruction) else s

        return original(dataclasses.replace(program, body=rewrite(program.body, widened)))

    return _instead(original, coarse)


def _no_overlap() -> contextlib.AbstractContextManager[Any]:
    """No modulo schedule: iterations of CGRA loops run one after the other."""
    original = sw.kernels.mappings.find

    def find(*args: Any, **options: Any) -> Any:
        found, cached = original(*args, **options)
        mapping = found.found
        if any(mapping.graph.edges[e].distance for e in mapping.routes):
            return found, cached
        slow = dataclasses.replace(mapping, ii=max(mapping.ii, mapping.depth))
        return dataclasses.replace(found, mapping=slow), cached

    return _instead(original, find)


def _fewer(name: str, value: object) -> contextlib.AbstractContextManager[Any]:
    """Restrict the choices for a CGRA loop."""
    return mock.patch.object(sw.kernels.choose, name, value)


ABLATIONS = (
    Ablation("none", "nothing: the whole compiler", contextlib.nullcontext),
    Ablation("tiling", "the planner: smallest tiles", _smallest_tiles),
    Ablation("dead-store", "removal of dead stores", lambda: _left_out(RemoveDeadStores)),
    Ablation("dependence", "regions: dependences of whole buffers", _whole_buffers),
    Ablation("warps", "tokens: barriers of all warps", lambda: _replaced(AssignWarps(barrier))),
    Ablation("warps.reduction", "removal of redundant waits", lambda: _warps(reduction=Reduction.OBTAINED)),
    Ablation("warps.sharing", "shared channels: one per edge", lambda: _warps(channels=Channels.UNIQUE)),
    Ablation("warps.late", "early releases", lambda: _warps(release_early=False)),
    Ablation("warps.early", "late releases", lambda: _warps(release_early=True)),
    Ablation("canonicalise", "canonical forms", lambda: _left_out(Canonicalise)),
    Ablation("hoist", "hoisting", lambda: _replaced(Hoist(Strategy.NOTHING))),
    Ablation("hoist.budget", "choice: all, in order", lambda: _replaced(Hoist(Strategy.EVERYTHING))),
    Ablation("cgra", "overlap of iterations on the CGRA", _no_overlap),
    Ablation("cgra.unrolling", "several elements in an iteration", lambda: _fewer("MASKS", (0,))),
    Ablation("cgra.seeds", "several mappings of a loop", lambda: _fewer("SEEDS", 1)),
)


# Programs


Source = tuple[str, MachineConfig, Callable[[], Network]]


def layers() -> Iterator[Source]:
    """The layers of `bench.layers` on `default`."""
    for name, write in LAYERS.items():

        def read(write: Callable[[Path], None] = write) -> Network:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "layer.onnx"
                write(path)
                return import_model(path)

        yield name, load("default"), read


def problems() -> Iterator[Source]:
    """Random products and convolutions, on three machines in turn."""
    machines = [load(name) for name in ("default", "test", "lean")]
    for number in range(PRODUCTS + CONVOLUTIONS):
        config = machines[number % len(machines)]
        draw = draw_product if number < PRODUCTS else draw_convolution
        case = draw(config, f"ablation/{number}")
        yield f"{config.name}/{case.problem}", config, functools.partial(network_of, case.problem)


def models() -> Iterator[Source]:
    """Random models on `test`."""
    for number in range(MODELS):
        yield f"model {number}", load("test"), functools.partial(_model, number)


def _model(number: int) -> Network:
    """A random model."""
    made, _ = draw_model(f"ablation/{number}", {**KINDS, **VIEWS, **IMAGES})
    return import_model(made, allow_host=True)


def hoisting() -> Iterator[Source]:
    """The programs of `bench.hoisting`."""
    for registers in (8, 16, 32):
        config = load("default").replace(registers=registers)
        for problem in [*bert(), *resnet()]:
            yield f"{registers}/{problem}", config, functools.partial(network_of, problem)


SETS = {f.__name__: f for f in (layers, problems, models, hoisting)}


# Measurements


def registers_of(programs: dict[int, list[int]]) -> int:
    """The most registers that a warp names, including r0."""
    highest = 0
    for words in programs.values():
        for word in words:
            code = decode(word)
            assert code is not None
            named = [code.fields[f.name] for f in code.spec.fields if f.kind is isa.FieldKind.REGISTER]
            highest = max(highest, code.predicate, *named, 0)
    return highest + 1


def measured(network: Network, config: MachineConfig, ablation: Ablation) -> Figures:
    """One network compiled by one compiler."""
    begin = time.process_time()
    try:
        with ablation.applied():
            steps = compile_network(network, config)
    except InputError:
        return Figures(None)
    seconds = time.process_time() - begin
    programs = [s for s in steps if isinstance(s, Compiled)]
    settings = MemorySettings.of(config)
    cycles = sum(predict(config, job_of(p, {}, settings), values=False).cycles for p in programs)
    words = sum(len(w) for p in programs for w in p.programs.values())
    return Figures(cycles, words, max((registers_of(p.programs) for p in programs), default=0), seconds)


def _task(task: tuple[str, int, int]) -> tuple[str, int, int, Figures | None]:
    """One program of a set by one compiler; None for a model that cannot be read as a network."""
    name, number, ablation = task
    _, config, read = list(SETS[name]())[number]
    try:
        network = read()
    except InputError:
        return name, number, ablation, None
    return name, number, ablation, measured(network, config, ABLATIONS[ablation])


def run(
    names: Sequence[str], chosen: Sequence[int], workers: int
) -> dict[tuple[str, int], dict[int, Figures]]:
    """Figures by set and program, then by ablation; each in its own process."""
    tasks = [(name, n, a) for name in names for n in range(len(list(SETS[name]()))) for a in chosen]
    found: dict[tuple[str, int], dict[int, Figures]] = {}
    with multiprocessing.get_context("fork").Pool(workers, maxtasksperchild=1) as pool:
        results = pool.imap_unordered(_task, tasks)
        for name, number, ablation, figures in track(
            results, "compilations", len(tasks), console=Console(stderr=True)
        ):
            if figures is not None:
                found.setdefault((name, number), {})[ablation] = figures
    return found


# Tables


@dataclass(frozen=True)
class Ratios:
    """Figures of a set without something, as ratios to those of the whole compiler."""

    name: str
    without: str
    programs: int
    refused: int
    cycles: float
    mean_cycles: float
    words: float
    registers: float
    seconds: float


def ratios(found: list[dict[int, Figures]], number: int) -> Ratios:
    """A row of a table."""
    ablation = ABLATIONS[number]
    pairs = [(f[number], f[0]) for f in found if f[0].cycles]
    kept = [(a, b) for a, b in pairs if a.cycles is not None]

    def ratio(what: str) -> float:
        above, below = (sum(getattr(pair[i], what) or 0 for pair in kept) for i in range(2))
        return above / below if below else math.nan

    logs = [math.log(a.cycles / b.cycles) for a, b in kept if a.cycles and b.cycles]
    mean = math.exp(sum(logs) / len(logs)) if logs else math.nan
    return Ratios(
        ablation.name,
        ablation.without,
        len(kept),
        len(pairs) - len(kept),
        ratio("cycles"),
        mean,
        ratio("words"),
        ratio("registers"),
        ratio("seconds"),
    )


def table(name: str, rows: Sequence[Ratios]) -> Table:
    """The ratios of a set."""
    made = Table(title=name, box=None, header_style="dim")
    made.add_column("off", no_wrap=True)
    made.add_column("without", no_wrap=True)
    for column in ("programs", "refused", "cycles", "mean", "words", "registers", "seconds"):
        made.add_column(column, justify="right")
    for r in rows:
        figures = (r.cycles, r.mean_cycles, r.words, r.registers)
        made.add_row(
            r.name,
            r.without,
            str(r.programs),
            str(r.refused),
            *(f"{x:.4f}" for x in figures),
            f"{r.seconds:.2f}",
        )
    return made


@click.command()
@click.option("--set", "names", multiple=True, type=click.Choice(list(SETS)), help="Default: all.")
@click.option("--off", multiple=True, type=click.Choice([a.name for a in ABLATIONS]), help="Default: each.")
@click.option("--workers", default=2, show_default=True, help="Compilations at a time.")
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def main(names: tuple[str, ...], off: tuple[str, ...], workers: int, as_json: bool) -> None:
    """Compile everything without each stage, and print what changes."""
    chosen = [i for i, a in enumerate(ABLATIONS) if i == 0 or not off or a.name in off]
    found = run(names or tuple(SETS), chosen, workers)
    rows = {
        name: [ratios([f for (own, _), f in sorted(found.items()) if own == name], i) for i in chosen[1:]]
        for name in names or SETS
    }
    if as_json:
        print(json.dumps({name: [asdict(r) for r in own] for name, own in rows.items()}))
        return
    console = Console(width=150)
    for name, own in rows.items():
        console.print(table(name, own))
    print(f"{len(found)} programs, {len(chosen) - 1} compilers that lack something")


if __name__ == "__main__":
    main()
