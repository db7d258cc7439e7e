"""The same study on PostgreSQL, by URL; a real server where one is installed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heald.exploration import command, study
from heald.exploration.study import open_study
from hw.errors import InputError
from tests.heald.exploration.test_search import Here


def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def server() -> Iterator[str]:
    """The URL of a new server without data. PostgreSQL refuses to run as root, so `nobody` runs it then."""
    pytest.importorskip("psycopg")
    if shutil.which("initdb") is None or shutil.which("pg_ctl") is None:
        pytest.skip("PostgreSQL's initdb and pg_ctl are not installed")
    user = {"user": "nobody", "extra_groups": []} if os.getuid() == 0 else {}
    place = Path(tempfile.mkdtemp(prefix="pg-"))
    place.chmod(0o777)
    number = port()
    quiet: dict[str, Any] = {
        "check": True,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        **user,
    }
    options = f"-p {number} -k {place} -h 127.0.0.1 -F"
    control = ["pg_ctl", "-D", str(place / "data"), "-w", "-l", str(place / "log")]
    subprocess.run(["initdb", "-D", str(place / "data"), "-A", "trust", "-U", "heald"], cwd=place, **quiet)
    subprocess.run([*control, "-o", options, "start"], cwd=place, **quiet)
    try:
        yield f"postgresql://heald@127.0.0.1:{number}/postgres"
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], cwd=place, **quiet)
        shutil.rmtree(place, ignore_errors=True)


@pytest.mark.slow
def test_a_study_on_a_real_server(
    server: str, heald: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "workers", lambda *arguments: Here())
    line = ("explore", "space.toml", "tiny.onnx", "--storage", server, "--json")
    ended = heald(*line, "--trials", "5")
    assert ended.code == 0, ended.err
    ended = heald(*line)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["trials"], found["refused"], found["study"]) == (16, 2, "space-tiny")
    assert not list(folder.glob("*.db"))
    prepared = command.prepare(command.Request(Path("space.toml"), (Path("tiny.onnx"),), storage=server))
    kept = command._open(prepared, command.fingerprints(prepared), print)
    try:
        with pytest.raises(InputError, match="another exploration is using study 'space-tiny'"):
            command._open(prepared, command.fingerprints(prepared), print)
    finally:
        kept.close()


def test_a_server_that_is_not_there(heald: Any, folder: Path) -> None:
    pytest.importorskip("psycopg")
    url = f"postgresql://me:secret@127.0.0.1:{port()}/base"
    ended = heald("explore", "space.toml", "tiny.onnx", "--storage", url)
    assert ended.code == 2
    assert "secret" not in ended.err
    last = ended.err.strip().splitlines()[-1]
    assert last.startswith("heald: --storage postgresql+psycopg://me:***@127.0.0.1")
    assert "connection" in last


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("study.db", "--storage must be a URL such as sqlite:///study.db or postgresql://user@host/base"),
        ("postgresql://me:secret@host:port/base", "not 'postgresql://me:***@host:port/base'"),
        ("sqlite:///st\udcffdy.db", "not 'sqlite:///st\\udcffdy.db'"),
        ("sqlite:///nowhere/study.db", "nowhere does not exist"),
        (f"sqlite:///{'a' * 300}/study.db", "cannot be read: File name too long"),
        ("sqlite:///study.db?timeout=soon", "could not convert string to float: 'soon'"),
        ("sqlite://", "must name a file, as sqlite:///study.db does"),
        ("oracle+cx_oracle://me@host/base", "its driver cx_oracle is not installed: pip install cx_oracle"),
    ],
)
def test_urls_that_lead_nowhere(folder: Path, url: str, told: str) -> None:
    nothing: Any = None
    with pytest.raises(InputError) as error:
        open_study(url, "name", nothing, {})
    assert told in str(error.value)


def test_a_driver_that_is_missing_is_told_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def storage(*arguments: Any) -> Any:
        raise ImportError("no", name="psycopg")

    monkeypatch.setattr(study.optuna.storages, "RDBStorage", storage)
    nothing: Any = None
    with pytest.raises(
        InputError, match=r"its driver psycopg is not installed: pip install 'heald\[postgresql\]'"
    ):
        open_study("postgresql://me@host/base", "name", nothing, {})
