"""Random quantised models: operators against onnxruntime, programs on the RTL against model and reference.

    python -m tests.fuzz.random_models --count 100 --seed 0 [--hw test] [--no-rtl]

Prints a line per kind of operator; exit code 1 if anything was wrong.
"""

from __future__ import annotations

import random
import re
import traceback
from collections import Counter
from functools import cache

import click
from rich.console import Console
from rich.table import Table

from cosim.backends import simulator
from cosim.job import Simulator
from cosim.settings import MemorySettings
from heald.testing.models import draw
from heald.testing.operators import KINDS
from heald.testing.problems import memories
from heald.testing.views import IMAGES, VIEWS
from hw.config import load
from tests.heald.judged_models import Judged, judged

ALL = {**KINDS, **VIEWS, **IMAGES}


def judge(name: str, hw: str, kinds: tuple[str, ...], rtl: bool) -> Judged:
    """What becomes of the model of a seed; an exception is a failure."""
    config = load(hw)
    model, drawn = draw(name, {k: ALL[k] for k in kinds})

    r = random.Random(name)
    settings = memories(config, r) if r.random() < 0.5 else MemorySettings.of(config)

    @cache
    def machine() -> Simulator:
        return simulator(config, "cpp")

    try:
        return judged(model, drawn, config, r.randrange(1 << 32), machine if rtl else None, settings)
    except Exception as error:  # whatever it is, it is a failure of this model
        place = traceback.extract_tb(error.__traceback__)[-1]
        text = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"
        return Judged(drawn, wrong=1, failures=[text])


def table(found: list[Judged]) -> Table:
    """A row per kind: models with it, and what became of them."""
    made = Table("kind", "operators", "models", "run", "refused", "wrong", "diverged")
    for kind in ALL:
        own = [j for j in found if kind in j.kinds]
        made.add_row(
            kind,
            *(
                f"{v:,}"
                for v in (
                    sum(Counter(j.kinds)[kind] for j in own),
                    len(own),
                    sum(not j.refused for j in own),
                    sum(bool(j.refused) for j in own),
                    sum(j.wrong > 0 for j in own),
                    sum(j.diverged for j in own),
                )
            ),
        )
    return made


@click.command()
@click.option("--count", default=100, show_default=True, help="Models.")
@click.option("--seed", default=0, show_default=True)
@click.option("--first", default=0, show_default=True, help="Number of the first model.")
@click.option("--hw", default="test", show_default=True, help="Preset or file of the machine.")
@click.option("--no-rtl", is_flag=True, help="Compare with onnxruntime only.")
@click.option("--kind", multiple=True, type=click.Choice(list(ALL)), help="Default: all.")
def main(count: int, seed: int, first: int, hw: str, no_rtl: bool, kind: tuple[str, ...]) -> None:
    """Prove or break the compiler of models with random ones."""
    found: list[Judged] = []
    for number in range(first, first + count):
        name = f"{seed}/{number}"
        one = judge(name, hw, kind or tuple(ALL), not no_rtl)
        found.append(one)
        for text in (*one.failures, *([f"refused: {one.refused}"] if not one.documented else [])):
            click.echo(f"{name} ({', '.join(one.kinds)}): {text}")
    Console(width=110).print(table(found))
    refused = Counter(re.sub(r"node \S+|\d+", "...", j.refused)[:99] for j in found if j.refused)
    for text, times in refused.most_common():
        click.echo(f"refused {times}: {text}")
    rounded, elements = sum(j.rounded for j in found), sum(j.elements for j in found)
    apart, outputs = sum(j.apart for j in found), sum(j.outputs for j in found)
    click.echo(
        f"{elements:,} elements of {sum(j.operators for j in found):,} operators: "
        f"{rounded:,} rounded otherwise"
    )
    click.echo(f"{outputs:,} elements of whole models' outputs: {apart:,} differ from onnxruntime's")
    programs, cycles = sum(j.programs for j in found), sum(j.cycles for j in found)
    click.echo(f"{programs:,} programs, {cycles:,} cycles")
    beyond, diverged = sum(j.wrong for j in found), sum(j.diverged for j in found)
    run = sum(not j.refused for j in found)
    click.echo(
        f"{len(found)} models: run {run}, refused {len(found) - run}, "
        f"differences beyond rounding {beyond}, divergences {diverged}"
    )
    raise SystemExit(not all(j.good for j in found))


if __name__ == "__main__":
    main()
