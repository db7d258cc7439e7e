"""The table of a run for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jacquard.results import Report, Result

#: Names of what bounds a product, for people.
BOUNDS = {"gemm": "array", "load_a": "load A", "load_b": "load B", "load_c": "load C", "store": "store"}
_BAR = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_report(report: Report, title: str, console: Console) -> None:
    """One row per product or program, then what was proven and how fast."""
    c = report.config
    products = not any(r.op == "program" for r in report.results)
    console.print()
    console.print(
        f"[bold]{title}[/] on [bold]{c.name}[/]: {c.rows}×{c.cols} array, machine {c.hash}", highlight=False
    )
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=len(report.results) > 1)
    table.add_column(
        "product" if products else "program", "total", no_wrap=True, max_width=32, overflow="ellipsis"
    )
    table.add_column("M×K×N" if products else "size", no_wrap=True)
    table.add_column("cycles", f"{report.cycles:,}", justify="right", no_wrap=True)
    table.add_column("at least", f"{report.bound_cycles:,}", justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("array busy", _bar(report.utilization), no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("cycle-exact", no_wrap=True)
    for result in report.results:
        table.add_row(*_row(result, report.reference))
    console.print(table)
    console.print()
    for line in _verdict(report):
        console.print(line, highlight=False)


def _row(result: Result, reference: str) -> tuple[str | Text, ...]:
    error = result.observed.error
    result_text = (
        Text(f"= {reference.removeprefix('the ')}", "green") if result.correct else Text("WRONG", "bold red")
    )
    if error is not None:
        result_text = Text(error.cause.name.lower(), "bold red")
    exact = result.divergence is None
    return (
        Text(result.name),
        result.shape.replace("x", "×"),
        f"{result.observed.cycles:,}",
        f"{result.bound_cycles:,}",
        BOUNDS[result.bound],
        _bar(result.utilization),
        result_text,
        Text(f"{len(result.observed.events):,} events", "green") if exact else Text("DIVERGES", "bold red"),
    )


def _bar(share: float) -> Text:
    """A share as percent and bar."""
    eighths = round(min(max(share, 0.0), 1.0) * _BAR * 8)
    whole, part = divmod(eighths, 8)
    bar = "█" * whole + (_EIGHTHS[part] if part else "")
    return Text.assemble(f"{100 * share:5.1f} % ", (bar.ljust(_BAR), "cyan"))


def _verdict(report: Report) -> list[str | Text]:
    first = report.first_divergence
    lines: list[str | Text] = []
    if report.correct:
        lines.append(f"[green]✓[/] every result equals {report.reference}'s, bit for bit")
    else:
        wrong = [r.name for r in report.results if not r.correct]
        lines.append(Text(f"✗ wrong results: {', '.join(wrong)}", "bold red"))
    if first is None:
        lines.append(f"[green]✓[/] model and RTL agree on the cycle of all {report.events:,} events")
    else:
        lines.append(Text(f"✗ {first[0].name}: {first[1]}", "bold red"))
    if report.rejected is not None:
        result, verdict = report.rejected
        said = "the warps are wrong: " if verdict.schedule else ""
        lines.append(Text(f"✗ {result.name}: {said}{verdict.reason}", "bold red"))
        lines += [Text(f"  {line}") for line in verdict.schedule]
    else:
        count = sum(r.checked.dependences for r in report.results)
        lines.append(f"[green]✓[/] the warps enforce all {count:,} dependences between them")
    speed = report.cycles / report.sim_seconds if report.sim_seconds else 0
    lines.append(
        f"[dim]build {report.build_seconds:.1f} s · simulation {report.sim_seconds:.1f} s "
        f"({speed:,.0f} cycles/s, {report.sim}) · model {report.model_seconds:.2f} s[/]"
    )
    return lines
