"""Planted faults: each is a small change of the source that a test in `make test` must detect.

    python -m tests.mutations [NAME ...] [--json]

Applies each to a copy of the tree, one at a time, and runs the test named beside it. Exit code 1 if a test
passes all the same, or fails on the original tree. `docs/tests.md` has the table.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("hw", "sw", "cosim", "heald", "tests", "bench", "examples", "docs")
#: Seconds for a test: a fault may keep it from ending.
LIMIT = 1800
FILES = ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile")


@dataclass(frozen=True)
class Mutation:
    """A fault: in `file` the text `old`, which stands there once, becomes `new`; `test` must fail."""

    name: str
    what: str
    file: str
    old: str
    new: str
    test: str

    def apply(self, root: Path) -> None:
        """Plant it in a tree; raises `ValueError` where the text does not stand exactly once."""
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise ValueError(
                f"{self.name}: {self.file} must have {self.old!r} once, not {text.count(self.old)} times"
            )
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


_RANDOM = "tests/cosim/test_random_programs.py::test_random_programs_do_what_the_model_predicts[wide-causes1]"

MUTATIONS = (
    # RTL
    Mutation(
        "token-stays",
        "a token that is taken while another one arrives is not removed",
        "hw/rtl/core/channels.py",
        "recent[i] ^ taken[i]",
        "recent[i] | taken[i]",
        "tests/hw/formal/test_proofs.py::test_small_components_are_proved_and_their_faults_found",
    ),
    Mutation(
        "signal-early",
        "a signal fires although two earlier operations are outstanding",
        "hw/rtl/core/signals.py",
        "((behind == 0) | behind[-1])",
        "((behind <= 2) | behind[-1])",
        _RANDOM,
    ),
    Mutation(
        "loop-turns",
        "a hardware loop runs one iteration too few",
        "hw/rtl/core/loops.py",
        "last.eq(iterations == 1)",
        "last.eq(iterations <= 2)",
        _RANDOM,
    ),
    Mutation(
        "row-alignment",
        "later rows of a load use the alignment of the first row",
        "hw/rtl/memory/load_walker.py",
        "follow.eq(low + d.step)",
        "follow.eq(low)",
        _RANDOM,
    ),
    Mutation(
        "step-latest",
        "after a step leaves the queue, the next one is offered even if it is not there",
        "hw/rtl/memory/load_steps.py",
        "Mux(leaves, behind != writer.addr, self.out.valid | entered)",
        "Mux(leaves, 1, self.out.valid | entered)",
        "tests/hw/test_load_steps.py",
    ),
    Mutation(
        "array-sign",
        "the array reads all zero points as unsigned",
        "hw/rtl/gemm/operands.py",
        "zero = self._read(styles[1].zero, styles[1].signed)",
        "zero = styles[1].zero",
        "tests/test_property.py::test_random_products_are_bit_exact_and_cycle_exact[wide]",
    ),
    Mutation(
        "pe-greater",
        "`gt` of a processing element is true for equal operands",
        "hw/rtl/cgra/units.py",
        '"on_equal": among("le", "gt", "eq", "ne")',
        '"on_equal": among("le", "eq", "ne")',
        "tests/hw/rtl/cgra/test_units.py",
    ),
    # Cycle model
    Mutation(
        "beats-of-a-row",
        "the beats of a row are counted without its alignment",
        "cosim/models/cycle/rows.py",
        "-(-((address + i * stride) % width + size) // width)",
        "-(-size // width)",
        "tests/cosim/models/cycle/test_stepping.py",
    ),
    Mutation(
        "last-block",
        "the array takes as long for the last, shorter row of blocks as for whole ones",
        "cosim/models/cycle/gemm.py",
        "max(k, rest), max(k, full)",
        "max(k, full), max(k, full)",
        "tests/cosim/models/cycle/test_parts.py",
    ),
    Mutation(
        "load-outside",
        "a load that leaves its buffer stops at the beginning of the row",
        "cosim/models/cycle/checks.py",
        "return block * lanes, max(0, columns - target - block * pitch)",
        "return block * lanes, 0",
        "tests/cosim/models/cycle/test_parts.py",
    ),
    Mutation(
        "stalled-port",
        "a stalled port grants a request one cycle early",
        "cosim/models/cycle/memory_port.py",
        "at = bisect_left(page, cycle) + n - 1",
        "at = max(bisect_left(page, cycle) + n - 2, 0)",
        "tests/cosim/models/cycle/test_stepping.py",
    ),
    Mutation(
        "store-window",
        "a store that leaves its window stops one row late",
        "cosim/models/cycle/storer.py",
        "limit, cause = plan.beats.start(outside), Cause.WINDOW",
        "limit, cause = plan.beats.start(outside + 1), Cause.WINDOW",
        "tests/cosim/test_random_programs.py::test_errors_come_in_their_cycle",
    ),
    # Compiler
    Mutation(
        "tiling-loads",
        "the planner counts the loads of A without the last, smaller piece",
        "sw/tiling/cost.py",
        "else -(-p.n // partition_n)",
        "else max(1, p.n // partition_n)",
        "tests/sw/tiling/test_cost.py",
    ),
    Mutation(
        "canonical-rule",
        "a rewrite rule loses the case of equal operands",
        "sw/canonical/rules.txt",
        "not less: not (x < y) -> y <= x",
        "not less: not (x < y) -> y < x",
        "tests/sw/canonical/test_rules.py::test_rule_holds_at_8_bits",
    ),
    Mutation(
        "write-after-read",
        "a write does not wait for reads of the old value",
        "sw/dependence/edges.py",
        "(accesses if sink.write else writers)",
        "writers",
        "tests/sw/dependence/test_edges.py",
    ),
    Mutation(
        "channel-room",
        "waits that keep a channel from overflowing count as redundant",
        "sw/warps/prune.py",
        "rooms = (own for other, own in self.rooms.items() if other != pair)",
        "rooms = ()",
        "tests/sw/warps/test_prune.py",
    ),
    Mutation(
        "dead-store",
        "of several stores that a read may see, only one is kept",
        "sw/dependence/passes.py",
        "pending += found.get(label, ())",
        "pending += list(found.get(label, ()))[:1]",
        "tests/sw/dependence/test_passes.py",
    ),
    Mutation(
        "induction-rewind",
        "an induction variable of nested loops is not reset after the inner loop",
        "sw/canonical/induction.py",
        "found.insert(0, sorted_sum(minus(step, whole)))",
        "found.insert(0, step)",
        "tests/sw/canonical/test_induction.py",
    ),
    Mutation(
        "register-loop",
        "a register that only the next iteration of a loop reads counts as free",
        "sw/codegen/allocate.py",
        "exits[o.link].append(i + 1)",
        "exits[o.link] += []",
        "tests/sw/codegen/test_generate.py",
    ),
    Mutation(
        "configuration-verified",
        "differences between a decoded operation and its node are not reported",
        "sw/cgra/verify.py",
        "elif asked[what] != done[what]:",
        "elif False:",
        "tests/sw/cgra/test_verify.py",
    ),
    Mutation(
        "requantise-ties",
        "a scaled sum halfway between two numbers is rounded up instead of to even",
        "sw/graph/requantise.py",
        'product = Apply("mul_shift_round_even", (total',
        'product = Apply("mul_shift_round", (total',
        "tests/sw/graph/test_requantise.py",
    ),
)


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the tree."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in FOLDERS:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__", "*.log"))
        for name in FILES:
            shutil.copy(ROOT / name, root / name)
        yield root


def passes(root: Path, test: str) -> bool:
    """Whether a test of `make test` ends and passes; raises `RuntimeError` where pytest runs none."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", test]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=False, env=environment, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest {test} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr}")
    return done.returncode == 0


