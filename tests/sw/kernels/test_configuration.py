"""Configurations are verified, the same in every run, and mapped once for all kernels of one structure."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from hw.cache import fingerprint
from hw.config import load
from hw.errors import InputError
from hw.fabric import Fabric
from hw.fabric import load as load_fabric
from hw.fabric.bitstream import parse
from sw.cgra.search import EFFORTS, NoMappingError
from sw.cgra.verify import verify
from sw.kernels import mappings
from sw.kernels.configuration import Configured, configure, graph_of
from sw.kernels.kernel import GridKernel, Stream
from tests.caches import forget_configurations

FABRIC = load_fabric("mesh4x4")
MACHINE = load("test").replace(cgra=FABRIC)
TEXT = """
TABLE = {table}


def scaled(n, x, y, at, to, factor):
    for i in range(n):
        at = at + {step}
        y[to] = TABLE[x[at] * factor & 3]
        to = to + {step}
"""


def kernel(table: tuple[int, ...] = (1, 2, 3, 4), step: int = 1, element: str = "int32") -> GridKernel:
    """A loop with a table, a number and an array that may be other ones."""
    streams = (Stream("x", "scratch", element), Stream("y", "out", "int8", offset=step))
    return GridKernel("scaled", TEXT.format(table=table, step=step), streams, ("at", "to", "factor"))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own."""
    monkeypatch.setenv("HEALD_CACHE", str(tmp_path / "cache"))
    forget_configurations()
    return tmp_path / "cache"


def again(made: GridKernel) -> Configured:
    """The configuration out of the cache on disk."""
    forget_configurations()
    return configure(made, MACHINE)


def entry(cache: Path) -> Path:
    """The one file of the cache."""
    (found,) = (cache / "mappings").iterdir()
    return found


def test_a_configuration_is_what_it_says() -> None:
    made = configure(kernel(), MACHINE)
    assert made.verified
    assert not made.cached
    decoded = parse(made.words, FABRIC)
    assert (decoded.ii, decoded.depth) == (made.ii, made.depth)
    assert [a.base for a in decoded.arrays] == [0, 1]
    assert made.found.bound.mii == made.ii
    assert made.found.proved_minimal
    assert made.found.bound.why
    scalars = {"at": 0, "to": 1, "factor": 2}
    assert verify(made.graph, made.words, FABRIC, made.mapping.places, scalars=scalars) == []
    other = configure(kernel((1, 2, 3, 5)), MACHINE)
    assert verify(made.graph, other.words, FABRIC, made.mapping.places, scalars=scalars) != []


def test_the_words_are_the_same_with_and_without_the_cache() -> None:
    first = configure(kernel(), MACHINE)
    second = again(kernel())
    assert (first.cached, second.cached) == (False, True)
    assert first.words == second.words
    assert first.found.bound == second.found.bound


def test_the_words_do_not_depend_on_what_was_mapped_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(kernel(), MACHINE)
    after = configure(kernel((5, 5, 5, 5), step=3), MACHINE)
    monkeypatch.setenv("HEALD_CACHE", str(tmp_path / "another"))
    alone = again(kernel((5, 5, 5, 5), step=3))
    assert (after.cached, alone.cached) == (True, False)
    assert after.words == alone.words


def test_kernels_that_differ_in_numbers_are_mapped_once(cache: Path) -> None:
    first = configure(kernel(), MACHINE)
    for other in (kernel((9, 8, 7, 6)), kernel(step=2), kernel(element="uint8")):
        forget_configurations()
        made = configure(other, MACHINE)
        assert made.cached
        assert made.verified
        assert made.words != first.words
        assert len(made.words) == len(first.words)
    assert entry(cache).is_file()


def test_what_matters_to_a_mapping_is_mapped_anew() -> None:
    configure(kernel(), MACHINE)
    assert not configure(kernel((1, 2, 3, 4, 5)), MACHINE).cached
    assert not configure(kernel(), MACHINE, seed=1).cached
    assert not configure(kernel(), MACHINE.replace(cgra=load_fabric("torus4x4"))).cached


def _changed(change: Callable[[dict[str, object]], object]) -> Callable[[str], str]:
    """A file whose check sum fits, with other contents."""

    def made(text: str) -> str:
        held = json.loads(text.split("\n")[1])
        change(held)
        body = json.dumps(held)
        return f"{fingerprint((body,))}\n{body}\n"

    return made


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"mii":', '"mij":'),
        lambda text: "\0" + text[1:],
        _changed(lambda held: held.pop("routes")),
        _changed(lambda held: held.update(places=held["places"][::-1])),
        _changed(lambda held: held.update(places=[[99, 0]] * len(held["places"]))),
        _changed(lambda held: held.update(routes={})),
        _changed(lambda held: held.update(ii=0)),
        _changed(lambda held: held.update(ii="1")),
    ],
)
def test_a_broken_entry_is_made_anew(cache: Path, change: Callable[[str], str]) -> None:
    first = configure(kernel(), MACHINE)
    path = entry(cache)
    whole = path.read_text()
    path.write_text(change(whole))
    made = again(kernel())
    assert not made.cached
    assert made.words == first.words
    assert path.read_text() == whole


