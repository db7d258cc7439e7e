"""The run of a kernel on the grid for people."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from jacquard.grid_run import KernelResult
from jacquard.report.console import plain_table


def print_kernel(result: KernelResult, title: str, console: Console) -> None:
    """One row per configuration, then what was proven."""
    config = result.kernel.config
    assert config.cgra is not None
    fabric = config.cgra
    console.print()
    size = f"{fabric.rows}×{fabric.cols} grid, machine {config.hash}"
    console.print(f"[bold]{title}[/] on [bold]{fabric.name}[/]: {size}", highlight=False)
    table = plain_table("configuration", ">operations", ">II", ">least II", ">depth", no_wrap=True)
    for mapped in result.kernel.program.mapped.values():
        mapping = mapped.found
        numbers = (len(mapped.graph.nodes), mapping.ii, mapped.bound.mii, mapping.depth)
        table.add_row(mapped.graph.name, *(str(n) for n in numbers))
    console.print(table)
    console.print()
    for line in _verdict(result):
        console.print(line, highlight=False)


def _verdict(result: KernelResult) -> list[Text]:
    observed, divergence = result.result.observed, result.result.divergence
    lines = []
    if result.correct:
        lines.append(Text(f"result: what the function means; returned {list(result.returned)}", "green"))
    else:
        lines.append(Text(f"result: WRONG: {result.difference}", "bold red"))
    if divergence is None:
        told = f"cycles: {observed.cycles:,}; all {len(observed.events):,} events as the model predicts"
        lines.append(Text(told, "green"))
    else:
        lines.append(Text(f"cycles: {observed.cycles:,}; the model DIVERGES: {divergence}", "bold red"))
    wrong = [text for mapped in result.kernel.program.mapped.values() for text in mapped.differences]
    if wrong:
        lines.append(Text(f"configurations: NOT the graphs: {wrong[0]}", "bold red"))
    else:
        lines.append(Text("configurations: decoded, they are the graphs", "green"))
    checked = result.result.checked
    if checked.ok:
        lines.append(Text(f"warps: accepted by the checker ({checked.method})", "green"))
    else:
        lines.append(Text(f"warps: REJECTED: {checked.reason}", "bold red"))
    return lines