def found(mutation: Mutation, root: Path) -> bool:
    """Whether the test notices a fault that is planted in a tree, which is whole again afterwards."""
    path = root / mutation.file
    before = path.read_text(encoding="utf-8")
    mutation.apply(root)
    try:
        return not passes(root, mutation.test)
    finally:
        path.write_text(before, encoding="utf-8")


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([m.name for m in MUTATIONS]))
@click.option("--json", "as_json", is_flag=True, help="Print one object.")
def main(names: tuple[str, ...], as_json: bool) -> None:
    """Plant faults one after the other, and say whether their tests find them."""
    wanted = [m for m in MUTATIONS if not names or m.name in names]
    results = []
    with copied() as root:
        for mutation in wanted:
            begin = time.perf_counter()
            noticed = found(mutation, root)
            seconds = time.perf_counter() - begin
            results.append({"name": mutation.name, "found": noticed, "seconds": round(seconds, 1)})
            click.echo(f"{mutation.name}: {'found' if noticed else 'NOT FOUND'}, {seconds:.0f} s", err=True)
    missed = [r["name"] for r in results if not r["found"]]
    if as_json:
        click.echo(json.dumps({"mutations": results, "missed": missed}))
    else:
        click.echo(f"{len(results) - len(missed)} of {len(results)} found")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
