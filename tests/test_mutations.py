"""The planted faults of tests/mutations.py: each can be planted, its test is in `make test`; two are run."""

from __future__ import annotations

import ast
import re

import pytest

from tests.mutations import MUTATIONS, ROOT, Mutation, copied, found, passes


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_a_fault_can_be_planted_and_its_test_is_no_slow_one(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    file, _, name = mutation.test.partition("::")
    tree = ast.parse((ROOT / file).read_text())
    tests = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    assert not any(ast.unparse(n).startswith("pytestmark") for n in tree.body)
    wanted = (
        [tests[name.partition("[")[0]]] if name else [n for n in tests.values() if n.name.startswith("test_")]
    )
    assert any("pytest.mark.slow" not in map(ast.unparse, test.decorator_list) for test in wanted)


def test_the_page_lists_them() -> None:
    page = (ROOT / "docs" / "tests.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \| (.*?) \| `(.*?)` \| `(.*?)` \|", page, re.MULTILINE)
    assert rows == [(m.name, m.what, m.file, m.test) for m in MUTATIONS]


def test_faults_are_found_and_no_fault_is_not() -> None:
    quick = [m for m in MUTATIONS if m.name in ("tiling-loads", "last-block")]
    with copied() as root:
        for mutation in quick:
            assert found(mutation, root)
        assert all(passes(root, m.test) for m in quick)
