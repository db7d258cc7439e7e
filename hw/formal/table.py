"""Results of proofs, as a table and as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hw.formal.proof import Method, Proof
from hw.formal.prover import Outcome
from hw.formal.tools import Tools


@dataclass(frozen=True)
class Report:
    """The outcome of one proof and of its planted faults (None if no faults were planted)."""

    proof: Proof
    outcome: Outcome
    faults: tuple[Outcome, ...] | None

    def planted(self, statement: str) -> int:
        """Number of faults planted against a statement."""
        return sum(fault.breaks == statement for fault in self.proof.faults)

    def found(self, statement: str) -> int:
        """Number of these that were found."""
        names = {fault.name for fault in self.proof.faults if fault.breaks == statement}
        return len({o.fault for o in self.faults or () if o.holds and o.fault in names})

    @property
    def holds(self) -> bool:
        """Whether the proof succeeded and, with faults, all were found, at least one for every statement."""
        if self.faults is None:
            return self.outcome.holds
        return self.outcome.holds and all(
            0 < self.planted(statement) == self.found(statement) for statement in self.proof.statements
        )

    @property
    def how(self) -> str:
        """The method of the proof and, if bounded, its number of cycles."""
        bounded = self.outcome.method == Method.BOUNDED.value
        return f"bounded {self.outcome.depth}" if bounded else self.outcome.method


def reports(outcomes: list[Outcome], proofs: Mapping[str, Proof], *, faults: bool) -> list[Report]:
    """Groups outcomes by proof; `faults` says whether faults were to be planted."""
    return [
        Report(
            proofs[o.proof],
            o,
            tuple(f for f in outcomes if f.proof == o.proof and f.fault is not None) if faults else None,
        )
        for o in outcomes
        if o.fault is None
    ]


def show(results: list[Report], console: Console) -> None:
    """Prints each property with its component, method, seconds and faults found; then the failures.

    All properties of a component are proved together: the seconds of the proof are shown with the first one.
    """
    planted = any(r.faults is not None for r in results)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("property", "component", "how"):
        table.add_column(column, no_wrap=True)
    for column in ("seconds", *(["faults"] if planted else [])):
        table.add_column(column, justify="right", no_wrap=True)
    for report in results:
        how = report.how if report.outcome.holds else "[bold red]not proved[/]"
        for number, statement in enumerate(report.proof.statements):
            seconds = "" if number else f"{report.outcome.seconds:.1f}"
            row = [statement, report.proof.name, how, seconds]
            if planted:
                found, of = report.found(statement), report.planted(statement)
                text = f"{found} of {of}"
                row.append(text if 0 < found == of else f"[bold red]{text}[/]")
            table.add_row(*row)
    # Without a terminal, lines are not cut.
    console.print(table, width=max(console.width, 80), crop=False, soft_wrap=not console.is_terminal)
    for report in results:
        for outcome in (report.outcome, *(report.faults or ())):
            if not outcome.holds:
                name = outcome.proof + (f", fault {outcome.fault}" if outcome.fault else "")
                trace = f"; trace: {outcome.trace}" if outcome.trace else ""
                console.print(f"[bold red]{name}[/]: {escape(outcome.reason)}{trace}", soft_wrap=True)
    console.print(_summary(results), soft_wrap=True)


def _summary(results: list[Report]) -> str:
    proved = sum(len(r.proof.statements) for r in results if r.outcome.holds)
    text = f"{proved} of {sum(len(r.proof.statements) for r in results)} properties proved"
    if any(r.faults is not None for r in results):
        found = sum(r.found(s) for r in results for s in r.proof.statements)
        text += f", {found} of {sum(len(r.proof.faults) for r in results)} planted faults found"
    return f"{text}; {_seconds(results):.0f} s of work"


def _seconds(results: list[Report]) -> float:
    return sum(o.seconds for r in results for o in (r.outcome, *(r.faults or ())))


def as_data(results: list[Report], tools: Tools) -> dict[str, object]:
    """The object that `--json` prints."""
    return {
        "solvers": {method.value: solver.name for method, solver in tools.solvers.items()},
        "holds": all(r.holds for r in results),
        "seconds": _seconds(results),
        "proofs": [_report_data(r) for r in results],
    }


def _report_data(report: Report) -> dict[str, object]:
    named = {fault.name: fault for fault in report.proof.faults}
    data: dict[str, object] = {
        "proof": report.proof.name,
        "component": report.proof.title,
        "how": report.outcome.method,
        **_shared(
            report.outcome, "depth", "seconds", "processor_seconds", "holds", "failed", "reason", "trace"
        ),
        "properties": [
            {"property": name, "statement": statement} for name, statement in report.proof.statements.items()
        ],
    }
    if report.faults is not None:
        for entry in data["properties"]:  # type: ignore[attr-defined]
            name = entry["property"]
            entry |= {"faults_planted": report.planted(name), "faults_found": report.found(name)}
        data["faults"] = [
            {"fault": o.fault, "meaning": named[o.fault].meaning, "breaks": named[o.fault].breaks}
            | {"found": o.holds, **_shared(o, "depth", "seconds", "processor_seconds", "reason", "trace")}
            for o in report.faults
            if o.fault is not None
        ]
    return data


def _shared(outcome: Outcome, *names: str) -> dict[str, object]:
    return {name: getattr(outcome, name) for name in names}


def page(proofs: Mapping[str, Proof]) -> str:
    """All statements and faults as Markdown (for docs/formal.md); proofs of the same share a table."""
    groups: dict[tuple[str, ...], list[Proof]] = {}
    for proof in proofs.values():
        groups.setdefault(tuple(proof.statements.values()), []).append(proof)
    lines = []
    for group in groups.values():
        lines += [f"### {'; '.join(p.title for p in group)}", ""]
        for proof in group:
            unit = "depth" if proof.method is Method.INDUCTION else "cycles"
            lines.append(f"- `{proof.name}`: {proof.method.value}, {unit} {proof.depth}")
        lines += ["", "| property | statement | planted faults that break it |", "| --- | --- | --- |"]
        for name, statement in group[0].statements.items():
            faults = dict.fromkeys(f.meaning for p in group for f in p.faults if f.breaks == name)
            lines.append(f"| `{name}` | {statement} | {'; '.join(faults)} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
