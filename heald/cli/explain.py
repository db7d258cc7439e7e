"""`heald explain`: list the nodes that do not run on the machine, why, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heald.cli.options import PATH, as_json, changes, known, machine, model_source, note, print_json, reading
from heald.progress import shown

if TYPE_CHECKING:
    # These import the compiler, which takes time.
    from hw.config import MachineConfig
    from sw.frontend.refusal import Refusal
    from sw.graph.network import Network


@click.command("explain")
@click.argument("model", type=PATH, metavar="MODEL.onnx")
@click.option("--hw", metavar="PRESET|FILE.toml", help="Also list what this machine refuses.")
@changes
@reading
@known
@click.option(
    "--advise", is_flag=True, help="Predict the cycles, what bounds them, and what would help most."
)
@as_json
def command(
    model: Path,
    hw: str | None,
    settings: tuple[str, ...],
    inputs: Path | None,
    advise: bool,
    json_: bool,
    **options: Any,
) -> int:
    """List the nodes that the machine cannot execute, why, and what would help.

    Nodes that may be refused only because another one is are marked. With --hw or --set, the model is also
    compiled for that machine, and what exceeds it is listed too. --advise adds a prediction of the cycles.
    The last lines show what moves between machine and host. The exit code is 1 if a node is refused; with
    --allow-host, only if the host cannot execute it either.
    """
    from cosim.session.network import advice_on
    from heald.cli.run_files import read_inputs
    from sw.graph import accuracy
    from sw.graph.islands import islands, told

    config = machine(hw or "default", settings) if hw is not None or settings or advise else None
    source, allow_host = model_source(model, options | {"allow_host": True}), options["allow_host"]
    if inputs is not None:
        source = source.given(read_inputs(inputs, source))
    refusals = source.refusals()
    network, to_do, lost = None, "", any(r.lost for r in refusals)
    if not lost:
        source, network, to_do = _compiled(source, config, allow_host)
    code = 1 if lost or ((refusals or source.hosted) and not allow_host) else 0
    found = () if network is None else islands(network, network.operators)
    fixed_ = {} if network is None else network.accuracy
    advice = None
    if advise and network is not None and config is not None:
        with source.named(), shown(note) as say:
            advice = advice_on(network, config, say)
    if json_:
        print_json(
            {
                "refused": [r.as_dict() for r in refusals],
                "too_much": dict(source.hosted),
                "too_much_remedy": to_do,
                "operators": [] if network is None else _operators(network),
                "islands": [island.as_dict() for island in found],
                "fixed_point": {n: a.as_dict() for n, a in fixed_.items()},
                **({"advice": advice.as_dict()} if advice is not None else {}),
            }
        )
        return code
    _print([replace(r, lost=r.lost or allow_host) for r in refusals], source.hosted, to_do, bool(code))
    for line in told(found):
        click.echo(line if allow_host else f"with --allow-host: {line}")
    for line in accuracy.told(fixed_):
        click.echo(line)
    for sentence in advice.sentences if advice is not None else ():
        click.echo(sentence)
    return code


def _print(refusals: Sequence[Refusal], too_much: Mapping[str, str], to_do: str, refused: bool) -> None:
    """Print what is refused or left to the host, what would change that, and the totals."""
    entries = [(f"{r} (another one may be the cause)" if r.follows else str(r), r.remedy) for r in refusals]
    entries += [(why if name in why else f"{name}: {why}", to_do) for name, why in too_much.items()]
    for text, remedy in entries:
        click.echo(f"{text}\n    {remedy}" if remedy else text)
    follow, verb = sum(r.follows for r in refusals), "refused" if refused else "left to the host"
    others = f", {follow} of them perhaps only because of others" if follow else ""
    machine_ = f", {len(too_much)} of them by this machine" if too_much and refusals else ""
    click.echo(f"{len(entries)} {verb}{others}{machine_}" if entries else "nothing is refused")


def _compiled(source: Any, config: MachineConfig | None, host: bool) -> tuple[Any, Network, str]:
    """The model with the refused operators on the host, its network, and what to do about them."""
    from heald import partition
    from sw.compiler import compile_network

    network = source.network()
    if config is None:
        return source, network, ""
    with source.named(), shown(note) as say:
        say(f"compiling for machine {config.name!r}, to see what it refuses")
        source, _ = partition.compiled(source, network, lambda graph: compile_network(graph, config))
    to_do = partition.remedy(network, source.hosted, config, host=not host) if source.hosted else ""
    return source, source.network(), to_do


def _operators(network: Network) -> list[dict[str, Any]]:
    from sw.graph.host import HostOperator

    entries = []
    for operator in network.operators:
        entry = {"name": operator.name, "op": operator.op, "nodes": list(operator.nodes), "where": "machine"}
        if isinstance(operator, HostOperator):
            entry |= {"where": "edge" if operator.edge else "host", "why": operator.reason}
        entries.append(entry)
    return entries