def test_a_loop_that_cannot_be_mapped_is_searched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is searched again where anything differs that decides whether a mapping is found."""
    searched, search = [], mappings.map_graphs

    def counted(*arguments: Any, **options: Any) -> Any:
        searched.append(options)
        return search(*arguments, **options)

    def refused(fabric: Fabric, seed: int = 0) -> str:
        with pytest.raises(NoMappingError) as told:
            mappings.find(graph_of(kernel()), fabric, seed)
        return str(told.value)

    monkeypatch.setattr(mappings, "map_graphs", counted)
    small = replace(load_fabric("mesh2x2"), contexts=1)
    first = refused(small)
    assert "does not fit the CGRA 'mesh2x2': contexts must be at least" in first
    assert refused(small) == first
    assert refused(replace(small, name="other")) == first.replace("mesh2x2", "other")
    assert len(searched) == 1
    path = entry(cache)
    path.write_text(path.read_text().replace("at least", "as least"))
    assert refused(small) == first
    assert len(searched) == 2, "a damaged file says nothing"
    refused(small, seed=1)
    refused(replace(small, stages=32))
    with monkeypatch.context() as patch:
        patch.setattr(mappings, "BUDGET", EFFORTS)
        refused(small)
    with monkeypatch.context() as patch:
        patch.setattr(mappings, "mapper", lambda *packages: "another mapper")
        refused(small)
    with monkeypatch.context() as patch:
        patch.setattr(mappings, "version", lambda package: "another solver")
        refused(small)
    assert len(searched) == 7
    assert refused(small) == first
    assert len(searched) == 7


def test_a_structure_has_no_numbers() -> None:
    one, two = (graph_of(kernel(table, step)) for table, step in (((1, 2, 3, 4), 1), ((4, 3, 2, 1), 3)))
    assert one != two
    assert mappings.structure(one) == mappings.structure(two)


def test_a_cache_that_cannot_be_written_is_one_message(cache: Path) -> None:
    cache.write_text("a file", encoding="utf-8")
    with pytest.raises(InputError, match="the cache must be a writable directory"):
        configure(kernel(), MACHINE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def scaled(n, x, y):\n    for i in range(n):\n        y[i] = z[i]\n", "z"),
        (
            "def scaled(n, x, y, q):\n    for i in range(n):\n        y[q] = x[i]\n",
            "must be a stream or a scalar, not q",
        ),
        (
            "def scaled(n, x, w):\n    for i in range(n):\n        w[i] = x[i]\n",
            "must be a stream or a scalar, not w",
        ),
        (
            "def scaled(n, x, y):\n    for i in range(n):\n        y[i] = x[i]\n"
            "    for i in range(n):\n        y[i] = x[i]\n",
            "one loop without results, not 2 loops",
        ),
    ],
)
def test_a_text_that_is_no_kernel_is_one_message(text: str, message: str) -> None:
    streams = (Stream("x", "scratch", "int32"), Stream("y", "out", "int8"))
    with pytest.raises(InputError) as raised:
        configure(GridKernel("scaled", text, streams, ("at",)), MACHINE)
    assert message in str(raised.value)


def test_a_machine_needs_a_grid() -> None:
    with pytest.raises(InputError, match="must have a CGRA to run kernel scaled"):
        configure(kernel(), MACHINE.replace(cgra=None))


def test_what_cannot_be_mapped_is_one_message() -> None:
    with pytest.raises(InputError, match="needs a PE with table and 257 words for 'TABLE'"):
        configure(kernel(tuple(range(257))), MACHINE)


def test_it_is_told_what_is_mapped() -> None:
    told: list[str] = []
    with mappings.heard(told.append), mappings.heard_of("operator 1 of 2"):
        configure(kernel(), MACHINE)
        assert told == ["mapping loops to mesh4x4 (operator 1 of 2)", ""]
        assert again(kernel()).cached
    assert len(told) == 2


def test_a_loop_that_another_process_maps_is_not_mapped_twice(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process has the lock, and ends when this one says that it waits."""
    configure(kernel(), MACHINE)
    path, told = entry(cache), list[str]()
    text = path.read_text()
    path.unlink()
    forget_configurations()
    other = FileLock(f"{path}.lock")
    other.acquire()

    def heard(text_: str) -> None:
        told.append(text_)
        if text_:
            path.write_text(text)
            other.release()

    monkeypatch.setattr(mappings, "map_graphs", None)
    with mappings.heard(heard):
        assert configure(kernel(), MACHINE).verified
    assert told == ["waiting for a loop of mesh4x4 that another process maps", ""]
