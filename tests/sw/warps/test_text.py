"""The text of a warp: the words of code generation with labels, and what exists only in text."""

from __future__ import annotations

import pytest

from heald.testing.problems import compile_problem
from hw.assembly import assemble, listing
from hw.config import load
from hw.errors import InputError
from sw.codegen import generate
from sw.ir.parse import parse_program
from sw.ir.program import Program
from sw.ir.split import warps
from sw.problem import Product
from sw.warps.text import assembly, warp_assembly

TEST = load("test")


def program(*lines: str, parameters: str = "") -> Program:
    body = "\n".join(f"    {line}" for line in ("a: Buffer[600]", "A: Buffer[16, 16, int8, memory]", *lines))
    return parse_program(f"@program\ndef p({parameters}):\n{body}\n", "p.py")


def test_text_of_a_compiled_product_gives_the_words_of_code_generation() -> None:
    seen: list[Program] = []
    compile_problem(
        Product(21, 34, 13), TEST, after=lambda step, p: seen.append(p) if "hoist" in step else None
    )
    assert len(seen) == 4
    for own in seen:
        text, words = assembly(own, TEST, "w"), generate(own, TEST, "w")
        assert assemble(text) == words
        assert text == listing(words)


def test_generic_instructions_and_parameters_exist_in_text_only() -> None:
    made = program(
        "for i in range(n):",
        "    P = produce(write=a[10*i : 10*i + 10], warp=0, when=p)",
        "    if i > 3:",
        "        for j in range(3):",
        "            wait(1, warp=0)",
        "            Q = produce(write=a[j : j + 3], warp=0)",
        "        L = load(memory=A[i, 0:8], target=a[i : i + 8], warp=0)",
        parameters="p: bool, n: int[0, 60]",
    )
    text = warp_assembly(made, 0, TEST, "w")
    lines = [line for line in text.splitlines() if not line.endswith(":")]
    assert lines[:2] == ["arg r1, p", "arg r2, n"]
    assert [line for line in lines if "op" in line.split()] == ["@r1 op P", "op Q", "op L"]
    assert lines[2:4] == ["li r3, 0", "loop r2, L3"]
    assert lines[-1] == "halt"
    assert len([line for line in text.splitlines() if line.endswith(":")]) == len({"L1", "L2", "L3"})


def test_what_regions_need_takes_no_registers() -> None:
    places = ", ".join(f"a[i*i*{n} // 7 : i*i*{n} // 7 + {n}]" for n in range(1, 12))
    made = program("for i in range(9):", f"    P = f(read=[{places}], warp=0)")
    lines = warp_assembly(made, 0, TEST.replace(registers=8), "w").splitlines()
    assert lines == ["li r1, 9", "loop r1, L1", "op P", "L1:", "halt"]


@pytest.mark.parametrize(
    ("lines", "changes", "message"),
    [
        (
            ["for i in range(9):", "    for j in range(9):", "        P = f(warp=0)"],
            {"loop_depth": 1},
            "w: loop_depth must be at least 2, not 1 (P needs them)",
        ),
        (
            [f"P{n} = f(warp=0)" for n in range(40)],
            {"imem_words": 32},
            "w: imem_words must be at least 41, not 32 (P32 needs them)",
        ),
        (["W = wait(16, warp=0)"], {}, "w: W: channels must be at least 17, not 16"),
        (["W = wait(n, warp=0)"], {}, "w: W: the channel of wait must be a number, not n"),
    ],
)
def test_what_the_machine_lacks_is_named_with_the_instruction(
    lines: list[str], changes: dict[str, int], message: str
) -> None:
    with pytest.raises(InputError) as error:
        warp_assembly(program(*lines, parameters="n: int"), 0, TEST.replace(**changes), "w")
    assert message in str(error.value)


def test_too_few_registers_name_the_instruction() -> None:
    operands = ", ".join(f"cgra_{n}=x{n}" for n in range(8))
    made = program(
        f"C = cgra(bitstream=x0, iterations=x1, live0=x2, live1=x3, {operands}, warp=0)",
        parameters=", ".join(f"x{n}: int" for n in range(9)),
    )
    with pytest.raises(InputError, match=r"registers must be at least 9, not 8 \(C needs them\)"):
        assembly(made, TEST.replace(registers=8), "w")


def test_sequential_programs_give_a_text_for_each_warp() -> None:
    made = program(
        *(f"for i{w} in range({w + 2}):\n        F{w} = f(warp={w})" for w in range(3)),
    )
    texts = {w: warp_assembly(made, w, TEST, "w") for w in warps(made)}
    for w, text in texts.items():
        assert text == f"li r1, {w + 2}\nloop r1, L1\nop F{w}\nL1:\nhalt\n"


def test_branches_become_jumps_to_labels() -> None:
    made = program(
        "for i in range(9):",
        "    if i < n:",
        "        signal(0, warp=0)",
        "        wait(0, warp=0)",
        "        signal(1, warp=0)",
        "    else:",
        "        signal(2, warp=0)",
        parameters="n: int[0, 9]",
    )
    argument, code = warp_assembly(made, 0, TEST, "w").split("\n", 1)
    assert argument == "arg r1, n"
    assert code.count("jump L") == 2
    assert listing(assemble(code)) == code
