"""Builds: one for every configuration, rebuilt only when something relevant has changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from cosim import toolchain
from cosim.build import HARNESS, MAINS, Build, _parameters, _run, _runtime, build, executables
from hw import cache
from hw.config import MachineConfig
from hw.errors import InputError

FAKE = Path(__file__).parent / "fake_machine.v"


def test_a_second_build_comes_from_the_cache(fake: Build, small: MachineConfig) -> None:
    again = build(small, text=FAKE.read_text())
    assert again.directory == fake.directory
    assert again.seconds == 0.0


def test_the_name_and_latencies_of_a_machine_do_not_count_for_a_given_verilog(
    fake: Build, small: MachineConfig
) -> None:
    other = small.replace(name="other", load_a_latency=99, store_latency=1)
    assert build(other, text=FAKE.read_text()).directory == fake.directory


def test_only_the_executables_and_the_verilog_are_kept(fake: Build) -> None:
    assert sorted(p.name for p in fake.directory.iterdir()) == ["checksums", "cocotb", "heald.v", "plain"]


def test_every_name_of_the_cache_will_do(
    small: MachineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = _runtime(toolchain.find(), None)
    monkeypatch.setattr("cosim.build._runtime", lambda tools, kind: runtime)
    monkeypatch.setattr(cache, "directory", lambda: tmp_path / "a b#c:d'e\"f$g")
    made = executables(FAKE.read_text(), HARNESS, {"plain": MAINS["plain"]}, _parameters(small))
    assert sorted(p.name for p in made.directory.iterdir()) == ["checksums", "heald.v", "plain"]


@pytest.mark.parametrize(
    ("log", "told"),
    [
        ("cc1plus: fatal error: out of memory allocating 65536 bytes", "out of memory"),
        ("as: x.o: No space left on device", "No space left on device"),
    ],
)
def test_tools_without_disk_or_memory_are_no_fault_of_the_build(tmp_path: Path, log: str, told: str) -> None:
    with pytest.raises(InputError, match=f"sh could not do its work: {told}"):
        _run(["/bin/sh", "-c", f"echo '{log}'; exit 1"], tmp_path, tmp_path / "log")


def test_verilog_that_verilator_refuses_leaves_a_log_and_no_build(
    small: MachineConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "directory", lambda: tmp_path)
    monkeypatch.setattr("cosim.build._runtime", lambda tools, kind: ([], 0.0))
    with pytest.raises(RuntimeError, match=r"failed with code .*\.log:\n(?s:.)*%Error"):
        build(small, text="module heald (input clk; endmodule")
    assert [p.suffix for p in sorted((tmp_path / "build").iterdir())] == [".lock", ".log"]
