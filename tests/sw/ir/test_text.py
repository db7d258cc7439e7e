"""The text form: reading and printing are inverse, and every error has a place and a message."""

from __future__ import annotations

import random
import re
import time

import pytest

from sw.ir.errors import IRError
from sw.ir.expression import Const, Var
from sw.ir.parse import parse_expr, parse_program
from sw.ir.program import ANY, For, If, Instruction, Program
from sw.ir.types import BOOL, INT, Kind, Type
from sw.ir.walk import instructions
from tests.sw.random_tile_programs import STRAIGHT, random_expr, random_program

HEAD = "@program\ndef f(p: bool, x: int):\n    a: Buffer[60]\n"


def refused(text: str) -> IRError:
    with pytest.raises(IRError) as caught:
        parse_program(text, "f.py")
    error = caught.value
    assert error.where is not None
    assert error.where.file == "f.py"
    assert str(error) == f"{error.where}: found {error.found}, expected {error.expected}"
    assert len(str(error)) < 400
    return error


@pytest.mark.parametrize("seed", range(150))
def test_a_printed_program_reads_back_as_itself(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(rng, STRAIGHT if seed % 5 == 0 else None, instructions=rng.randint(1, 12))
    again = parse_program(str(program))
    assert again == program
    assert str(again) == str(program)


def test_a_printed_expression_reads_back_as_itself() -> None:
    types = {
        "x": "int32",
        "y": "int[-3,64]",
        "i": "loop0[0,16]",
        "j": "loop1[-4,4]",
        "p": "bool",
        "q": "bool",
    }
    variables = list(parse_expr("p and q and x + y + i + j < 0", types).variables())
    assert len(variables) == 6
    for seed in range(3000):
        rng = random.Random(seed)
        expr = random_expr(rng, variables, 5, rng.choice(list(Kind)))
        assert parse_expr(str(expr), types) == expr


def test_the_forms_of_the_page() -> None:
    program = parse_program(
        '''
@program
def phases(p: bool, x: int, n: int[0, 64]):
    """A text that documents."""
    a: Buffer[60]
    c: Buffer[64, n, int32, acc]
    for i in range(3):
        P = produce(write=a[10*i : 10*i + 10], warp=0)
    if p:
        s1 = touch(write=a[:x], warp=1)
    elif x < 3:
        touch(read=[a[5], c[2, 8:]])
    else:
        pass
    touch(write=ANY, when=not p)
    load(a, c[0:4])
''',
        "phases.py",
    )
    assert [b.element for b in program.buffers] == ["int8", "int32"]
    assert [b.space for b in program.buffers] == [None, "acc"]
    assert program.parameters[2].type == Type(Kind.INT, 0, 64)
    assert [i.label for i in instructions(program)] == ["P", "s1", "touch0", "touch1", "load0"]
    loop, branch, unknown, load = program.body
    assert isinstance(loop, For)
    assert (loop.start, loop.step) == (Const(0), Const(1))
    assert isinstance(branch, If)
    assert isinstance(branch.orelse[0], If)
    assert isinstance(unknown, Instruction)
    assert unknown.writes == (ANY,)
    assert isinstance(load, Instruction)
    assert [name for name, _ in load.operands] == ["memory", "target"]
    text = str(program)
    assert "touch0 = touch(read=[a[5:6], c[2:3, 8:n]])" in text
    assert "load0 = load(memory=a[0:60], target=c[0:4, 0:n])" in text


def test_variables_know_their_range_and_loop() -> None:
    program = parse_program(HEAD + "    for i in range(2, 9, 3):\n        s = i * 4\n        t(read=a[s])\n")
    (instruction,) = instructions(program)
    region = instruction.reads[0]
    assert region is not ANY
    assert region.box[0].start == Var("s", Type(Kind.INT, 8, 33, 0))  # type: ignore[union-attr]


def test_fresh_labels_keep_off_names_in_use() -> None:
    program = parse_program(
        HEAD + "    t0 = t(read=a)\n    t(read=a)\n    t(read=a)\n    for t3 in range(2): t(read=a)\n"
    )
    assert [i.label for i in instructions(program)] == ["t0", "t1", "t2", "t4"]


def test_thousands_of_instructions_without_labels_take_no_time() -> None:
    start = time.process_time()
    parse_program(HEAD + "    t(read=a[0:1])\n" * 4000)
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("body", "place", "found", "expected"),
    [
        ("    s = y", (4, 9), "unknown name 'y'", "a parameter, loop variable or scalar"),
        ("    s = a", (4, 9), "the buffer 'a'", "a parameter"),
        ("    s = p + 1", (4, 9), "p of kind bool", "int"),
        ("    s = x and p", (4, 9), "x of kind int", "bool"),
        ("    s = not x", (4, 13), "x of kind int", "bool"),
        ("    s = x < p", (4, 13), "p of kind bool", "int"),
        ("    s = 1.5", (4, 9), "1.5", "an expression of integers"),
        ("    s = 1 is 1", (4, 9), "1 is 1", "< <= > >= == !="),
        ("    s = 2147483648", (4, 9), "2147483648", "a number of 32 bits"),
        ("    s = 0x1" + "0" * 6000, (4, 9), "a number of 24001 bits", "a number of 32 bits"),
        ("    s = " + "9" * 6000, (4, 1), "a syntax error", "Python syntax"),
        ("    s = (y := 3)", (4, 10), "(y := 3)", "an expression of integers"),
        ("    s = lambda: 3", (4, 9), "lambda: 3", "an expression of integers"),
        ("    s = f'{x}'", (4, 9), "f'{x}'", "an expression of integers"),
        ("    s = " + "+".join("x" * 300), (4, 9), "nesting deeper than 100 levels", "less nesting"),
        ("    s = min(" + ",".join("x" * 300) + ")", (4, 9), "nesting deeper", "less nesting"),
        ("    s = " + "-" * 100000 + "x", (1, 1), "a text nested too deep", "less nesting"),
        ("    if p: pass\n" + "    elif p: pass\n" * 300, (103, 5), "nesting deeper", "less nesting"),
        ("    x = 3", (4, 5), "an assignment to a parameter, 'x'", "a scalar of its own"),
        ("    for i in range(3): i = 3", (4, 24), "an assignment to the variable of a loop", "a scalar"),
        ("    s = 3\n    s = p", (5, 9), "'s' of kind bool", "int"),
        ("    min = 3", (4, 5), "the name 'min', which is a word of the language", "another name"),
        ("    entry = t(read=a)", (4, 5), "the label 'entry'", "another"),
        ("    P = t(read=a)\n    P = t(read=a)", (5, 5), "the name 'P' a second time", "a name that is not"),
        ("    s += 1", (4, 5), "s += 1", "label = name(...)"),
        ("    s = t = 1", (4, 5), "s = t = 1", "label = name(...)"),
        ("    def g(): pass", (4, 5), "def g():", "label = name(...)"),
        ("    return x", (4, 5), "return x", "label = name(...)"),
        ("    for i in [1]: pass", (4, 5), "for i in [1]:", "label = name(...)"),
        ("    for i in range(3, step=2): pass", (4, 14), "range(3, step=2)", "range(stop)"),
        ("    for x in range(3): pass", (4, 9), "the name 'x' a second time", "a name that is not in use"),
        ("    for i in range(3): pass\n    else: pass", (5, 11), "else after a loop", "no else"),
        ("    while x: pass", (4, 11), "x of kind int", "bool"),
        (
            "    b: Buffer[3]\n    s = 3\n    d: Buffer[3]",
            (6, 5),
            "a buffer after the first statement",
            "buf",
        ),
        ("    b: Buffer[int8]", (4, 8), "no size", "name: Buffer[size"),
        ("    b: Buffer[3, A, B]", (4, 18), "unknown name 'A'", "a parameter"),
        ("    t(read=b)", (4, 12), "b", "a region of a buffer"),
        ("    t(read=a[1, 2])", (4, 12), "2 indices of 'a'", "at most 1"),
        ("    t(read=a[0:10:2])", (4, 19), "a step in a slice", "start:stop"),
        ("    t(a)", (4, 7), "an argument without a name", "read=, write=, name="),
        ("    t(**a)", (4, 7), "**", "arguments by name"),
        ("    t(warp=-1)", (4, 12), "-1", "the number of a warp"),
        ("    t(when=x)", (4, 12), "x of kind int", "bool"),
        ("    load(a, memory=a)", (4, 13), "memory= a second time", "every argument once"),
        ("    load(a, depth=a)", (4, 13), "depth= of load", "one of read, warp, when, write, memory, target"),
        ("    wait(a)", (4, 10), "a region as channel of wait", "an expression"),
        ("    é = t(read=a[0:ü])", (4, 20), "unknown name 'ü'", "a parameter"),
        ("    s = 'x", (4, 9), "a syntax error", "Python syntax"),
        ("    s = 1\n  t = 2", (5, 8), "a syntax error", "Python syntax"),
    ],
)
def test_what_is_wrong_in_a_body(body: str, place: tuple[int, int], found: str, expected: str) -> None:
    error = refused(HEAD + body + "\n")
    assert error.where is not None
    assert error.found.startswith(found)
    assert error.expected.startswith(expected)
    assert (error.where.line, error.where.column) == place


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "nothing"),
        ("\0", ""),
        ("'\ud800'", "unreadable text"),
        ("x = 3", "another statement beside it"),
        ("def f(): pass", "no decorator"),
        ("@program()\ndef f(): pass", "@program()"),
        ("@program\nasync def f(): pass", "another statement beside it"),
        ("@program\ndef f(): pass\nx = 3", "another statement beside it"),
        ("@program\ndef f(*a): pass", "a special kind of parameter"),
        ("@program\ndef f(a=3): pass", "a special kind of parameter"),
        ("@program\ndef f(x): pass", "parameter 'x' without a type"),
        ("@program\ndef f(x: str): pass", "type str"),
        ("@program\ndef f(x: int[3, 3]): pass", "range [3, 3]"),
        ("@program\ndef f(x: int[True, 3]): pass", "type int[True, 3]"),
        ("@program\ndef f(x: int[0, 0x1" + "0" * 6000 + "]): pass", "range [0, a number of 24001 bits]"),
        ("@program\ndef f(x: int) -> int: pass", "a type of the program itself"),
        ("@program\ndef f():\n\tpass\n        pass", "a syntax error"),
        ("@program\ndef f(): s = '\\d'", "'\\\\d'"),
    ],
)
def test_what_is_wrong_around_it(text: str, found: str) -> None:
    assert refused(text).found.startswith(found)


