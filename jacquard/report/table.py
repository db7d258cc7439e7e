"""The table of a run for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from jacquard.execute import Report, Result

#: Names of what bounds a product, for people.
BOUNDS = {"gemm": "array", "load_a": "load A", "load_b": "load B", "store": "store"}
_BAR = 10
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_report(report: Report, title: str, console: Console) -> None:
    """One row per product, then what was proven and how fast."""
    c = report.config
    console.print()
    console.print(
        f"[bold]{title}[/] on [bold]{c.name}[/]: {c.rows}×{c.cols} array, machine {c.hash}", highlight=False
    )
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=len(report.results) > 1)
    table.add_column("product", "total", no_wrap=True, max_width=32, overflow="ellipsis")
    table.add_column("M×K×N", no_wrap=True)
    table.add_column("cycles", f"{report.cycles:,}", justify="right", no_wrap=True)
    table.add_column("at least", f"{_least(report):,}", justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("array busy", _bar(report.utilization), no_wrap=True)
    table.add_column("result", no_wrap=True)
    table.add_column("cycle-exact", no_wrap=True)
    for result in report.results:
        table.add_row(*_row(result))
    console.print(table)
    console.print()
    for line in _verdict(report):
        console.print(line, highlight=False)


def _row(result: Result) -> tuple[str | Text, ...]:
    error = result.observed.error
    result_text = Text("= NumPy", "green") if result.correct else Text("WRONG", "bold red")
    if error is not None:
        result_text = Text(error.cause.name.lower(), "bold red")
    exact = result.divergence is None
    return (
        Text(result.task.name),
        str(result.task.problem).replace("x", "×"),
        f"{result.observed.cycles:,}",
        f"{result.kernel.bound_cycles(result.bandwidth):,}",
        BOUNDS[result.bound],
        _bar(result.utilization),
        result_text,
        Text(f"{len(result.observed.events):,} events", "green") if exact else Text("DIVERGES", "bold red"),
    )


def _least(report: Report) -> int:
    return sum(r.kernel.bound_cycles(r.bandwidth) for r in report.results)


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
        lines.append("[green]✓[/] every result equals NumPy's, bit for bit")
    else:
        wrong = [r.task.name for r in report.results if not r.correct]
        lines.append(Text(f"✗ wrong results: {', '.join(wrong)}", "bold red"))
    if first is None:
        lines.append(f"[green]✓[/] model and RTL agree on the cycle of all {report.events:,} events")
    else:
        lines.append(Text(f"✗ {first[0].task.name}: {first[1]}", "bold red"))
    speed = report.cycles / report.sim_seconds if report.sim_seconds else 0
    lines.append(
        f"[dim]build {report.build_seconds:.1f} s · simulation {report.sim_seconds:.1f} s "
        f"({speed:,.0f} cycles/s, {report.sim}) · model {report.model_seconds:.2f} s[/]"
    )
    return lines
