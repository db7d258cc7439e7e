"""Files are written completely or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from heald import files
from heald.files import atomic, check_writable, write_directory, write_text
from hw.errors import InputError


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
    (tmp_path / "file").touch()
    for place, text in (
        (tmp_path, f"^{tmp_path}: must be a file, not a directory: name one inside it$"),
        (tmp_path / "a" / "b", "does not exist: make it first, or name another$"),
        (tmp_path / "file" / "b", f"directory {tmp_path}/file is a file: name another$"),
        (tmp_path / ("x" * 300), "cannot be written: File name too long; choose another path$"),
    ):
        with pytest.raises(InputError, match=text):
            check_writable(place)


def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_arguments: object, **_others: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "stat", denied)  # root may read every folder
    with pytest.raises(InputError, match=r"x\.txt: cannot be written: Permission denied"):
        check_writable(tmp_path / "x.txt")


def test_a_link_into_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "away").mkdir()
    (tmp_path / "link").symlink_to("away/file")
    monkeypatch.setattr(os, "access", lambda *arguments: False)  # root may write everywhere
    with pytest.raises(InputError, match=r"link: directory \S*/away cannot be written"):
        check_writable(tmp_path / "link")


def test_a_name_may_be_as_long_as_the_file_system_takes(tmp_path: Path) -> None:
    path = tmp_path / f"{'x' * 251}.txt"
    write_text(path, "text")
    assert path.read_text() == "text"


def test_text_is_utf_8_in_every_locale(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    code = (
        "import pathlib, sys; from heald.files import write_text; "
        "write_text(pathlib.Path(sys.argv[1]), chr(0x2192))"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    command = [sys.executable, "-c", code, str(path)]
    subprocess.run(command, cwd=Path(__file__).parents[2], env=os.environ | ascii_only, check=True)
    assert path.read_bytes() == "→".encode()


def test_text_that_is_no_unicode_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.txt: cannot be written: text must be Unicode"):
        write_text(tmp_path / "x.txt", "caf\udce9")
    assert not list(tmp_path.iterdir())


def test_what_is_no_regular_file_stays_and_is_written_to(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE, text=True) as reader:
        write_text(pipe, "text")
        assert reader.communicate(timeout=10)[0] == "text"
    assert pipe.is_fifo()
    write_text(Path("/dev/null"), "text")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(InputError, match=r"/dev/full: cannot be written: No space left"):
        write_text(Path("/dev/full"), "text")
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_pipe_without_a_reader_is_no_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: cannot be written: nobody reads this pipe"):
        write_text(tmp_path / "pipe", "text")


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "away").mkdir()
    for name in ("old", "new"):
        (tmp_path / name).symlink_to(f"away/{name}")
    (tmp_path / "away" / "old").write_text("old")
    write_text(tmp_path / "old", "text")
    write_directory(tmp_path, lambda folder: (folder / "new").write_text("text") and None)
    for name in ("old", "new"):
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / "away" / name).read_text() == "text"
    assert sorted(p.name for p in (tmp_path / "away").iterdir()) == ["new", "old"]


@pytest.mark.parametrize("target", ["/dev/stdout", "out"])
def test_standard_output_is_written_to_where_it_is(tmp_path: Path, target: str) -> None:
    code = (
        "import pathlib, sys; from heald.files import write_text; print('before'); "
        f"write_text(pathlib.Path({target!r}), 'text'); print('behind')"
    )
    path = tmp_path / "out"
    with path.open("w") as out:
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, stdout=out, check=True)
    assert path.read_text() == "before\ntextbehind\n"
