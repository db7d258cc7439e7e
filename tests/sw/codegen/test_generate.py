"""Generated words do what the tile program says, whatever is held in registers."""

from __future__ import annotations

import random

import pytest

from hw.assembly import disassemble_words
from hw.config import MachineConfig
from hw.errors import InputError
from sw.canonical.count import count
from sw.canonical.hoist import Strategy, optimise
from sw.codegen import generate
from sw.ir.parse import parse_program
from tests.budget import sweep
from tests.sw.codegen.programs import Draw
from tests.sw.codegen.trace import program_trace, words_trace


def machine(registers: int = 32, **settings: int) -> MachineConfig:
    return MachineConfig(registers=registers, imem_words=4096, **settings)


def words(body: str, **settings: int) -> list[str]:
    """Disassembly of a program whose statements are given; it is checked against the program."""
    text = "@program\ndef p():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())
    program, config = parse_program(text), machine(**settings)
    made = generate(program, config, "p")
    assert words_trace(made, config).events == program_trace(program)
    return disassemble_words(made)


def too_few(error: InputError) -> None:
    """Drawn programs may need more registers than there are, and nothing else."""
    assert "registers must be at least" in str(error)


@pytest.mark.parametrize("seed", sweep(range(60), kept=range(24)))
def test_random_programs_do_the_same_in_every_way(seed: int) -> None:
    program = parse_program(Draw(seed, depth=2, size=4, nesting=1).text())
    try:
        want = program_trace(program)
    except ArithmeticError:
        return  # a program that divides by zero
    registers = random.Random(seed).choice((8, 9, 12, 16, 24, 32))
    for strategy in Strategy:
        kept = optimise(program, registers, strategy)
        assert program_trace(parse_program(str(kept))) == want
        config = machine(registers)
        try:
            made = generate(kept, config, "p")
        except InputError as error:
            too_few(error)
            assert registers <= 12
            continue
        run = words_trace(made, config)
        assert run.events == want
        assert run.registers <= count(kept).registers <= registers


@pytest.mark.parametrize("seed", range(60, 120))
def test_programs_as_they_are_written(seed: int) -> None:
    program = parse_program(Draw(seed).text())
    try:
        want = program_trace(program)
    except ArithmeticError:
        return
    try:
        made = generate(program, machine(), "p")
    except InputError as error:
        too_few(error)
        return
    assert words_trace(made, machine()).events == want


STORE = "S = store(memory={}, source=0, rows=0, bytes=0)"


@pytest.mark.parametrize(
    ("expression", "most"),
    [
        ("i * 8", 1),
        ("i // 4", 1),
        ("i % 8", 1),
        ("i + 512", 1),
        ("5 - i", 2),
        ("i * 5", 2),
        ("i * 7", 2),
        ("min(i, 511)", 1),
        ("i - 300", 1),
        ("7 if i == 0 else i", 2),
        ("i // 7", 2),
    ],
)
def test_expressions_take_few_instructions(expression: str, most: int) -> None:
    empty = words("for i in range(9):\n    " + STORE.format("i"))
    assert len(words("for i in range(9):\n    " + STORE.format(expression))) - len(empty) <= most


def test_division_by_a_constant_takes_no_divider() -> None:
    lines = words("for i in range(1000):\n    " + STORE.format("i // 12 * 16 + i % 12"))
    assert not any(name in line for line in lines for name in ("div", "rem"))


def test_predicates_test_registers_for_zero() -> None:
    lines = words(
        "for i in range(4):\n"
        "    S = store(memory=i, source=0, rows=0, bytes=0, when=i == 0)\n"
        "    T = store(memory=i, source=0, rows=0, bytes=0, when=i != 0)"
    )
    loop = next(i for i, line in enumerate(lines) if line.startswith("loop"))
    assert [line.split()[0] for line in lines[loop + 1 : loop + 4]] == ["@!r1", "@r1", "addi"]


def test_a_parameter_is_written_where_it_changes() -> None:
    lines = words(
        "for i in range(3):\n"
        "    for j in range(4):\n"
        "        L = load_a(memory=j, target=0, outer=1, inner=1, load_stride=64, load_pitch=i + 1)"
    )
    loops = [i for i, line in enumerate(lines) if line.startswith("loop")]
    stride = next(i for i, line in enumerate(lines) if "load_stride" in line)
    pitch = next(i for i, line in enumerate(lines) if "load_pitch" in line)
    assert stride < loops[0] < pitch < loops[1]


def test_a_parameter_that_two_operations_share_alternates() -> None:
    lines = words(
        "for i in range(3):\n"
        "    L = load_a(memory=0, target=0, outer=1, inner=1, load_pitch=7)\n"
        "    M = load_a(memory=0, target=0, outer=1, inner=1)"
    )
    assert sum("load_pitch" in line for line in lines) == 2


def test_a_parameter_too_wide_where_nothing_happens_is_no_error() -> None:
    lines = words(
        "for i in range(3):\n"
        "    L = load_a(memory=0, target=0, outer=1, inner=1, load_fill=300 * i, when=i == 0)"
    )
    # It is cut to the eight bits of the register.
    (written,) = (i for i, line in enumerate(lines) if "load_fill" in line)
    assert any("255" in line for line in lines[:written])


