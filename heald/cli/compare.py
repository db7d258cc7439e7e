"""`heald compare`: two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from heald.cli.options import PATH, as_json, note, plugins, print_json
from heald.files import check_writable
from heald.report.console import stdout


@click.command("compare")
@click.argument("a", type=PATH, metavar="A")
@click.argument("b", type=PATH, metavar="B")
@click.option("--report", type=PATH, metavar="FILE.html", help="Write the comparison as one HTML page.")
@plugins
@as_json
def command(a: Path, b: Path, report: Path | None, json_: bool) -> None:
    """Compare two runs: configuration, cycles and bottleneck of each operator.

    A and B are outputs of `heald run --json`, or directories of `heald compile`, whose cycles are predicted.
    """
    # This imports the compiler, which takes time.
    from heald.session import compare

    if report is not None:
        check_writable(report)
    found = compare(a, b, progress=note)
    if report is not None:
        found.report(report)
    if json_:
        print_json(found.as_dict())
    else:
        found.print(stdout(180))
