"""Measures the canonical form of expressions: proofs of its rules, pairs that reach one form, time.

    python -m tests.fuzz.canonical [--timeout SECONDS] [--count N] [--no-proofs]

Every rule is proved over bit vectors of 8 bits, then of 32 bits within the time limit, and if that does not
end, over the integers. The pairs come from TVM's tests (tests/data/simplify). Random expressions are
canonicalised once each; `sw.codegen.cost` counts their turns. Exit code 1 if a rule is not proved, a value
changes, or a form costs more than its expression or is not canonical itself.
"""

from __future__ import annotations

import random
import statistics
import time

import click
from rich.console import Console
from rich.table import Table

from sw.canonical import canonicalize
from sw.canonical.rank import size
from sw.canonical.rules import LAWS, RULES
from sw.codegen.cost import turns
from sw.ir.expression import Apply, Expr
from sw.ir.ranges import may_wrap
from sw.ir.types import Kind
from tests.sw.random_expressions import expression, idiom, idiom_variables, result, values, variables
from tests.sw.simplify_cases import Case, holds, load

#: Cases whose constants or variables have another width than 32 bits in the original.
OTHER_WIDTHS = frozenset(f"rewrite-{n:03}" for n in (10, 11, 12, 14, 15, 16, 17, 19))


def proofs(console: Console, timeout: float) -> bool:
    """Prove every rule; whether all are."""
    from tests.sw.smt import Verdict, prove, prove_over_integers

    rows = {"8 bits": 0, "32 bits": 0, "integers, 32 bits not in time": 0}
    open_rules = []
    started = time.process_time()
    for rule in (*LAWS, *RULES):
        if prove(rule, 8, timeout) is not Verdict.PROVED:
            open_rules.append(f"{rule.name} (8 bits)")
        else:
            rows["8 bits"] += 1
        if prove(rule, 32, timeout) is Verdict.PROVED:
            rows["32 bits"] += 1
        elif prove_over_integers(rule, timeout) is Verdict.PROVED:
            rows["integers, 32 bits not in time"] += 1
        else:
            open_rules.append(f"{rule.name} (32 bits)")
    table = Table("proved", "rules", title=f"{len(LAWS)} laws, {len(RULES)} rules")
    for name, count in rows.items():
        table.add_row(name, str(count))
    table.add_row("open", ", ".join(open_rules) or "none")
    console.print(table)
    console.print(f"proofs: {time.process_time() - started:.0f} s")
    return not open_rules


def _wraps(expr: Expr) -> bool:
    return any(isinstance(n, Apply) and may_wrap(n) for n in expr.walk())


def _changed(case: Case, rng: random.Random) -> bool:
    """Whether canonicalising changed a value where the assumptions hold."""
    names = {v.name: v for e in (case.before, case.after, *case.assume) for v in e.variables()}
    for side in (case.before, case.after):
        form = canonicalize(side)
        for _ in range(300):
            at = values(rng, list(names.values()))
            if holds(case, at) and result(side, at) != result(form, at):
                return True
    return False


def pairs(console: Console) -> bool:
    """How many pairs reach one form; whether no value changed."""
    cases, others = load()
    rng = random.Random(0)
    united = {c.name for c in cases if str(canonicalize(c.before)) == str(canonicalize(c.after))}
    wrapping = {c.name for c in cases if _wraps(c.before) or _wraps(c.after)}
    changed = [c.name for c in cases if _changed(c, rng)]
    ours = {c.name for c in cases} - OTHER_WIDTHS
    table = Table("pairs", "all", "one form", title="pairs of TVM")
    table.add_row("our operators, 32 bits", str(len(ours)), str(len(ours & united)))
    table.add_row("  that cannot wrap", str(len(ours - wrapping)), str(len((ours - wrapping) & united)))
    table.add_row("  that can wrap", str(len(ours & wrapping)), str(len(ours & wrapping & united)))
    table.add_row("other widths", str(len(OTHER_WIDTHS)), str(len(OTHER_WIDTHS & united)))
    table.add_row("truncating division", str(len(others)), "-")
    table.add_row("values changed", str(len(changed)), "")
    console.print(table)
    for case in cases:
        if case.name not in united:
            console.print(f"  apart: {case.text}: {canonicalize(case.before)} | {canonicalize(case.after)}")
    return not changed


def speed(console: Console, count: int) -> None:
    """Time, size and cost of random expressions."""
    rng = random.Random(1)
    table = Table("depth", "nodes, mean", "median us", "95 % us", "max ms", "nodes after", "turns ratio")
    for depth in (2, 3, 4, 6, 8):
        times, before, after, cost = [], [], [], [0, 0]
        for _ in range(count):
            known = variables(rng)
            source = expression(rng, known, depth, rng.choice((Kind.INT, Kind.BOOL)))
            started = time.process_time()
            form = canonicalize(source)
            times.append(1e6 * (time.process_time() - started))
            before.append(size(source))
            after.append(size(form))
            cost[0] += turns(source)
            cost[1] += turns(form)
        times.sort()
        table.add_row(
            str(depth),
            f"{statistics.mean(before):.0f}",
            f"{times[len(times) // 2]:.0f}",
            f"{times[int(len(times) * 0.95)]:.0f}",
            f"{times[-1] / 1000:.0f}",
            f"{statistics.mean(after):.0f}",
            f"{cost[1] / max(1, cost[0]):.2f}",
        )
    console.print(table)


def never_dearer(console: Console, count: int) -> bool:
    """Whether the forms of random clamps, remainders and choices are right, stable, and not dearer."""
    rng = random.Random(2)
    bad = {"dearer": 0, "not stable": 0, "wrong": 0}
    before = after = 0
    for _ in range(count):
        known = idiom_variables(rng)
        source = idiom(rng, known, rng.randrange(1, 5), rng.choice((Kind.INT, Kind.INT, Kind.BOOL)))
        form = canonicalize(source)
        before, after = before + turns(source), after + turns(form)
        bad["dearer"] += turns(form) > turns(source)
        bad["not stable"] += canonicalize(form) != form
        points = [values(rng, known) for _ in range(20)]
        bad["wrong"] += any(result(source, at) != result(form, at) for at in points)
    found = ", ".join(f"{n} {what}" for what, n in bad.items())
    console.print(f"{count} random expressions: {found}; turns after / before {after / before:.2f}")
    return not any(bad.values())


@click.command()
@click.option("--timeout", default=60.0, help="Seconds per proof.")
@click.option("--count", default=500, help="Random expressions per depth.")
@click.option("--proofs/--no-proofs", "prove_rules", default=True, help="Whether to prove the rules.")
def main(timeout: float, count: int, prove_rules: bool) -> None:
    """Measure the canonical form of expressions."""
    console = Console(width=140)
    good = pairs(console)
    good &= never_dearer(console, 10 * count)
    speed(console, count)
    if prove_rules:
        good &= proofs(console, timeout)
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
