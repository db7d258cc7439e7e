"""Tables of runs on the terminal: of a model, a program, or a kernel of the CGRA."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cosim.session.operators import OperatorResult
from cosim.session.results import RESOURCES, Result
from heald.model_run import ModelRun
from heald.report.console import plain_table
from heald.run import Run
from sw.graph.islands import told

if TYPE_CHECKING:
    # This imports the mapper, which takes time.
    from heald.loops import KernelRun

_BAR, _SHORT_BAR = 10, 5
#: Meaning of the columns; docs/report.md has more.
_CAPTION = (
    "Cycles count from the end of the operators before, so they add up. The bottleneck is what most of them\n"
    "went to. Array busy is the share of its peak in them. Operators may start early: a bound may be above."
)
#: Maximum number of further tensors shown that differ from onnxruntime's.
_MOST_TENSORS = 5
#: Minimum width of a name in a narrow terminal.
_NAME = 10
#: Maximum number of reasons shown for host operators.
_REASONS = 8
_EIGHTHS = " ▏▎▍▌▋▊▉"


def print_report(report: Run, console: Console) -> None:
    """Print a row per program or operator, then what was verified and how fast."""
    c = report.config
    console.print()
    console.print(
        f"[bold]{report.title}[/] on [bold]{c.name}[/]: {c.rows}×{c.cols} array, machine {c.hash}",
        highlight=False,
    )
    table = _operators(report) if isinstance(report, ModelRun) else _programs(report)
    if _least_width(table) > console.width:
        # Better lines wrapped by the terminal than numbers that lack digits.
        table.width = _least_width(table)
    console.print(table, crop=False)
    if isinstance(report, ModelRun):
        console.print(_CAPTION, style="dim", highlight=False)
    console.print()
    advice = report.advice.sentences if report.advice is not None else ()
    for line in (*_verdict(report), *advice):
        console.print(line, highlight=False)


def _table(report: Run, first: str, second: str, footer: bool, widths: tuple[int, int, int]) -> Table:
    """A table with the columns that products and operators share; widths of names, kinds and bars."""
    table = Table(box=None, pad_edge=False, header_style="dim", show_footer=footer)
    # Only these two columns may shrink.
    table.add_column(first, "total", max_width=widths[0])
    table.add_column(second, max_width=widths[1])
    table.add_column("cycles", f"{report.cycles:,}", justify="right", no_wrap=True)
    table.add_column("lower bound", f"{report.bound_cycles:,}", justify="right", no_wrap=True)
    table.add_column("bound by", no_wrap=True)
    table.add_column("bottleneck", no_wrap=True)
    table.add_column("array busy", _bar(report.utilization, widths[2]), no_wrap=True)
    table.add_column("result", no_wrap=True)
    return table


def _least_width(table: Table) -> int:
    """The minimum width at which all columns but the first two (names) are complete."""
    columns = [max(cell_len(str(c)) for c in (x.header, x.footer, *x.cells)) for x in table.columns]
    gaps = 2 * (len(columns) - 1)
    return sum(min(w, _NAME) for w in columns[:2]) + sum(columns[2:]) + gaps


def _name(text: str) -> Text:
    """A name, which ends in an ellipsis if it does not fit."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _programs(report: Run) -> Table:
    table = _table(report, "program", "size", len(report.results) > 1, (32, 60, _BAR))
    table.add_column("cycle-exact", no_wrap=True)
    for result in report.results:
        table.add_row(*_row(result, report.reference))
    return table


def _row(result: Result, reference: str) -> tuple[str | Text, ...]:
    error = result.observed.error
    result_text = (
        Text(f"= {reference.removeprefix('the ')}", "green") if result.correct else Text("WRONG", "bold red")
    )
    if error is not None:
        result_text = Text(error.cause.name.lower(), "bold red")
    exact = result.divergence is None
    return (
        _name(result.name),
        _name(result.shape.replace("x", "×")),
        f"{result.observed.cycles:,}",
        f"{result.bound_cycles:,}",
        RESOURCES[result.bound],
        str(result.bottleneck or ""),
        _bar(result.utilization),
        result_text,
        Text(f"{len(result.observed.events):,} events", "green") if exact else Text("DIVERGES", "bold red"),
    )


