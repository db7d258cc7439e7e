"""Hoisting: same meaning, fewer turns than other strategies, never more registers than available."""

from __future__ import annotations

import random

import pytest

from hw.config import MachineConfig, load
from sw.canonical.count import count
from sw.canonical.hoist import Strategy, optimise, sections
from sw.canonical.passes import Canonicalize, Hoist, StrengthReduce
from sw.canonical.placement import Placement
from sw.canonical.prepare import prepare, prepared
from sw.canonical.search import WORK, Chosen, Search
from sw.codegen import generate
from sw.codegen.loops import simplify
from sw.convolution import Convolution
from sw.graph.problems import network_of
from sw.ir.check import check
from sw.ir.parse import parse_expr, parse_program
from sw.ir.program import Assign, For, If, Program
from sw.ir.scope import retype
from sw.ir.split import share, warps
from sw.ir.walk import statements
from sw.passes import run
from sw.patches import Axis
from sw.problem import Product
from tests.sw.codegen.trace import program_trace, words_trace
from tests.sw.compile.sequential import Sequential, emitted

LOADER = """@program
def p():
    for m in range(8):
        for n in range(3):
            for k in range(5):
                w1 = wait(channel=1, warp=0)
                LA = load_a(memory=4096 + 65536*m + 64*k, target=((m*3 + n)*5 + k) % 2 * 512,
                            outer=min(16, 120 - 16*m), inner=min(64, 300 - 64*k),
                            load_stride=1024, load_pitch=64, warp=0)
                s1 = signal(channel=0, warp=0)
"""


def turns(program: Program, registers: int, strategy: Strategy) -> int | None:
    """Executed scalar turns of the words, which do what the program says; None if they do not fit."""
    kept = optimise(program, registers, strategy)
    if count(kept).registers > registers:
        return None
    config = MachineConfig(registers=registers)
    run = words_trace(generate(kept, config, "p"), config)
    assert run.events == program_trace(program)
    return run.scalar_turns


def loaders(number: int, before: str = "", more: str = "") -> Program:
    """So many loaders one after the other, each of its own matrix; `more` is added to every address."""
    text = "@program\ndef p():\n" + before
    for i in range(number):
        nest = LOADER.split("def p():\n")[1].replace("4096 ", f"{4096 + 524288 * i} {more}")
        text += nest.replace("w1", f"w1_{i}").replace("LA", f"LA_{i}").replace("s1", f"s1_{i}")
    return parse_program(text)


def test_each_of_many_loaders_is_as_good_as_one() -> None:
    one, many = (optimise(loaders(number), 8) for number in (1, 30))
    assert program_trace(many) == program_trace(loaders(30))
    assert count(many).scalar_turns <= 30 * count(one).scalar_turns


