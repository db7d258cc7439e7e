"""Programs and models whose cost could grow much faster than their text."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HEAD = "@program\ndef p(n: int[1, 2147483647]):\n    a: Buffer[64]\n"
#: Processor seconds that each may take here; without care they take minutes or never end.
SECONDS = 10.0


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    """Every test ends soon, however busy the computer is."""
    begin = time.process_time()
    yield
    assert time.process_time() - begin < SECONDS


def use(place: str, indent: str = "    ") -> str:
    """A write and a read of four elements."""
    return (
        f"{indent}P = produce(write=a[{place}:{place} + 4], warp=0)\n"
        f"{indent}C = consume(read=a[{place}:{place} + 4], warp=1)\n"
    )


def squarings(count: int) -> str:
    """A number squared so many times, and a place that depends on it."""
    lines = "".join(f"    x{i + 1} = x{i} * x{i}\n" for i in range(count))
    return f"{HEAD}    x0 = n + 1\n{lines}{use(f'x{count} % 16')}"


def nest(depth: int, turns: int) -> str:
    """Loops inside of each other."""
    loops = "".join(f"{'    ' * (i + 1)}for i{i} in range({turns}):\n" for i in range(depth))
    return HEAD + loops + use("4 * i0", "    " * (depth + 1))


@pytest.mark.parametrize("count", [60, 2000])
@pytest.mark.parametrize(
    "command", [["deps"], ["opt", "-p", "canonicalize"], ["opt", "-p", "hoist"], ["opt", "-p", "dead-store"]]
)
def test_numbers_that_are_squared_again_and_again(
    heald: Any, tmp_path: Path, command: list[str], count: int
) -> None:
    path = tmp_path / "p.py"
    path.write_text(squarings(count))
    ended = heald(command[0], path, *command[1:])
    assert ended.code == 0, ended.err
    if command == ["deps"]:
        assert any(line.split() == ["C", "P"] for line in ended.out.splitlines())


@pytest.mark.parametrize(("bound", "code"), [("2147483647", 1), ("n", 0), ("2000000000, n, -7", 1)])
def test_loops_of_more_turns_than_anybody_follows(heald: Any, tmp_path: Path, bound: str, code: int) -> None:
    path = tmp_path / "p.py"
    path.write_text(f"{HEAD}    for i in range({bound}):\n{use('4', '        ')}")
    ended = heald("warps", path)
    assert ended.code == code, ended.err
    assert ("cannot be shown" in ended.out) == bool(code)
    assert heald("deps", path).code == 0


def test_many_loops_inside_of_each_other(heald: Any, tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(nest(19, 3))
    assert heald("deps", path).code == 0
    ended = heald("warps", path)
    assert ended.code == 2
    assert "iterations of loops inside of each other would have to be followed to place waits" in ended.err
    path.write_text(nest(5, 3))
    assert heald("warps", path).code == 0
