"""Files are written whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from hw.errors import InputError
from jacquard.files import atomic, check_writable, write_text


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError), atomic(path) as part:
        part.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_temporary_file_keeps_the_ending_and_the_users_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    with atomic(tmp_path / "waves.vcd") as part:
        assert part.suffix == ".vcd"
        part.write_text("")
    assert (tmp_path / "waves.vcd").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_places_that_cannot_be_written_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be a file, not a directory"):
        check_writable(tmp_path)
    with pytest.raises(InputError, match="does not exist"):
        check_writable(tmp_path / "a" / "b")
