"""Validates the files of a program, whoever wrote them: the form of their JSON, and their consistency."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cosim.session.machine_program import MachineProgram
from hw.config import PORTS
from hw.errors import InputError
from sw.compile.memory import Allocation, Kind
from sw.graph.host import HostOperator
from sw.graph.network import Network, View
from sw.layout import MEMORY_BYTES

#: Addresses have 32 bits, and windows may use all of them; other numbers of a program are at most `MOST`.
ADDRESSES, MOST = 1 << 32, 1 << 62

# A form is a type; [form] for a list; (form, ...) for a list of fixed length; {name: form} for an object with
# these names; or {str: form} for an object with any names.
_KERNEL = {
    "name": str,
    "ii": int,
    "res_mii": int,
    "rec_mii": int,
    "why": str,
    "depth": int,
    "proved_minimal": bool,
    "addresses": [int],
    "arrays": {str: (int, int, int, int)},
    "scalars": [str],
    "places": [(int, int)],
}
_OPERATOR = {
    "name": str,
    "op": str,
    "nodes": [str],
    "output": (str, [int], [int], int),
    "macs": int,
    "array": int,
    "moved": {str: int},
    "grid": int,
    "launches": int,
    "kernels": [int],
    "loops": [(str, int)],
    "tile": {str: int},
}
PLAN = {
    "operators": [_OPERATOR],
    "kernels": [_KERNEL],
    "warps": [int],
    "operator_of": [(int, int, int)],
}
_TENSOR = {"name": str, "kind": str, "element": str, "shape": [int]} | dict.fromkeys(
    ("address", "row", "pitch", "size", "first", "last"), int
)
MEMORY = {"windows": [(int, int, bool, bool)], "constants": [(int, int)], "tensors": [_TENSOR]}


def check_form(value: Any, form: Any, place: str) -> None:
    """Raise `InputError` with the place in a value where it does not have this form."""
    if isinstance(form, type):
        if type(value) is not form:
            raise InputError(f"{place} must be {_WORDS[form]}, not {value!r}")
        if isinstance(value, int) and not -MOST <= value <= MOST:
            raise InputError(f"{place} must be a number of the machine, not {value}")
    elif isinstance(form, dict):
        if not isinstance(value, dict):
            raise InputError(f"{place} must be an object, not {value!r}")
        for name, inner in form.items():
            if name is str:
                for key, held in value.items():
                    check_form(held, inner, f"{place}.{key}")
            elif name not in value:
                raise InputError(f"{place} must have {name}")
            else:
                check_form(value[name], inner, f"{place}.{name}")
    else:
        if not isinstance(value, list) or (isinstance(form, tuple) and len(value) != len(form)):
            count = f" of {len(form)}" if isinstance(form, tuple) else ""
            raise InputError(f"{place} must be a list{count}, not {value!r}")
        forms = form if isinstance(form, tuple) else form * len(value)
        for number, (held, inner) in enumerate(zip(value, forms, strict=True)):
            check_form(held, inner, f"{place}[{number}]")


_WORDS = {int: "a whole number", str: "a text", bool: "true or false"}


def check_program(program: MachineProgram) -> None:
    """Raise `InputError` unless the parts of a program are consistent with each other and its machine."""
    config = program.config
    for first, last, _, _ in program.windows:
        _need(0 <= first <= last < ADDRESSES, "a window must lie in the memory", (first, last))
    for address, data in program.constants:
        _need(0 <= address <= MEMORY_BYTES - len(data), "a constant must lie in the memory", address)
    for name, home in program.homes.items():
        _check_home(name, home)
    for warp, words in program.programs.items():
        _need(0 <= warp < config.warps, "a warp must be one of the machine", warp)
        _need(len(words) <= config.imem_words, "the words of a warp must fit its memory", len(words))
    for (warp, pc), number in program.operator_of.items():
        found = 0 <= pc < len(program.programs.get(warp, ())) and 0 <= number < len(program.operators)
        _need(found, "operator_of must name instructions and operators", [warp, pc, number])
    for operator in program.operators:
        what = f"operator {operator.name!r}"
        tensor = program.homes.get(operator.output.tensor)
        if tensor is None:
            raise InputError(f"{what}: its output must lie in memory: {operator.output.tensor!r}")
        inside = _inside(operator.output, math.prod(tensor.shape))
        _need(inside, f"{what}: its output must lie in", tensor.name)
        _need(
            all(0 <= k < len(program.kernels) for k in operator.kernels), f"{what}: kernels", operator.kernels
        )
        _need(set(operator.moved) <= set(PORTS), f"{what}: moved must name ports", list(operator.moved))
        numbers = (operator.macs, operator.array, operator.grid, operator.launches, *operator.moved.values())
        _need(min(numbers) >= 0, f"{what}: no number may be negative", min(numbers))


def check_steps(steps: Sequence[HostOperator | MachineProgram], network: Network) -> None:
    """Raise `InputError` unless the steps, in order, produce the model's outputs."""
    known = {*network.inputs, *(n for n, t in network.tensors.items() if t.constant is not None)}
    for step in steps:
        if isinstance(step, HostOperator):
            needed, made = {view.tensor for view in step.inputs}, {step.output.tensor}
        else:
            needed = {name for name, home in step.homes.items() if home.kind is Kind.INPUT}
            made = set(step.kept())
            for name in (needed | made) & network.tensors.keys():
                tensor, home = network.tensors[name], step.homes[name]
                same = (tensor.shape, tensor.element) == (home.shape, home.tensor.element)
                _need(same, f"tensor {name!r} must be that of the model", [home.tensor.element, *home.shape])
        _need(needed <= known, "a step must read what is there, not", sorted(needed - known))
        known |= made
    _need(known >= set(network.outputs), "the steps must make", sorted({*network.outputs} - known))


def _check_home(name: str, home: Allocation) -> None:
    what = f"tensor {name!r}"
    dtype = np.dtype(home.tensor.element)
    plain = dtype.kind in "biuf" and dtype.name == home.tensor.element
    _need(plain, f"{what}: unknown element type", home.tensor.element)
    _need(bool(home.tensor.elements) and min(home.shape, default=1) > 0, f"{what}: shape", list(home.shape))
    _need(home.row > 0 and home.tensor.elements % home.row == 0, f"{what}: elements of a row", home.row)
    _need(home.pitch >= home.row * home.itemsize, f"{what}: pitch", home.pitch)
    _need(
        0 <= home.address <= MEMORY_BYTES - home.size, f"{what}: must lie in the memory, not at", home.address
    )


def _inside(view: View, elements: int) -> bool:
    if len(view.shape) != len(view.strides) or min(view.shape, default=1) < 1 or view.elements > elements:
        return False
    low, high = view.reach
    return low >= 0 and high < elements


def _need(holds: bool, what: str, found: object) -> None:
    if not holds:
        raise InputError(f"{what}: {found!r}")
