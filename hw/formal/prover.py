"""Runs a proof or searches for a planted fault: Amaranth to RTLIL, SymbiYosys, and its result."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from hw import cache
from hw.errors import InputError
from hw.formal.bench import TOP, UNRESET
from hw.formal.proof import Fault, Method, Proof
from hw.formal.tools import Tools

#: Time limit of a solver in seconds; the longest proof takes about 160.
TIME_LIMIT = 600

_FAILED = re.compile(rf"(?:Assert failed in|failed assertion) {TOP}\.(\w+)")


@dataclass(frozen=True)
class Outcome:
    """The result of one proof (`fault` is None) or of the search for one planted fault.

    `holds`: the proof succeeded, or the fault was found. `failed`: the statements that failed. `trace`: the
    counterexample (VCD). `reason`: what else went wrong. `open`: nothing was refuted, but the induction did
    not close.
    """

    proof: str
    fault: str | None
    method: str
    depth: int
    seconds: float
    processor_seconds: float
    holds: bool
    failed: tuple[str, ...] = ()
    trace: str | None = None
    reason: str = ""
    open: bool = False


def run(proof: Proof, fault: Fault | None, tools: Tools, folder: Path) -> Outcome:
    """Proves, or searches for a fault; the files go to a folder of its own below `folder`.

    An induction that does not close is not a proof. If the proof has a bounded depth, the outcome then says
    how far its statements hold: in `method`, `depth` and `reason`.
    """
    if fault is not None:
        return _run(proof, fault, Method.BOUNDED, fault.depth, tools, folder)
    outcome = _run(proof, None, proof.method, proof.depth, tools, folder)
    broken = any(not name.startswith("invariant_") for name in outcome.failed) and not outcome.open
    if outcome.holds or broken or not (proof.induction and proof.bounded):
        return outcome
    bounded = _run(proof, None, Method.BOUNDED, proof.bounded, tools, folder)
    reason = bounded.reason or f"{outcome.reason}; no run of {proof.bounded} cycles breaks a statement"
    return dataclasses.replace(
        bounded,
        holds=False,
        seconds=outcome.seconds + bounded.seconds,
        processor_seconds=outcome.processor_seconds + bounded.processor_seconds,
        reason=reason,
        open=not bounded.failed,
    )


def _run(
    proof: Proof, fault: Fault | None, method: Method, depth: int, tools: Tools, folder: Path
) -> Outcome:
    began, used = time.monotonic(), _processor_seconds()

    def outcome(holds: bool, **more: object) -> Outcome:
        seconds = time.monotonic() - began
        name = fault.name if fault else None
        work = _processor_seconds() - used
        return Outcome(proof.name, name, method.value, depth, seconds, work, holds, **more)  # type: ignore[arg-type]

    try:
        text = proof.bench(fault, bounded=method is Method.BOUNDED).rtlil()
    except (InputError, AttributeError, KeyError) as error:
        # An invariant or fault names something that no longer exists.
        reason = str(error) if isinstance(error, InputError) else f"the bench does not fit: {error!r}"
        return outcome(False, reason=reason)
    instead = "-bounded" if fault is None and method is not proof.method else ""
    place = folder / (f"{proof.name}-{fault.name}" if fault else proof.name + instead)
    solver = tools.solver(method, proof.solver)
    try:
        if place.exists():
            shutil.rmtree(place)  # no result of an earlier run may count
        place.mkdir(parents=True)
        (place / "design.il").write_text(text, encoding="utf-8")
        (place / "run.sby").write_text(_script(method, depth, solver.name), encoding="utf-8")
    except OSError as error:
        raise cache.unwritable(place, error) from None
    log = _call(place, tools, solver.folder)
    failed = tuple(dict.fromkeys(_FAILED.findall(log)))
    status = place / "run" / "status"
    verdict = status.read_text(encoding="utf-8").split()[0] if status.is_file() else "ERROR"
    # The induction step may also have a trace, of states that no run reaches; the base case has precedence.
    traces = [place / "run" / "engine_0" / f"trace{kind}.vcd" for kind in ("", "_induct")]
    trace = next((str(t) for t in traces if t.is_file()), None)
    if fault:
        found = verdict == "FAIL" and fault.breaks in failed
        reason = "" if found else f"not noticed ({verdict}) within {depth} cycles"
        return outcome(found, failed=failed, trace=trace if found else None, reason=reason)
    if verdict == "PASS":
        return outcome(True)
    reasons = {
        "UNKNOWN": f"the induction does not close ({', '.join(failed)})",
        "TIMEOUT": f"no result after {TIME_LIMIT} s",
        "FAIL": f"first to fail: {failed[0] if failed else '?'}",
    }
    reason = reasons.get(verdict, f"{verdict}: {_last_error(log)}")
    return outcome(False, failed=failed, trace=trace, reason=reason, open=verdict == "UNKNOWN")


def _processor_seconds() -> float:
    """Processor time that this process and its child processes have used so far."""
    return sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def _script(method: Method, depth: int, solver: str) -> str:
    # Memories and registers that no reset reaches begin with arbitrary values, as in a second run. Without
    # `-norom` a lookup table would become a memory, whose contents an induction treats as arbitrary.
    mode = "prove" if method is Method.INDUCTION else "bmc"
    return f"""[options]
mode {mode}
depth {depth}
timeout {TIME_LIMIT}
[engines]
smtbmc --nopresat {solver}
[script]
read_rtlil design.il
hierarchy -top {TOP}
setattr -unset init a:{UNRESET}
delete t:$meminit_v2
proc -norom
prep -top {TOP}
[files]
design.il
"""


def _call(place: Path, tools: Tools, solvers: Path) -> str:
    path = os.pathsep.join([str(solvers), os.environ.get("PATH", "")])
    command = [tools.sby, "--yosys", tools.yosys, "--smtbmc", tools.smtbmc, "-f", "run.sby"]
    done = subprocess.run(
        [str(c) for c in command],
        cwd=place,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def _last_error(log: str) -> str:
    lines = [line for line in log.splitlines() if "ERROR" in line or "error" in line.lower()]
    return lines[0].strip() if lines else "no status"