def _operators(report: ModelRun) -> Table:
    table = _table(report, "operator", "kind", True, (30, 18, _SHORT_BAR))
    table.add_column("II", no_wrap=True)
    table.add_column("of all", no_wrap=True)
    for operator in report.operators:
        table.add_row(*_operator_row(operator, report))
    return table


def _operator_row(operator: OperatorResult, report: ModelRun) -> tuple[str | Text, ...]:
    name, kind = _name(operator.name), _name(operator.op)
    if operator.where != "machine":
        where = "edge" if operator.where == "edge" else "host"
        return (name, kind, "", "", "", Text(where, "dim" if operator.where == "edge" else "yellow"))
    same = {None: Text("overwritten", "dim"), True: Text("= reference", "green")}
    ii = ", ".join(
        f"{k.ii}" if k.ii == k.bound.mii else f"{k.ii} (≥ {k.bound.mii})" for k in operator.kernels
    )
    return (
        name,
        kind,
        f"{operator.cycles:,}",
        f"{operator.bound_cycles:,}",
        RESOURCES[operator.bound] if operator.bound_cycles else "",
        str(operator.bottleneck or ""),
        _bar(operator.utilization, _SHORT_BAR) if operator.macs else "",
        same.get(operator.same, Text("WRONG", "bold red")),
        ii,
        f"{100 * operator.cycles / report.cycles:.1f} %" if report.cycles else "",
    )


def _overwritten(report: Run) -> str:
    """How many results could not be compared because other tensors reused their memory."""
    ran = [o for o in report.operators if o.where == "machine"] if isinstance(report, ModelRun) else []
    gone = sum(o.same is None for o in ran)
    return f" ({gone} of {len(ran)} were overwritten by the end)" if gone else ""


def _bar(share: float, length: int = _BAR) -> Text:
    """A fraction as percent and bar."""
    eighths = round(min(max(share, 0.0), 1.0) * length * 8)
    whole, part = divmod(eighths, 8)
    bar = "█" * whole + (_EIGHTHS[part] if part else "")
    return Text.assemble(f"{100 * share:5.1f} % ", (bar.ljust(length), "cyan"))


def _verdict(report: Run) -> list[str | Text]:
    first = report.first_divergence
    if isinstance(report, ModelRun) and not report.ran_on_machine and report.correct:
        why = "" if report.host_only else ", which --host-only accepts"
        text = f"nothing ran on the machine, so nothing was checked{why}"
        line = Text(f"! {text}", "yellow") if report.host_only else Text(f"\u2717 {text}", "bold red")
        return [line, *_hosts(report), *_beside(report)]
    lines: list[str | Text] = []
    if report.correct:
        every = f"every result equals {report.reference}'s, bit for bit"
        lines.append(f"[green]✓[/] {every}{_overwritten(report)}")
    else:
        lines.append(Text(f"✗ {_wrong(report)}", "bold red"))
    if first is None:
        events = _all(report.events, "event")
        lines.append(f"[green]✓[/] model and RTL agree on the cycle of {events}")
    else:
        lines.append(Text(f"✗ {first[0].name}: {first[1]}", "bold red"))
    if report.rejected is not None:
        result, verdict = report.rejected
        said = "the warps are wrong: " if verdict.schedule else ""
        lines.append(Text(f"✗ {result.name}: {said}{verdict.reason}", "bold red"))
        lines += [Text(f"  {line}") for line in verdict.schedule]
    else:
        count = sum(r.checked.dependences for r in report.results)
        lines.append(f"[green]✓[/] the warps enforce {_all(count, 'dependence')} between them")
    if isinstance(report, ModelRun):
        lines += _configurations(report)
    speed = report.cycles / report.sim_seconds if report.sim_seconds else 0
    lines.append(
        f"[dim]build {report.build_seconds:.1f} s · simulation {report.sim_seconds:.1f} s "
        f"({speed:,.0f} cycles/s, {report.sim}) · model {report.model_seconds:.2f} s[/]"
    )
    return lines


def _wrong(report: Run) -> str:
    if isinstance(report, ModelRun) and report.first_wrong is not None:
        return f"{report.first_wrong[0]} is the first operator with a wrong result: {report.first_wrong[1]}"
    return f"wrong results: {', '.join(r.name for r in report.results if not r.correct)}"