def test_a_range_up_to_the_largest_number() -> None:
    text = "@program\ndef f(x: int[0, 2147483648]):\n    pass\n"
    program = parse_program(text)
    assert program.parameters[0].type.high == 1 << 31
    assert str(program) == text


@pytest.mark.parametrize("text", ["int[3]", "float", "loop", "loop0", "int[4,4]", "loop9999999[0,1]", ""])
def test_types_that_are_none(text: str) -> None:
    with pytest.raises(IRError, match="expected"):
        parse_expr("x", {"x": text})


def test_types_by_name() -> None:
    for text, kind in (("int", INT), ("int32", INT), ("bool", BOOL)):
        assert parse_expr("x", {"x": text}) == Var("x", kind)
    assert parse_expr("i", {"i": "loop2[0, 16]"}) == Var("i", Type(Kind.INT, 0, 16, 2))


def test_equality_ignores_places_but_errors_name_them() -> None:
    first, second = (parse_program(HEAD + gap + "    t(read=a)\n") for gap in ("", "\n\n"))
    assert first == second
    assert isinstance(first, Program)
    assert [str(i.where) for p in (first, second) for i in instructions(p)] == ["<text>:4:5", "<text>:6:5"]
    assert re.match(r"<text>:4:12", str(instructions(first)[0].reads[0].where))  # type: ignore[union-attr]