def some_loaders(r: random.Random, number: int) -> str:
    """A nest of loops with variables that other nests have too, and loads that depend on some of them."""
    names = r.sample(["m", "n", "k", "t"], r.randint(1, 4))

    def place() -> str:
        factors = [r.choice([0, 64, 4096, 70000])]
        terms = [f"{r.choice([1, 16, 64, 1024, 65536])}*{name}" for name in names if r.random() < 0.8]
        return " + ".join(map(str, [*factors, *terms]))

    lines = [f"{'    ' * d}for {name} in range({r.randint(2, 9)}):" for d, name in enumerate(names, 1)]
    inside = "    " * (len(names) + 1)
    lines.append(f"{inside}w{number} = wait(channel=1)")
    for j in range(r.randint(1, 3)):
        sizes = (
            f"outer=min(16, {r.randint(50, 200)} - 16*{names[0]}), "
            f"inner=min(64, {r.randint(50, 300)} - 64*{names[-1]}), load_stride=1024, load_pitch=64"
        )
        operation = r.choice(["load_a", "load_b"])
        at = f"memory={place()}, target=({place()}) % 2 * 512"
        lines.append(f"{inside}L{number}_{j} = {operation}({at}, {sizes})")
    return "\n".join([*lines, f"{inside}s{number} = signal(channel=0)"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("registers", [9, 16])
def test_sections_together_have_the_registers_of_the_machine(seed: int, registers: int) -> None:
    r = random.Random(seed)
    text = "\n".join(some_loaders(r, i) for i in range(r.randint(6, 14)))
    program = parse_program(f"@program\ndef p():\n{text}\n")
    assert len(sections(program.body)) > 1
    given = count(program).registers
    assert count(optimise(program, registers, uniform=True)).registers <= max(registers, given)


def test_a_scalar_that_all_loaders_read_keeps_them_together() -> None:
    given = "    base = 0\n    for i in range(3):\n        base = base + 64\n"
    program = loaders(12, given, "+ base ")
    kept = optimise(program, 16)
    assert program_trace(kept) == program_trace(program)
    parts = sections(program.body)
    assert [len(part) for part in parts] == [len(program.body)]
    assert len(sections(loaders(12).body)) > 2


SIBLINGS = """@program
def p():
    for t in range(4):
        for n in range(2):
            LA = load_a(memory=4096 + 24*n, target=n % 2 * 512, outer=2, inner=12, load_stride=12,
                        load_pitch=12, warp=0)
        for n in range(2):
            LB = load_a(memory=4096 + 24*n, target=n % 2 * 512, outer=2, inner=12, load_stride=12,
                        load_pitch=12, warp=0)
"""


@pytest.mark.parametrize("strategy", Strategy)
def test_loops_with_one_variable_keep_their_own_values(strategy: Strategy) -> None:
    # The second loop had the addresses that the first one left.
    assert turns(parse_program(SIBLINGS), 32, strategy) is not None


def test_a_loader_is_as_good_as_one_written_by_hand() -> None:
    program = parse_program(LOADER)
    kept = optimise(program, 16)
    inner = [s for s in statements(kept.body) if isinstance(s, For)][-1]
    # The wait, the load, the signal, what is left of the last tile, and the three that move on.
    assert [str(getattr(s, "value", s)) for s in inner.body if isinstance(s, Assign)] == [
        "min(64, inner)",
        "memory + 64",
        "target ^ constant_512",
        "inner - 64",
    ]
    # Four for each of 120 loads, two loops, and what stands before them; computing everything takes 2773.
    assert (turns(program, 16, Strategy.BUDGET) or 631) <= 630


def conv(channels: int, size: int, kernel: int, stride: int, out: int) -> Convolution:
    axis = Axis(size, kernel, stride, kernel // 2, kernel // 2)
    return Convolution(1, channels, axis, axis, out)


PROBLEMS = [
    ("test", Product(33, 70, 41, transposed_a=True)),
    ("test", Product(60, 50, 70, batch_a=(3, 1), batch_b=(4,))),
    ("tiny", Product(130, 300, 200)),
    ("default", Product(384, 1024, 1024)),
    ("default", conv(64, 56, 3, 1, 64)),
    ("default", conv(3, 224, 7, 2, 64)),
]


@pytest.mark.parametrize(("preset", "problem"), PROBLEMS, ids=str)
def test_never_more_turns_than_the_other_strategies(preset: str, problem: Product | Convolution) -> None:
    (step,) = emitted(network_of(problem), load(preset))
    assert isinstance(step, Sequential)
    program = step.source
    for warp in warps(program):
        own = retype(share(program, warp))
        for registers in (10, 16):
            found = {s: turns(own, registers, s) for s in Strategy}
            ours = found[Strategy.BUDGET]
            others = [c for s, c in found.items() if s is not Strategy.BUDGET and c is not None]
            assert ours is not None or not others
            assert ours is None or all(ours <= other for other in others)


SMALL = """@program
def p():
    for i in range(6):
        for j in range(7):
            S = store(memory=4099*i + 77*j, source=(i*7 + j) % 2 * 600, rows=min(9, 40 - 9*j), bytes=8)
"""


def drawn(search: Search, r: random.Random) -> Chosen:
    """Any choice."""
    chosen: Chosen = {}
    while waiting := {e: a for e, a in search.result(chosen).asked.items() if e not in chosen}:
        chosen |= {expr: r.choice(options) for expr, options in waiting.items()}
    return chosen


@pytest.mark.parametrize("registers", [6, 7, 9])
def test_no_choice_that_was_drawn_is_better(registers: int) -> None:
    search = Search(Placement(prepare(parse_program(SMALL))), registers)
    ours = search.result(search.budget())
    assert not ours.excess
    r = random.Random(registers)
    results = [search.result(drawn(search, r)) for _ in range(300)]
    assert len({result.turns for result in results if not result.excess}) > 4
    assert ours.cost <= min(result.cost for result in results if not result.excess)


@pytest.mark.parametrize("registers", range(8, 33, 4))
def test_registers_are_never_exceeded(registers: int) -> None:
    for text in (LOADER, SMALL):
        assert count(optimise(parse_program(text), registers)).registers <= registers


STORE = "S{} = store(memory={}, source=0, rows=1, bytes=1)"


def test_nothing_that_may_trap_is_moved() -> None:
    text = "@program\ndef p(d: int[0, 5]):\n    for i in range(4):\n        if d != 0:\n"
    text += "".join(
        f"            S{n} = store(memory=100 // d + i, source=0, rows=1, bytes=1)\n" for n in range(4)
    )
    program = parse_program(text)
    kept = optimise(program, 32)
    for d in range(5):
        assert program_trace(kept, {"d": d}) == program_trace(program, {"d": d})


def test_a_branch_rarely_taken_keeps_its_own() -> None:
    text = "@program\ndef p(x: int[0, 99], y: int[0, 99]):\n    for i in range(100):\n        if i == 50:\n"
    text += "".join(
        f"            S{n} = store(memory=x*y + i, source=0, rows=1, bytes=1)\n" for n in range(4)
    )
    text += "        else:\n"
    text += "".join(f"            T{n} = store(memory=0, source=0, rows=0, bytes=0)\n" for n in range(4))
    kept = optimise(parse_program(text), 16)
    (loop,) = (s for s in kept.body if isinstance(s, For))
    assert not any("x * y" in str(s.value) for s in loop.body if isinstance(s, Assign))


def test_scalars_that_change_are_respected() -> None:
    text = "@program\ndef p():\n    x = 5\n    for i in range(4):\n        for j in range(3):\n"
    text += "            S = store(memory=x*x + i*7, source=x*x, rows=1, bytes=j)\n        x = x + i\n"
    text += "    T = store(memory=x*x, source=0, rows=0, bytes=0)\n"
    program = parse_program(text)
    kept = optimise(program, 16)
    assert program_trace(kept) == program_trace(program)
    assert turns(program, 16, Strategy.BUDGET) is not None


def test_hoisting_twice_is_harmless() -> None:
    program = parse_program(LOADER)
    once = optimise(program, 16)
    twice = optimise(once, 16)
    assert program_trace(twice) == program_trace(program)
    assert count(twice).scalar_turns <= count(once).scalar_turns


def test_passes_keep_the_meaning_and_regions() -> None:
    text = "@program\ndef p(x: int[0, 9]):\n    a: Buffer[4096]\n"
    text += "    for i in range(8):\n        for j in range(8):\n            base = 64*i + x*8\n"
    text += "            t = touch(read=a[base : base + 8], write=a[8*j : 8*j + 4])\n"
    program = parse_program(text)
    for step in (Hoist(registers=16), StrengthReduce()):
        kept = step(program)
        assert parse_program(str(kept)) == retype(kept)
        assert count(kept).scalar_turns < count(program).scalar_turns


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("112 - 16 * max(3, 4*i)", "min(64, 112 - i * 64)"),
        ("4 * min(16, 50 - 16*i)", "min(64, 200 - i * 64)"),
        ("i == 4", "-4 + i == 0"),
        ("i != 0", "not i == 0"),
    ],
)
def test_forms_in_which_values_are_looked_for(text: str, wanted: str) -> None:
    types = {"i": "loop0[0,6]"}
    assert str(prepared(parse_expr(text, types))) == str(parse_expr(wanted, types))


TRAPPING = (
    "    u = x\n    for i in range(3):\n        u = 1 // u\n",
    "    u = x\n    for i in range(3):\n        u = x // (u + i)\n        S = touch(o=i*x)\n",
    "    u = x\n    v = x // u\n    w = v + 1\n    y = 7 % w\n",
)


@pytest.mark.parametrize("body", TRAPPING)
@pytest.mark.parametrize("change", [Hoist(), StrengthReduce()], ids=lambda c: c.name)
def test_what_may_trap_keeps_what_it_reads(body: str, change: Hoist | StrengthReduce) -> None:
    changed = change(parse_program("@program\ndef p(x: int):\n" + body))
    again = parse_program(str(changed))
    check(again)
    kept = [str(s.value) for s in statements(again.body) if isinstance(s, Assign)]
    assert any("//" in text for text in kept)


CHAINS = (
    "u{0} = (u{1} * u{1} + {0}) * (u{1} + n)",
    "u{0} = min(u{1}, {0}) if u{1} < n else max(u{1} - 7, n)",
    "u{0} = u{1} * n + u{1} * x + {0}",
)


@pytest.mark.parametrize("link", CHAINS)
def test_chains_of_scalars_that_are_used_twice_stay_small(link: str) -> None:
    lines = ["u0 = x", *(link.format(i, i - 1) for i in range(1, 41)), STORE.format("", "u40 + i")]
    text = "@program\ndef p(x: int, n: int[1, 9]):\n    for i in range(3):\n"
    program = parse_program(text + "".join(f"        {line}\n" for line in lines))
    search = Search(Placement(prepare(program)), 16)
    best = search.result(search.budget())
    # Once, outside of the loop.
    assert best.static <= count(program).scalar_static + 3
    assert best.turns <= count(program).scalar_turns / 3 + 9
    kept = optimise(program, 16)
    for x in (-9, 0, 5, 1 << 20):
        values = {"x": x, "n": 3}
        assert program_trace(kept, values) == program_trace(program, values)


def test_the_search_in_a_large_program_is_bounded() -> None:
    text = "@program\ndef p(x: int, n: int[1, 9]):\n    for i in range(9):\n"
    text += "".join(f"        {STORE.format(k, f'x*{k} + n')}\n" for k in range(11, 311))
    search = Search(Placement(prepare(parse_program(text))), 16)
    best = search.result(search.budget())
    assert search.work < 1.2 * WORK
    # Values are kept all the same.
    assert not best.excess
    assert best.turns <= search.result(search.nothing()).turns - 9 * 8


RARE = """@program
def p(x: int[0, 9], y: int, z: int[-3, 4], m: int[1, 6], q: bool):
    if q:
        s0 = m + z
    else:
        A = consume(o=y // 5 * (z | 4) * (m + x + z // 2), when=x != 3)
        B = produce(o=(z if q else y) * (y - m))
"""


@pytest.mark.parametrize("registers", [9, 32])
def test_operands_of_a_branch_stay_in_it(registers: int) -> None:
    program = parse_program(RARE)
    kept = optimise(program, registers)
    assert count(kept).scalar_turns <= count(program).scalar_turns
    (branch,) = kept.body
    assert isinstance(branch, If)
    assert not branch.orelse


@pytest.mark.parametrize(
    ("branch", "predicated"),
    [
        ("if q:\n        A = consume(o=x*y*x + y)", False),
        ("if q:\n        A = consume(o=x*y)", True),
        ("if q:\n        A = consume(o=x + y)", True),
        ("if q:\n        A = consume(o=x*y)\n    else:\n        B = produce(o=x*y)", True),
        ("if q:\n        A = consume(o=x // 7)\n    else:\n        B = produce(o=x*y)", False),
    ],
)
def test_a_branch_becomes_predicates_where_that_is_not_dearer(branch: str, predicated: bool) -> None:
    program = parse_program(f"@program\ndef p(x: int, y: int, q: bool):\n    {branch}\n")
    assert any(isinstance(s, If) for s in statements(simplify(program).body)) != predicated


def test_what_leaves_a_loop_leaves_a_branch_for_predicates() -> None:
    text = "@program\ndef p(x: int, y: int):\n    for i in range(50):\n        if i % 2 == 0:\n"
    program = parse_program(text + "            A = consume(o=x*y)\n")
    kept = optimise(program, 16)
    assert count(kept).scalar_turns <= 50 * 2 + 10


def drawn_branches(r: random.Random) -> str:
    """A program of branches and loops with operands of all prices."""

    def value(depth: int) -> str:
        if depth == 0 or r.random() < 0.2:
            return r.choice(["x", "y", "m", "3", "100"])
        op = r.choice(["+", "-", "*", "// 5 +", "& 7 |", "% m -"])
        return f"({value(depth - 1)} {op} {value(depth - 1)})"

    def body(depth: int, indent: str) -> list[str]:
        lines: list[str] = []
        for _ in range(r.randrange(1, 3)):
            number[0] += 1
            kind = r.choice(["if", "else", "for", "leaf", "leaf"]) if depth else "leaf"
            if kind == "leaf":
                lines.append(f"{indent}L{number[0]} = consume(o={value(2)})")
            elif kind == "for":
                lines += [f"{indent}for i{number[0]} in range(4):", *body(depth - 1, indent + "    ")]
            else:
                lines += [f"{indent}if {r.choice(['q', 'x < m'])}:", *body(depth - 1, indent + "    ")]
                if kind == "else":
                    lines += [f"{indent}else:", *body(depth - 1, indent + "    ")]
        return lines

    number = [0]
    head = "@program\ndef p(x: int[0, 90], y: int, m: int[1, 9], q: bool):"
    return "\n".join([head, *body(3, "    ")]) + "\n"


@pytest.mark.parametrize("seed", range(25))
def test_never_slower_than_the_program_as_it_was_written(seed: int) -> None:
    program = parse_program(drawn_branches(random.Random(seed)))
    before = count(program)
    after = count(optimise(program, max(10, before.registers)))
    assert after.scalar_turns <= before.scalar_turns
    assert after.registers <= max(10, before.registers)


ENDS = """@program
def p():
    b: Buffer[64]
    for i in range(1, 5):
        for j in range(3, -1, -1):
            A = g(read=b[j * -1 + 3:j * -1 + 3 + 3])
            for k in range(3):
                B = g(write=[b[5 * k + 7 * i + 5:5 * k + 7 * i + 5 + 4], b[i + j:i + j + 2]])
"""


@pytest.mark.parametrize("registers", [8, 16])
def test_canonical_ends_of_intervals_are_no_dearer_than_start_and_length(registers: int) -> None:
    program = parse_program(ENDS)
    short = run([Canonicalize()], program)
    assert "b[3 - j:6 - j]" in str(short)
    written, canonical = (count(optimise(p, registers)) for p in (program, short))
    assert canonical.scalar_executed <= written.scalar_executed
    assert canonical.registers <= registers
