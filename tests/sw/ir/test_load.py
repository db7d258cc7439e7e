"""Programs from files and from standard input."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hw.errors import InputError
from sw.ir.errors import IRError
from sw.ir.load import load_program

TEXT = "@program\ndef f():\n    a: Buffer[8]\n    t(read=a[0:{}])\n"


def test_a_file_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "f.py"
    path.write_bytes(b"\xef\xbb\xbf" + TEXT.format(8).replace("\n", "\r\n").encode())
    assert load_program(path).name == "f"
    path.write_text(TEXT.format(9))
    with pytest.raises(IRError) as caught:
        load_program(str(path))
    assert str(caught.value).startswith(f"{path}:4:12: found a[0:9], which ends at 9, expected")


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.format(9).encode())))
    with pytest.raises(IRError, match=r"^standard input:4:12: found"):
        load_program("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match=r"^standard input: cannot be read: it is closed$"):
        load_program("-")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# caf\n# \xe9\n")
    for name, text in (
        (tmp_path, "Is a directory"),
        (tmp_path / "none.py", "No such file or directory"),
        (tmp_path / "latin.py", "latin.py:2:3: found the byte 0xe9 ("),
        ("", "Is a directory"),
        ("a\0b", "null"),
    ):
        with pytest.raises(InputError) as caught:
            load_program(name)
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [(b"\xef\xbb\xbfab\xff", 1, 3), (b"\xff", 1, 1), ("# \u00e9\n\u00e9".encode() + b"\xfe\n", 2, 2)],
)
def test_the_place_of_what_is_no_utf8(tmp_path: Path, data: bytes, line: int, column: int) -> None:
    path = tmp_path / "w.py"
    path.write_bytes(data)
    with pytest.raises(IRError) as caught:
        load_program(path)
    assert caught.value.where is not None
    assert (caught.value.where.line, caught.value.where.column) == (line, column)
    assert caught.value.expected == "text in UTF-8"


def test_the_package_gives_what_notes_and_scripts_import() -> None:
    from sw.canonical import canonicalize
    from sw.ir import load_program, parse_expr, parse_program

    assert callable(canonicalize)
    assert callable(load_program)
    assert str(parse_expr("a + 1", {"a": "int[0, 9]"})) == "a + 1"
    assert parse_program("@program\ndef p():\n    pass\n").name == "p"
