"""The sources that can be compiled: a model, a problem of one operator, a tile program."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from heald import problems
from heald.problems import Problem
from hw.errors import InputError
from sw.compile.refused import OperatorsError
from sw.frontend.bindings import bindings, bound, check_inputs
from sw.frontend.model import parsed, read_file, with_fixed_point
from sw.frontend.protos import tensors
from sw.frontend.refusal import Refusal
from sw.frontend.sizes import with_sizes
from sw.frontend.weight_only import with_dynamic
from sw.graph.network import Network
from sw.ir.errors import IRError
from sw.ir.load import load_program
from sw.ir.program import Program

#: The files of a source in a compiled directory.
MODEL, PROGRAM = "model.onnx", "program.py"
Arrays = Mapping[str, np.ndarray]
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class OnnxSource:
    """An ONNX model; `allow_host` leaves operators that the machine cannot execute to the host.

    `hosted` are nodes that a machine refused after reading, with the reasons; `dims` are already set in
    `proto`.
    """

    title: str
    proto: Any = field(repr=False)
    allow_host: bool = False
    hosted: Mapping[str, str] = field(default_factory=dict)
    dims: Sizes = field(default_factory=dict, compare=False)

    def network(self, *, fuse: bool = True) -> Network:
        """The graph; raises `InputError` that names the model and the node."""
        from sw.frontend.network import import_model

        with self.named():
            return import_model(
                self.proto, allow_host=self.allow_host, place=self.title, hosted=self.hosted, fuse=fuse
            )

    def without(self, error: OperatorsError) -> OnnxSource:
        """The model with the refused operators on the host; re-raises the error if they already are."""
        new: dict[str, str] = {}
        for operator, reason in error.refused:
            names = [n for n in (operator.name, *operator.nodes) if n not in self.hosted]
            new.update(dict.fromkeys(names[: 1 if operator.name in names else None], reason))
        if not new:
            raise error
        return replace(self, hosted={**self.hosted, **new})

    def refusals(self) -> tuple[Refusal, ...]:
        """Nodes that the machine does not execute."""
        from sw.frontend.network import read, refusals

        with self.named():
            found = refusals(read(self.proto, allow_host=False, place=self.title, hosted={}))
        return tuple(replace(r, reason=self._sized(r.reason)) for r in found)

    def read(self, inputs: Arrays | None, seed: int) -> tuple[OnnxSource, Network, Arrays]:
        """The source, its graph, and the inputs made constant because the graph depends on their values."""
        if inputs:
            self.check(inputs)
        try:
            return self, self.network(), {}
        except InputError:
            if inputs is None:
                raise
            found = bound(self.proto, inputs, seed, lambda proto: replace(self, proto=proto).network())
            if found is None:
                raise  # the first message names the reason
            source = replace(self, proto=found[0])
            return source, source.network(), found[1]

    def check(self, inputs: Arrays, *, whole: bool = False) -> None:
        """Raise `InputError` for inputs that the model does not take, or with `whole` for missing ones."""
        check_inputs(self.proto, inputs, self.title, whole=whole)

    def given(self, inputs: Arrays) -> OnnxSource:
        """The model with inputs made constant where the compiler needs their values and it helps."""
        made = [replace(self, proto=proto) for proto, _ in bindings(self.proto, inputs)]
        return min(made, key=lambda source: sum(r.lost for r in source.refusals()))

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Prefix any `InputError` with the model's name."""
        try:
            yield
        except IRError:
            raise  # it names a file of its own
        except InputError as error:
            text = self._sized(str(error))
            raise InputError(text if text.startswith(self.title) else f"{self.title}: {text}") from None

    def _sized(self, text: str) -> str:
        """A message, with the sizes from --dim if they may be its cause."""
        given = " ".join(f"--dim {name}={size}" for name, size in self.dims.items())
        wrong = given and re.search(r"\bmatch|cannot be an array|the kernel covers", text)
        return f"{text}; the model may need other sizes than {given}" if wrong else text

    def files(self) -> dict[str, bytes]:
        """The model in one file, including external data; raises `InputError` if it is too large."""
        for tensor in tensors(self.proto.graph):
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        try:
            return {MODEL: self.proto.SerializeToString(deterministic=True)}
        except ValueError as error:
            raise InputError(f"{self.title}: its constants do not fit one file: {error}") from None


#: A graph of operators to compile: has `network`, `title`, and the `files` of a compiled directory.
GraphSource = OnnxSource | Problem


def onnx_source(
    source: Any,
    *,
    allow_host: bool = False,
    dims: Sizes | None = None,
    dynamic: bool = False,
    fixed_point: bool = False,
) -> OnnxSource:
    """Read a model from a path, bytes, `onnx.ModelProto` or another source; `dims` sets sizes left open.

    With `dynamic`, products with quantised weights quantise their other operand at run time. With
    `fixed_point`, real numbers without an exact form use fixed point. Raises `InputError` for anything that
    is no model.
    """
    if isinstance(source, OnnxSource):
        # Operators that one machine left to the host say nothing about another.
        title, proto, allow_host = source.title, source.proto, allow_host or source.allow_host
    elif isinstance(source, str | Path):
        title, proto = str(source), read_file(Path(source))
    elif isinstance(source, bytes | bytearray | memoryview):
        title, proto = "model", parsed(bytes(source), "model")
    else:
        title, proto = source.graph.name or "model", source
    proto = with_sizes(proto, dims or {}, title)
    proto = with_dynamic(proto, title) if dynamic else proto
    return OnnxSource(
        title,
        with_fixed_point(proto) if fixed_point else proto,
        allow_host,
        dims=dims or getattr(source, "dims", {}),
    )


def read_source(source: Any, **options: Any) -> GraphSource | Program:
    """Read a source from a path (MODEL.onnx, PROGRAM.py), bytes, an `onnx.ModelProto` or another source.

    `options` are those of a model, as for `onnx_source`. Raises `InputError` for what cannot be read, and for
    anything else.
    """
    if isinstance(source, Problem | Program):
        return source
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix == ".py":
            return load_program(path)
    elif not isinstance(source, OnnxSource | bytes | bytearray | memoryview) and not hasattr(source, "graph"):
        kinds = "a path, bytes, an onnx.ModelProto, a problem or a tile program"
        raise InputError(f"a model must be {kinds}, not {type(source).__name__}")
    return onnx_source(source, **options)


def from_files(files: Mapping[str, bytes], *, allow_host: bool, hosted: Mapping[str, str]) -> GraphSource:
    """The source in the files of a compiled directory; raises `InputError` if there is none."""
    if problems.SHAPE in files:
        return problems.from_files(files)
    if MODEL not in files:
        raise InputError(f"must hold {MODEL} or {problems.SHAPE}")
    return OnnxSource(MODEL, parsed(files[MODEL], MODEL), allow_host, hosted)
