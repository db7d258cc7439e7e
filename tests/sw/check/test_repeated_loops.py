"""The result of one pass through repeated loops holds for all values, on random programs and warps."""

from __future__ import annotations

import random
import re

from hw.errors import InputError
from sw.check import Limits, compile_all
from sw.check.phases import phases
from sw.check.repeated_loops import UnlikeError
from sw.check.streams import run
from sw.check.symbolic import Symbolic
from sw.check.trace import Trace, trace
from sw.ir.errors import IRError
from sw.ir.parse import parse_program
from tests.sw.check.test_text import random_code


class Body:
    """Random statements that count through remainders, sums that may wrap, and scalars."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.labels, self.variables = 0, 0

    def expression(self, names: list[str], depth: int) -> str:
        """Text of an integer expression."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.2:
            return rng.choice([*names, *names, "1", "3", "-4", "2147483647"])
        a = self.expression(names, depth - 1)
        if rng.random() < 0.5:
            operator, number = rng.choice(("// 2", "% 2", "% 3", "% 4", "* 7", "& 3", "& 5", "<< 30")).split()
            return f"({a} {operator} {number})"
        b = self.expression(names, depth - 1)
        return rng.choice((f"({a} + {b})", f"({a} - {b})", f"min({a}, {b})", f"({a} if {b} % 2 == 0 else 3)"))

    def lines(self, indent: int, names: list[str], depth: int = 0) -> list[str]:
        """A few statements."""
        rng, pad, made = self.rng, "    " * indent, []
        names = list(names)
        for _ in range(rng.randint(1, 3)):
            kind, value = rng.random(), self.expression(names, 2)
            if kind < 0.25:
                names.append(f"x{rng.randrange(3)}")
                made.append(f"{pad}{names[-1]} = {value}")
            elif kind < 0.4 and depth < 2:
                made += [f"{pad}if {value} % 3 == 0:", *self.lines(indent + 1, names, depth + 1)]
            elif kind < 0.55 and depth < 2:
                self.variables += 1
                j, bounds = f"j{self.variables}", rng.choice((f"{value}, {value} + 2", f"({value}) % 3"))
                made.append(f"{pad}for {j} in range({bounds}):")
                made += self.lines(indent + 1, [*names, j], depth + 1)
            else:
                self.labels += 1
                place = f"a[{value} % 64 : 64]"
                made.append(f"{pad}I{self.labels} = f(write={place}, warp={rng.randrange(2)})")
        return made

    def program(self) -> str:
        """A program whose loops run as often as `n` says."""
        rng = self.rng
        made = [
            "@program",
            f"def p(n: {rng.choice(('int', 'int[0, 5000]'))}):",
            "    a: Buffer[64]",
            "    x0 = 3",
        ]
        for number in range(rng.randint(1, 2)):
            inner = rng.random() < 0.25
            made += [f"    for o{number} in range(2):"] * inner
            stop = rng.choice(("n", "n", "n + 1", "n - 2"))
            made.append(
                f"    {'    ' * inner}for i{number} in range({rng.choice(('0', '1', 'x0'))}, {stop}):"
            )
            made += self.lines(2 + inner, ["x0", f"i{number}"])
        return "\n".join(made) + "\n"


def instances(made: Trace, warp: int) -> list[tuple[str, int]]:
    """Label and place of a warp's instances in their order."""
    found = []
    for time in made.by_warp.get(warp, []):
        rows = made.rows[int(made.row[time])]
        (write,) = rows.writes
        assert write is not None
        found.append((rows.instruction.label, int(write.start[0, made.index(int(time))])))
    return found


def test_a_period_can_be_taken_out_of_every_phase() -> None:
    """At its begin or its end: the instances of a shorter run are left."""
    accepted, periodic = 0, 0
    for seed in range(400):
        text = Body(random.Random(seed)).program()
        try:
            program = parse_program(text)
            found = Symbolic.of(program, {}, ["n"], {}, 8)
        except (IRError, UnlikeError):
            continue
        accepted, periodic = accepted + 1, periodic + (found.period > 1)
        (full,) = found.full.values()
        n = full + found.period + 1
        if n + found.period >= found.high["n"]:
            continue
        short, long = (trace(program, {"n": v}) for v in (n, n + found.period))
        for warp in long.by_warp:
            own = instances(long, warp)
            for at_end in (False, True):
                left, done = [], 0
                for phase in phases(found.found[full,].loops, {"n": n + found.period}, ["n"]):
                    if warp in phase.span:
                        first, behind = phase.span[warp]
                        start = behind - phase.wanted[warp] if at_end else first
                        left += own[done:start]
                        done = start + phase.wanted[warp]
                assert left + own[done:] == instances(short, warp), text
    assert min(accepted, periodic) > 40


def test_one_round_of_each_loop_gives_the_stream_of_a_warp() -> None:
    loop = "    for i in range(n):\n        I = f(write=a[0:1], warp=0)\n"
    program = parse_program(f"@program\ndef p(n: int[-9, 5000]):\n    a: Buffer[1]\n{loop}")
    repeated = 0
    for seed in range(700):
        rng = random.Random(seed)
        lines = ["arg r6, n"]
        for line in random_code(rng).split("\n"):
            if re.match(r"(@!?r\d+ )?\w+ r6\b", line) or (line.startswith("store r") and rng.random() < 0.8):
                continue
            lines.append(line.replace("r7", "r6") if "loop r7" in line and rng.random() < 0.6 else line)
        text = "\n".join(lines)
        try:
            warps = compile_all(program, {0: text}, Limits())
            found = Symbolic.of(program, warps, ["n"], {}, 8)
        except (InputError, UnlikeError):
            continue
        (low,), (full,) = found.least.values(), found.full.values()
        repeated += bool(found.found[full,].warps[0].loops)
        for n in range(-9, full + 6):
            stream, _ = found.found[max(low, min(n, full)),].warps[0].run({"n": n}, ["n"])
            assert stream.events.tolist() == run(warps[0], {"n": n}).events.tolist(), text
    assert repeated > 10
