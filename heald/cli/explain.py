"""`heald explain`: where every node of a model runs, why, and what would change it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heald.cli.options import PATH, as_json, changes, dimensions, fixed, machine, print_json, run_time
from hw.errors import InputError

if TYPE_CHECKING:
    # The compiler behind it takes time to import.
    from heald.sources import OnnxSource
    from hw.config import MachineConfig
    from sw.graph.network import Network


@click.command("explain")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@click.option("--hw", metavar="PRESET|FILE.toml", help="Compile for this machine, and tell what it refuses.")
@changes
@dimensions
@run_time
@fixed
@click.option("--inputs", type=PATH, metavar="FILE.npz", help="Values of inputs that the compiler must know.")
@as_json
def command(
    model: Path,
    hw: str | None,
    settings: tuple[str, ...],
    dim: dict[str, int],
    dynamic: bool,
    fixed_point: bool,
    inputs: Path | None,
    json_: bool,
) -> int:
    """Tell which nodes of MODEL.onnx the machine does not execute, why, and what would change it.

    Nodes whose operands are real numbers that other such nodes make are told apart: they follow from these.
    With --hw or --set it is compiled, and what is too much for that machine is told too. The others then run
    on the host with --allow-host: what moves between both is the last line. Exit code 1 where there are any.
    """
    from heald.cli.run_files import read_inputs
    from heald.sources import onnx_source
    from sw.graph import accuracy
    from sw.graph.islands import islands, told

    config = machine(hw or "default", settings) if hw is not None or settings else None
    source = onnx_source(model, allow_host=True, dims=dim, dynamic=dynamic, fixed_point=fixed_point)
    if inputs is not None:
        given = read_inputs(inputs)
        with contextlib.suppress(InputError):  # what is refused all the same is told below
            source = source.read(given, 0)[0]
    refusals = source.refusals()
    network = None
    if not any(r.lost for r in refusals):
        source, network = _compiled(source, config)
    found = () if network is None else islands(network, network.operators)
    fixed_ = {} if network is None else network.accuracy
    if json_:
        print_json(
            {
                "refused": [r.as_dict() for r in refusals],
                "too_much": dict(source.hosted),
                "operators": [] if network is None else _operators(network),
                "islands": [island.as_dict() for island in found],
                "fixed_point": {n: a.as_dict() for n, a in fixed_.items()},
            }
        )
        return 1 if refusals or source.hosted else 0
    for refusal in refusals:
        follows = " (follows from others)" if refusal.follows else ""
        click.echo(f"{refusal}{follows}\n    {refusal.remedy}")
    for name, reason in source.hosted.items():
        click.echo(f"{reason if name in reason else f'{name}: {reason}'}\n    another machine (--hw, --set)")
    causes = sum(not r.follows for r in refusals)
    click.echo(
        f"{len(refusals)} refused, {causes} of them by themselves" if refusals else "nothing is refused"
    )
    for line in (*told(found), *accuracy.told(fixed_)):
        click.echo(line)
    return 1 if refusals or source.hosted else 0


def _compiled(source: OnnxSource, config: MachineConfig | None) -> tuple[Any, Network]:
    from heald import partition
    from sw.compiler import compile_network

    network = source.network()
    if config is None:
        return source, network
    with source.named():
        found, _ = partition.compiled(source, network, lambda graph: compile_network(graph, config))
    return found, found.network()


def _operators(network: Network) -> list[dict[str, Any]]:
    from sw.graph.host import HostOperator

    entries = []
    for operator in network.operators:
        entry = {"name": operator.name, "op": operator.op, "nodes": list(operator.nodes), "where": "machine"}
        if isinstance(operator, HostOperator):
            entry |= {"where": "edge" if operator.edge else "host", "why": operator.reason}
        entries.append(entry)
    return entries