def _configurations(report: ModelRun) -> list[str | Text]:
    """Whether the decoder agrees, and what the host did."""
    lines: list[str | Text] = [
        Text(f"✗ bitstream {k.name} does not decode to its loop: {k.differences[0]}", "bold red")
        for k in report.unverified
    ]
    count = len(report.kernels)
    if not lines and count:
        all_of_them = f"all {count} bitstreams decode to their loops"
        lines.append(f"[green]✓[/] {'the bitstream decodes to its loop' if count == 1 else all_of_them}")
    return [*lines, *_hosts(report), *_beside(report)]


def _beside(report: ModelRun) -> list[Text]:
    """The comparison with onnxruntime, and the tensors that differ by more than roundings."""
    found = report.compared
    if found is None:
        return []
    if found.ok:
        return [Text.assemble(("\u2713 ", "green"), f"onnxruntime {found.version}: {found.summary}")]
    others = [t for t in found.tensors if t.status == "different" and t is not found.first]
    lines = [Text(f"\u2717 {found.summary}", "bold red"), *(Text(f"  {t}") for t in others[:_MOST_TENSORS])]
    left = len(others) - _MOST_TENSORS
    return [*lines, Text(f"  and {left} more (--json and --report have them)")] if left > 0 else lines


def _hosts(report: Run) -> list[Text]:
    host = report.host_operators if isinstance(report, ModelRun) else []
    if not isinstance(report, ModelRun) or not host:
        return []
    noun = "operator" if len(host) == 1 else "operators"
    lines = [f"! {len(host)} {noun} ran on the host: {', '.join(host)}", *told(report.islands)]
    reasons = {f"{o.name} ({o.op}): {o.why}" for o in report.operators if o.where == "host" and o.why}
    lines += [f"  {reason}" for reason in sorted(reasons)[:_REASONS]]
    left = len(reasons) - _REASONS
    lines += [f"  {left} more: heald explain lists all"] if left > 0 else []
    return [Text(line, "yellow") for line in lines]


def _all(count: int, noun: str) -> str:
    """A count of things, all of which hold."""
    return f"the 1 {noun}" if count == 1 else f"all {count:,} {noun}s" if count else f"0 {noun}s"


def print_kernel(run: KernelRun, console: Console) -> None:
    """Print a row per configuration, then what was verified."""
    config, result = run.config, run.result
    assert config.cgra is not None
    fabric = config.cgra
    console.print()
    size = f"{fabric.rows}×{fabric.cols} grid, machine {config.hash}"
    console.print(f"[bold]{run.title}[/] on [bold]{fabric.name}[/]: {size}", highlight=False)
    table = plain_table("configuration", ">operations", ">II", ">MII", ">depth", no_wrap=True)
    for mapped in result.configurations:
        mapping = mapped.found
        numbers = (len(mapped.graph.nodes), mapping.ii, mapped.bound.mii, mapping.depth)
        table.add_row(mapped.graph.name, *(str(n) for n in numbers))
    console.print(table)
    console.print()
    for line in _kernel_verdict(run):
        console.print(line, highlight=False)


def _kernel_verdict(run: KernelRun) -> list[Text]:
    result, checked = run.result, run.result.checked
    lines = []
    if run.correct:
        lines.append(Text(f"result: equals the function's; returned {list(result.returned)}", "green"))
    else:
        lines.append(Text(f"result: WRONG: {result.difference}", "bold red"))
    if run.divergence is None:
        told = f"cycles: {run.cycles:,}; all {run.events:,} events as the model predicts"
        lines.append(Text(told, "green"))
    else:
        lines.append(Text(f"cycles: {run.cycles:,}; the model DIVERGES: {run.divergence}", "bold red"))
    wrong = [text for mapped in result.configurations for text in mapped.differences]
    if wrong:
        lines.append(Text(f"bitstreams: do NOT decode to their loops: {wrong[0]}", "bold red"))
    else:
        lines.append(Text("bitstreams: decode to their loops", "green"))
    if checked.ok:
        lines.append(Text(f"warps: accepted by the checker ({checked.method})", "green"))
    else:
        lines.append(Text(f"warps: REJECTED: {checked.reason}", "bold red"))
    return lines
