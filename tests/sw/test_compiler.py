"""The stages of the model compiler: labels, operators of instructions, programs that are split."""

from __future__ import annotations

import numpy as np
import pytest

from hw import isa
from hw.assembly import decode
from hw.config import load
from hw.errors import InputError
from sw.compile.stages import Compiled
from sw.compiler import PIPELINE, PROGRAM_STAGES, compile_network, compile_tile_program
from sw.graph import reference
from sw.graph.expression import Apply, Argument, Number
from sw.graph.network import Elementwise, MatrixProduct, Network, Tensor, View, whole
from sw.ir.parse import parse_program
from sw.ir.walk import instructions
from tests.sw.compile.sequential import results, steps_of

TEST = load("test", {"cgra": "torus4x4"})


def chain(length: int) -> Network:
    """Elementwise operators one after the other; two of them write halves of one tensor."""
    shape = (6, 33)
    made = {f"x{i}": Tensor(f"x{i}", shape, "int8") for i in range(length + 1)}
    joined, result = Tensor("joined", (12, 33), "int8"), Tensor("result", (12, 33), "int8")
    made |= {t.name: t for t in (joined, result)}
    halves = [View("joined", shape, (33, 1), start) for start in (0, 6 * 33)]

    def copy(name: str, y: View, x: View, least: int) -> Elementwise:
        return Elementwise(name, "Max", (name,), y, Apply("max", (Argument(0), Number(least))), (x,))

    operators = [copy("first half", halves[0], whole(made["x0"]), -50)]
    for i in range(length):
        operators.append(copy(f"step {i}", whole(made[f"x{i + 1}"]), whole(made[f"x{i}"]), i - 99))
    operators.append(copy("second half", halves[1], whole(made[f"x{length}"]), -60))
    operators.append(copy("both", whole(result), whole(joined), -40))
    return Network("chain", made, tuple(operators), ("x0",), ("result",))


def programs(network: Network, imem_words: int) -> list[Compiled]:
    stages = compile_network(network, TEST.replace(imem_words=imem_words))
    assert all(isinstance(stage, Compiled) for stage in stages)
    return [stage for stage in stages if isinstance(stage, Compiled)]


def test_every_operation_of_an_engine_belongs_to_an_operator() -> None:
    (made,) = programs(chain(2), 4096)
    own = [s.label for s in instructions(made.source)]
    assert len(own) == len(set(own))
    assert set(own) == set(made.labels)
    assert set(made.labels.values()) == set(range(len(made.operators)))
    for warp, words in made.programs.items():
        for pc, word in enumerate(words):
            code = decode(word)
            assert code is not None
            if isa.INSTRUCTIONS[code.name].format is isa.Format.ENGINE:
                assert (warp, pc) in made.operator_of
    assert set(made.operator_of.values()) == set(made.labels.values())


def test_a_program_written_by_hand_takes_the_stages_of_a_network() -> None:
    seen: list[str] = []
    (made,) = compile_network(chain(1), TEST, after=lambda stage, _: seen.append(stage.partition(",")[0]))
    assert isinstance(made, Compiled)
    # The last stage makes words, which nobody prints.
    assert list(dict.fromkeys(seen)) == [
        stage.name for stage in PIPELINE if stage.name not in ("tile", "generate")
    ]
    seen.clear()
    source = parse_program(str(made.source))
    by_hand = compile_tile_program(source, TEST, after=lambda stage, _: seen.append(stage.partition(",")[0]))
    assert list(dict.fromkeys(seen)) == [stage.name for stage in PROGRAM_STAGES if stage.name != "generate"]
    assert by_hand.programs == made.programs


def test_programs_that_are_too_long_are_cut_and_still_right() -> None:
    network = chain(6)
    (whole_program,) = programs(network, 4096)
    longest = max(len(words) for words in whole_program.programs.values())
    made = programs(network, max(64, longest // 3))
    assert len(made) > 1
    assert [o.name for c in made for o in c.operators] == [o.name for o in network.operators]
    inputs = reference.random_inputs(network, np.random.default_rng(0))
    found = results(network, steps_of(made), inputs)
    assert np.array_equal(found["result"], reference.run(network, inputs)["result"])


def test_what_is_much_too_long_is_cut_by_how_much_before_it_is_compiled() -> None:
    seen: list[str] = []
    network, machine = chain(9), TEST.replace(imem_words=128)
    made = compile_network(network, machine, after=lambda stage, _: seen.append(stage.partition(",")[0]))
    every = [o.name for part in made for o in (part.operators if isinstance(part, Compiled) else ())]
    assert every == [o.name for o in network.operators]
    # The whole is emitted, and no part of it that does not fit is compiled.
    assert seen.count("emit") == len(made) + 1 > 3
    assert seen.count("warps") == len(made)


def test_an_operator_whose_program_is_too_long_is_named() -> None:
    a, b, y = (
        Tensor("a", (150, 170), "int8"),
        Tensor("b", (170, 190), "int8"),
        Tensor("y", (150, 190), "int32"),
    )
    product = MatrixProduct("large", "MatMulInteger", (), whole(y), whole(a), whole(b))
    network = Network("one", {t.name: t for t in (a, b, y)}, (product,), ("a", "b"), ("y",))
    with pytest.raises(InputError, match=r"^large: warp .*: imem_words must be at least \d+, not 32"):
        programs(network, 32)
