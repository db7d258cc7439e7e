"""The structure of the code: the direction of imports, and limits on sizes.

Exceptions to the rules are listed here by name. Lists may only become shorter.
"""

from __future__ import annotations

import ast
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The top-level folders; each may import itself and those before it.
FOLDERS = ("hw", "sw", "cosim", "heald")
#: What only describes machines.
DESCRIPTIONS = ("hw.config", "hw.isa", "hw.semantics", "hw.csr", "hw.fabric")
MOST_LINES, MOST_IN_FUNCTION, MOST_OF_A_NAME = 500, 60, 3

#: Files of more lines.
LONG_FILES: set[str] = set()
#: Functions of more lines: most describe hardware, statement after statement.
LONG_FUNCTIONS = {
    "Accumulator.elaborate",
    "Control.elaborate",
    "Sequencer.elaborate",
    "Warp._play",
    "WriteMaster.elaborate",
    "build",
    "settle",
    "to_svg",
}
#: Class names of more things.
COMMON_NAMES = {"State"}
#: Measurements that have tests, or whose reference tests use.
MEASURED = {
    "bench.elementwise_program",
    "bench.exhaustive",
    "bench.grid_area",
    "bench.grid_elementwise",
    "bench.hostile",
    "bench.kills",
    "bench.onnx_backend",
    "bench.peers",
    "bench.peers.__main__",
    "bench.peers.asking",
    "bench.peers.layers",
    "bench.peers.table",
    "bench.peers.tools",
    "bench.prediction",
    "bench.sync",
    "bench.tiling",
    "bench.zoo",
}
#: Modules that only the checker and the generator use.
SHARED: set[str] = set()


@functools.cache
def trees() -> Mapping[str, ast.Module]:
    """All modules of the code, by name."""
    found = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            found[name] = ast.parse(path.read_text())
    return found


@functools.cache
def imports() -> Mapping[str, frozenset[str]]:
    """The modules of the code that each one imports, also inside of functions."""
    return {name: frozenset(_imported(name, tree)) - {name} for name, tree in trees().items()}


def _imported(name: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name in trees())
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name} imports relatively"
            for a in node.names:
                inner = f"{node.module}.{a.name}"
                if inner in trees():
                    yield inner
                elif node.module in trees():
                    yield str(node.module)


def reached(modules: Iterable[str]) -> set[str]:
    """Modules and all that they import, directly or not; of packages, what their `__init__` imports too."""
    waiting, found = list(modules), set[str]()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports()[name]
            parent = name.rpartition(".")[0]
            waiting += [parent] if parent in trees() else []
    return found


def inside(*packages: str) -> set[str]:
    """The modules of packages."""
    return {m for m in trees() if any(m == p or m.startswith(f"{p}.") for p in packages)}


def circles() -> set[str]:
    """The modules that import themselves through others."""
    return {m for m in trees() if any(m in _following(i) for i in imports()[m])}


@functools.cache
def _following(module: str) -> set[str]:
    found, waiting = set[str](), [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports()[name]
    return found


def functions(tree: ast.AST, around: str = "") -> Iterator[tuple[str, int]]:
    """The functions of a module with the number of their lines."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{around}{node.name}"
            if not isinstance(node, ast.ClassDef):
                assert node.end_lineno is not None
                yield name, node.end_lineno - node.lineno + 1
            yield from functions(node, f"{name}.")
        else:
            yield from functions(node, around)


def test_imports_point_one_way() -> None:
    for number, folder in enumerate(FOLDERS):
        above = inside(*FOLDERS[number + 1 :])
        assert not {(m, i) for m in inside(folder) for i in imports()[m] & above}


def test_measurements_import_no_tests_and_tests_only_what_is_measured() -> None:
    """What both need is in `heald/testing`; a test of a measurement imports that one."""
    found = {"bench": set[str](), "tests": set[str]()}
    for folder in found:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom | ast.Import):
                    names = (
                        [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                    )
                    found[folder] |= set(names)
    assert not [name for name in found["bench"] if name.split(".")[0] == "tests"]
    assert {name for name in found["tests"] if name.split(".")[0] == "bench"} <= MEASURED


def test_no_import_circles() -> None:
    assert not circles()


def test_descriptions_of_machines_and_hardware_import_nothing_above_them() -> None:
    tools = inside("hw.formal", "hw.area", "hw.synthesis")
    assert not {(m, i) for m in inside("hw.rtl") for i in imports()[m] & tools}
    above = tools | inside("hw.rtl")
    assert not {(m, i) for m in inside(*DESCRIPTIONS) for i in imports()[m] & above}


def test_checker_and_generator_are_independent() -> None:
    """Neither imports the other, directly or not, or what the two alone use."""
    checker, generator = inside("sw.check"), inside("sw.warps", "sw.dependence")
    assert not reached(checker) & generator
    assert not reached(generator) & checker
    others = {i for m in set(trees()) - checker - generator for i in imports()[m]}
    used = [{i for m in modules for i in imports()[m]} - modules for modules in (checker, generator)]
    assert (used[0] & used[1]) - others <= SHARED


def test_sizes_of_files_and_functions() -> None:
    paths = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    long = {str(p.relative_to(ROOT)) for p in paths if len(p.read_text().splitlines()) > MOST_LINES}
    assert long <= LONG_FILES
    found = {name for tree in trees().values() for name, n in functions(tree) if n > MOST_IN_FUNCTION}
    assert found <= LONG_FUNCTIONS


def test_a_class_name_stands_for_few_things() -> None:
    names = Counter(
        n.name for tree in trees().values() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)
    )
    assert {name for name, count in names.items() if count > MOST_OF_A_NAME} <= COMMON_NAMES