def test_operands_are_ready_before_the_wait() -> None:
    lines = words(
        "for i in range(3):\n"
        "    w = wait(channel=1)\n"
        "    L = load_a(memory=64 * i + 4096, target=5, outer=1, inner=1, load_pitch=i)"
    )
    wait = lines.index("wait 1")
    assert lines[wait + 1].startswith("load_a")


def test_predicates_of_all_waits_are_ready_before_the_first() -> None:
    lines = words(
        "for i in range(6):\n"
        "    v = wait(channel=1, when=i % 2 == 0)\n"
        "    w = wait(channel=2, when=i % 3 == 0)\n"
        "    L = load_a(memory=64 * i + 4096, target=5, outer=1, inner=1)"
    )
    waits = [i for i, line in enumerate(lines) if "wait" in line]
    assert waits == [waits[0], waits[0] + 1]
    assert lines[waits[1] + 1].startswith("load_a")


def test_a_parameter_shares_the_register_of_a_constant() -> None:
    lines = words(
        "x = 100000\n"
        "for i in range(3):\n"
        "    L = load_a(memory=i * x, target=0, outer=1, inner=1, load_stride=100000)"
    )
    assert sum(line.startswith("lih") for line in lines) == 1


def test_a_parameter_does_not_share_the_register_of_what_changes() -> None:
    lines = words(
        "x = 100000\n"
        "for i in range(3):\n"
        "    L = load_a(memory=i * x, target=0, outer=1, inner=1, load_stride=100000)\n"
        "    x = x + i"
    )
    assert sum(line.startswith("lih") for line in lines) == 2


def test_loops_never_end_together() -> None:
    lines = words("for i in range(3):\n    for j in range(2):\n        signal(channel=0)\n")
    assert lines.count("nop") == 1


def test_a_branch_at_the_end_of_a_loop_stays_inside() -> None:
    body = "for i in range(4):\n    if i == 2:\n"
    body += "".join(f"        s{n} = signal(channel={n % 3})\n" for n in range(6))
    assert any("jump" in line for line in words(body))


def test_loops_without_steps_or_content_vanish() -> None:
    assert words("for i in range(0):\n    signal(channel=0)\nfor j in range(5):\n    x = j\n") == ["halt"]
    assert words("for i in range(1):\n    " + STORE.format("i")) == ["store r0, r0, r0, r0", "halt"]


def test_a_divisor_is_guarded_by_its_condition() -> None:
    lines = words(
        "for i in range(4):\n"
        "    S = store(memory=100 // i, source=0, rows=0, bytes=0, when=i != 0)\n"
        "    T = store(memory=(100 // i if i > 0 else 0), source=0, rows=0, bytes=0)"
    )
    divisions = [i for i, line in enumerate(lines) if line.split()[0] == "div"]
    assert len(divisions) == 2
    for i in divisions:
        divisor = lines[i].split()[-1]
        assert any(x.split()[0] == "select" and x.split()[1] == f"{divisor}," for x in lines[:i])


@pytest.mark.parametrize(
    ("body", "settings", "message"),
    [
        (STORE.format("1") + "\nT = touch()", {}, "must be an operation of the machine, not touch"),
        ("S = store(memory=0, source=0, rows=0)", {}, "bytes of store must be an expression, not nothing"),
        ("w = wait(channel=99)", {}, "channels must be at least 100"),
        ("x = 1\nw = wait(channel=x)", {}, "the channel of wait must be a number"),
        ("L = load_a(memory=0, target=0, outer=1, inner=1, load_fill=256)", {}, "load_fill must be 0 to 255"),
        (
            "for i in range(3):\n    for j in range(3):\n        " + STORE.format("i + j"),
            {"loop_depth": 1},
            "loop_depth must be at least 2, not 1",
        ),
        (
            "\n".join("signal(channel=0)" for _ in range(40)),
            {"imem_words": 32},
            "imem_words must be at least 41",
        ),
        ("while True:\n    signal(channel=0)", {}, "while"),
    ],
)
def test_what_a_warp_cannot_do_is_an_error(body: str, settings: dict[str, int], message: str) -> None:
    text = "@program\ndef p():\n" + "".join(f"    {line}\n" for line in body.splitlines())
    with pytest.raises(InputError, match=message):
        generate(parse_program(text), MachineConfig(**settings), "p")


def test_too_few_registers_are_an_error() -> None:
    operands = ", ".join(f"{o}=4096 * i + {n}" for n, o in enumerate(("memory", "source", "rows", "bytes")))
    body = "".join(f"    {'    ' * n}for {v} in range(2):\n" for n, v in enumerate("abcde"))
    body += "    " * 6 + "i = a + 2*b + 4*c + 8*d + 16*e\n" + "    " * 6 + f"S = store({operands})\n"
    with pytest.raises(InputError, match="p: registers must be at least 10, not 8"):
        generate(parse_program("@program\ndef p():\n" + body), machine(8), "p")
