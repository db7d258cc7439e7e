"""Commands other than `run`: what they print, and how they refuse."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from heald.testing.problems import compile_problem
from hw import csr, isa
from hw.assembly import disassemble_words
from hw.config import load, preset_names
from hw.package import csr_page, isa_page
from hw.package.registers import register_files
from sw.problem import Product
from tests.budget import sweep
from tests.cosim.test_verilog import lint

ROOT = Path(__file__).resolve().parents[2]


def test_the_pages_in_docs_are_up_to_date() -> None:
    assert (ROOT / "docs/isa.md").read_text() == isa_page(), "make docs"
    assert (ROOT / "docs/csr.md").read_text() == csr_page(load("default")), "make docs"


def test_isa_tells_every_instruction_parameter_and_cause(heald: Any) -> None:
    page = heald("isa").out
    for name in [*isa.INSTRUCTIONS, *isa.PARAMETERS, *(c.name.lower() for c in isa.Cause)]:
        assert f"`{name}" in page
    table = json.loads(heald("isa", "--json").out)
    assert {i["name"]: i["opcode"] for i in table["instructions"]} == {
        i.name: i.opcode for i in isa.INSTRUCTIONS.values()
    }


def test_config_lists_shows_and_checks_presets(heald: Any, tmp_path: Path) -> None:
    listed = json.loads(heald("config", "list", "--json").out)["presets"]
    assert [m["name"] for m in listed] == preset_names()
    assert "default" in heald("config", "list").out
    file = tmp_path / "mine.toml"
    file.write_text(heald("config", "show", "lean").out)
    assert json.loads(heald("config", "show", file, "--json").out)["hash"] == load("lean").hash
    ended = heald("config", "check", file)
    assert ended.code == 0
    assert load("lean").hash in ended.out
    assert json.loads(heald("config", "check", file, "--json").out)["ok"] is True


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("rows = 5", "must be a power of two, not 5"),
        ("rows = 'many'", "must be a whole number from 2 to 64, not 'many'"),
        ("raws = 4", "unknown field 'raws'"),
        ("rows = ", "not valid TOML"),
        ("preset = 'none'", "unknown preset 'none'; valid are default"),
        ("acc_bytes = 64", "acc_bytes must give each of the 2 banks the 16 rows"),
        ("\x00", "not valid TOML"),
    ],
)
def test_config_check_refuses_with_the_reason(heald: Any, tmp_path: Path, content: str, text: str) -> None:
    file = tmp_path / "x.toml"
    file.write_text(content)
    ended = heald("config", "check", file, "--json")
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err
    assert ended.err.count("\n") == 1


def test_disasm_reads_words_and_hexadecimal_text(heald: Any, tmp_path: Path) -> None:
    words = compile_problem(Product(9, 9, 9), load("test")).programs[2]
    binary, text = tmp_path / "p.bin", tmp_path / "p.hex"
    binary.write_bytes(np.array(words, "<u4").tobytes())
    text.write_text("# a program\n" + "".join(f"{w:08x} // word\n" for w in words))
    assert heald("disasm", binary).out == heald("disasm", text).out
    listed = json.loads(heald("disasm", binary, "--json").out)
    assert listed["words"] == len(words)
    assert listed["instructions"][0] == {
        "pc": 0,
        "word": f"{words[0]:08x}",
        "text": disassemble_words(words)[0],
        "instruction": True,
    }


def test_disasm_shows_what_is_no_instruction_as_word(heald: Any, tmp_path: Path) -> None:
    file = tmp_path / "p.hex"
    file.write_text("ffffffff")
    ended = heald("disasm", file)
    assert ended.code == 0
    assert ".word 0xffffffff" in ended.out


@pytest.mark.parametrize(
    ("content", "options", "text"),
    [
        (b"", (), "it is empty"),
        (b"\x00\x01\x02", (), "must hold words of 4 bytes or hexadecimal text, not 3 bytes"),
        (b"12 xyz", ("--format", "hex"), "p:1: must be hexadecimal words of 32 bits, not 'xyz'"),
        (b"# nothing", ("--format", "hex"), "there is none"),
    ],
)
def test_disasm_refuses(
    heald: Any, tmp_path: Path, content: bytes, options: tuple[str, ...], text: str
) -> None:
    file = tmp_path / "p"
    file.write_bytes(content)
    ended = heald("disasm", file, *options)
    assert (ended.code, ended.out) == (2, "")
    assert text in ended.err


def test_disasm_of_a_missing_file(heald: Any) -> None:
    assert "no-such-file: cannot be read" in heald("disasm", "no-such-file").err


@pytest.mark.parametrize("preset", sweep(preset_names(), kept=("test",)))
def test_the_header_compiles_and_agrees_with_the_registers(preset: str, tmp_path: Path) -> None:
    """Places of all registers, places and widths of fields, values of constants and causes, in C."""
    config = load(preset)
    (tmp_path / "heald.h").write_text(register_files(config)["heald.h"])
    facts = {f"offsetof(heald_t, {r.name})": r.offset for r in csr.registers(config)}
    for r in csr.registers(config):
        for field in r.fields:
            facts[f"HEALD__{r.name}__{field.name}_bp"] = field.low
            facts[f"HEALD__{r.name}__{field.name}_bm"] = (1 << field.width) - 1 << field.low
    values = {name: value for name, value in csr.constants(config).items() if name != "VERSION"}
    facts |= {f"HEALD__{name}__VALUE_reset": value for name, value in values.items()}
    facts |= {f"HEALD_CAUSE_{cause.name}": cause.value for cause in isa.Cause}
    checks = "".join(f'_Static_assert({what} == {value}u, "{what}");\n' for what, value in facts.items())
    (tmp_path / "check.c").write_text(f'#include <stddef.h>\n#include "heald.h"\n{checks}')
    done = subprocess.run(
        ["cc", "-Wall", "-Werror", "-c", "check.c"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


def test_peakrdl_reads_the_register_map(tmp_path: Path) -> None:
    files = register_files(load("test"))
    registers = {r.name: r for r in csr.registers(load("test"))}
    component = ElementTree.fromstring(files["heald.xml"])
    space = component.tag.removesuffix("component")
    found = {
        register.findtext(f"{space}name"): register.findtext(f"{space}addressOffset")
        for register in component.iter(f"{space}register")
    }
    assert found == {name: f"'h{r.offset:x}" for name, r in registers.items()}
    from peakrdl_html import HTMLExporter
    from systemrdl import RDLCompiler

    (tmp_path / "heald.rdl").write_text(files["heald.rdl"])
    compiler = RDLCompiler()
    compiler.compile_file(str(tmp_path / "heald.rdl"))
    HTMLExporter().export(compiler.elaborate().top, str(tmp_path / "html"))
    pages = "".join(page.read_text() for page in (tmp_path / "html/content").iterdir())
    assert all(register.meaning in pages for register in registers.values())


@pytest.mark.parametrize(
    ("preset", "top", "changes"),
    [
        ("test", "axi", ("--set", "cgra=none")),
        *(
            pytest.param(preset, top, (), marks=pytest.mark.slow)
            for preset in preset_names()
            for top in ("core", "axi", "uart")
        ),
    ],
)
def test_verilog_writes_every_top_without_synthesis_tools(
    heald: Any,
    preset: str,
    top: str,
    changes: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hw.synthesis.tools.find", lambda name: pytest.fail(f"{name} is asked for"))
    module = {"core": "heald"}.get(top, f"heald_{top}")
    ended = heald("verilog", "--hw", preset, *changes, "--top", top, "-o", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    about = json.loads(ended.out)
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {f"{module}.v", "heald.rdl", "heald.h", "heald.xml", "csr.md", f"{module}.json"}
    assert about["top"] == module
    names = {p["name"] for p in about["interface"]}
    assert len(names) == len(about["interface"])
    assert {"core": "trace_pc", "axi": "s_axil_awaddr", "uart": "uart_rx"}[top] in names
    assert lint((tmp_path / f"out/{module}.v").read_text(), tmp_path, module).count("%") == 0


def test_verilog_needs_a_directory_it_can_make(heald: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = heald("verilog", "--hw", "test", "-o", tmp_path / "file")
    assert ended.code == 2
    assert "must be a directory, not a file" in ended.err


@pytest.mark.parametrize(
    "arguments", [(), ("--help",), ("run", "--help"), ("config", "--help"), ("--version",)]
)
def test_help_is_exit_code_0(heald: Any, arguments: tuple[str, ...]) -> None:
    ended = heald(*arguments)
    assert ended.code == 0
    assert ended.out


def test_starting_up_does_not_import_what_help_does_not_need() -> None:
    heavy = ("onnx", "amaranth", "cocotb", "ortools", "numba", "scipy", "optuna")
    code = f"import sys, heald.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "[]"


def test_the_command_ends_quietly_when_its_reader_goes_away() -> None:
    done = subprocess.run(
        f"{sys.executable} -m heald isa | head -1",
        shell=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.stdout == "# Instruction set\n"
    assert done.stderr == ""


def test_a_terminal_without_a_sign_gets_the_rest() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "heald", "tile", "--matmul", "64x64x64"],
        capture_output=True,
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"64" in done.stdout
    assert b"?" in done.stdout
