"""`heald explain`: which nodes of a model the machine does not execute, why, and what would change it."""

from __future__ import annotations

from pathlib import Path

import click

from heald.cli.options import PATH, as_json, dimensions, print_json


@click.command("explain")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@dimensions
@as_json
def command(model: Path, dim: dict[str, int], json_: bool) -> int:
    """Tell which nodes of MODEL.onnx the machine does not execute, why, and what would change it.

    Nodes whose operands are real numbers that other such nodes make are told apart: they follow from these.
    Exit code 1 where there are any.
    """
    # The compiler behind it takes time to import.
    from heald.sources import onnx_source

    refusals = onnx_source(model, dims=dim).refusals()
    if json_:
        print_json({"refused": [r.as_dict() for r in refusals]})
    else:
        for refusal in refusals:
            follows = " (follows from others)" if refusal.follows else ""
            click.echo(f"{refusal}{follows}\n    {refusal.remedy}")
        click.echo(f"{len(refusals)} refused, {sum(not r.follows for r in refusals)} of them by themselves")
    return 1 if refusals else 0
