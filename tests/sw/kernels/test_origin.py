"""Mistakes in the text of an operator's loop are reported at their place in the operator's file."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

import heald as hd
from heald.testing.models import Builder
from hw.errors import InputError
from sw.ir.errors import LimitError
from sw.kernels.configuration import graph_of
from sw.kernels.kernel import GridKernel, Stream
from sw.kernels.origin import LoopTextError
from sw.kernels.passes import loop
from sw.operators.pools.operator import MaxPool

HERE, WORDS = Path(__file__), 4
STREAMS = (Stream("x", "scratch", "int8"), Stream("y", "out", "int8"))
PLAIN = """
value = x[i]
y[i] = value / 3
"""
FORMATTED = f"""
value = x[i + {WORDS}]
value = valve + {WORDS}
y[i] = value
"""


def place(text: str, column: str | None = None, call: bool = False) -> str:
    """File and line in which a text stands first in this file, with the column of a part of it."""
    lines = HERE.read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines) if text in line)
    first = 0 if call else lines[number].index(column or text)
    return f"{HERE.name}:{number + 1}:{first + 1}: "


def found(kernel: GridKernel) -> str:
    with pytest.raises(LoopTextError) as told:
        graph_of(kernel)
    return str(told.value)


def test_a_line_of_a_constant_is_named_with_its_column() -> None:
    text = found(loop("plain", STREAMS, (), PLAIN))
    assert place("y[i] = value / 3", "value / 3") + "found value / 3, expected one of" in text


def test_a_line_of_an_f_string_is_named() -> None:
    text = found(loop("formatted", STREAMS, (), FORMATTED))
    assert place("value = valve + {WORDS}") + "found unknown name 'valve'" in text


def test_a_text_inside_of_the_call_is_named() -> None:
    text = found(loop("inside", STREAMS, (), "y[i] = x[i] // q"))
    assert place("y[i] = x[i] // q", 'q"') + "found unknown name 'q'" in text


def test_what_is_not_in_the_file_is_told_with_the_line_of_the_call() -> None:
    lines = [f"y[i + {k}] = x[{k}] + z" for k in range(2)]
    text = found(loop("joined", STREAMS, (), "\n".join(lines)))
    assert place('found(loop("joined"', call=True) in text
    assert "found unknown name 'z' in the line 'y[i + 0] = x[0] + z', expected" in text
    text = found(loop("before", STREAMS, (), "y[i] = x[i]", "a = b"))
    assert place('found(loop("before"', call=True) + "found unknown name 'b' in the line 'a = b'" in text


def test_the_file_is_named_from_where_the_user_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE.parent)
    assert found(loop("near", STREAMS, (), PLAIN)).startswith(f"{HERE.name}:")
    monkeypatch.chdir(tmp_path)
    assert found(loop("far", STREAMS, (), PLAIN)).startswith(f"{HERE}:")
    linecache.clearcache()


def test_a_text_that_is_too_large_is_a_refusal() -> None:
    lines = [f"y[i + {k}] = x[i + {k}] * x[i + {k + 1}] + {k}" for k in range(2000)]
    with pytest.raises(LimitError, match="more than 4096 operations"):
        graph_of(loop("large", STREAMS, (), "\n".join(lines)))


def test_a_compilation_stops_with_the_place_and_no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(HERE.parent)
    monkeypatch.setattr(MaxPool, "kernel", lambda self, gap: loop("wrong", STREAMS, (), PLAIN))
    b = Builder()
    model = b.model(b.op("MaxPool", b.input((1, 2, 8, 8)), kernel_shape=[2, 2]))
    with pytest.raises(InputError) as told:
        hd.compile(model, "test")
    assert str(told.value).startswith(place("y[i] = value / 3", "value / 3"))
    assert "host" not in str(told.value)
