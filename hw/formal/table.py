"""The results of proofs as a table, and as data."""

from __future__ import annotations

import dataclasses

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hw.formal.proof import Proof
from hw.formal.prover import Outcome


def show(outcomes: list[Outcome], proofs: dict[str, Proof], console: Console) -> None:
    """Print proofs and planted faults with method, depth, seconds and result; then what failed."""
    table = Table(title="Proofs", title_justify="left")
    for column in ("component", "property", "method"):
        table.add_column(column, overflow="fold")
    for column in ("depth", "seconds"):
        table.add_column(column, justify="right")
    table.add_column("result", overflow="fold")
    for outcome in outcomes:
        proof = proofs[outcome.proof]
        if outcome.fault is None:
            what = "\n".join(proof.statements)
            result = "proved" if outcome.holds else f"[bold red]not proved[/]: {escape(outcome.reason)}"
        else:
            fault = next(f for f in proof.faults if f.name == outcome.fault)
            what = f"[dim]fault:[/] {escape(fault.meaning)}"
            result = f"found by {fault.breaks}" if outcome.holds else f"[bold red]{escape(outcome.reason)}[/]"
        table.add_row(
            outcome.proof, what, outcome.method, str(outcome.depth), f"{outcome.seconds:.1f}", result
        )
    console.print(table)
    for outcome in outcomes:
        if not outcome.holds:
            name = outcome.proof + (f", fault {outcome.fault}" if outcome.fault else "")
            trace = f"; trace: {outcome.trace}" if outcome.trace else ""
            console.print(f"[bold red]{name}[/]: {escape(outcome.reason)}{trace}", soft_wrap=True)


def as_data(outcomes: list[Outcome], solver: str) -> dict[str, object]:
    """What `--json` prints."""
    return {
        "solver": solver,
        "holds": all(o.holds for o in outcomes),
        "outcomes": [dataclasses.asdict(o) for o in outcomes],
    }


def page(proofs: dict[str, Proof]) -> str:
    """All statements and faults as Markdown (for docs/formal.md): a table for proofs that state the same."""
    groups: dict[tuple[str, ...], list[Proof]] = {}
    for proof in proofs.values():
        groups.setdefault(tuple(proof.statements.values()), []).append(proof)
    lines = []
    for group in groups.values():
        lines += [f"### {'; '.join(p.title for p in group)}", ""]
        for proof in group:
            depth = f"{proof.depth} [{proof.bounded_depth}]" if proof.bounded_depth else str(proof.depth)
            lines.append(f"- `{proof.name}`: {proof.method.value}, depth {depth}")
        lines += ["", "| property | statement | planted faults that break it |", "| --- | --- | --- |"]
        for name, statement in group[0].statements.items():
            faults = dict.fromkeys(f.meaning for p in group for f in p.faults if f.breaks == name)
            lines.append(f"| `{name}` | {statement} | {'; '.join(faults)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
