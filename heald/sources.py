"""What can be compiled: a model, a problem of one operator, a tile program."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from heald import problems
from heald.problems import Problem
from hw.errors import InputError
from sw.frontend.model import first_line, read_file
from sw.graph.network import Network
from sw.ir.load import load_program
from sw.ir.program import Program

#: The files of a source in a compiled directory.
MODEL, PROGRAM = "model.onnx", "program.py"
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class OnnxSource:
    """An ONNX model; `allow_host` leaves operators that the machine cannot execute to the host."""

    title: str
    proto: Any = field(repr=False)
    allow_host: bool = False

    @classmethod
    def parse(cls, title: str, data: bytes, allow_host: bool = False) -> OnnxSource:
        """A model from the bytes of a file; raises `InputError` for what is none."""
        import onnx

        try:
            return cls(title, onnx.load_model_from_string(data), allow_host)
        except Exception as error:
            # The parser of protocol buffers has errors of its own.
            raise InputError(f"{title}: not a valid ONNX model: {first_line(error)}") from None

    def network(self) -> Network:
        """The graph; raises `InputError` with the name of the model and the node."""
        from sw.frontend.network import import_model

        with self.named():
            return import_model(self.proto, allow_host=self.allow_host, place=self.title)

    def read(self, inputs: Arrays | None, seed: int) -> tuple[OnnxSource, Network, Arrays]:
        """The graph, and where it needs values of inputs, its source with these constants, and the values."""
        from sw.frontend.bindings import bound

        try:
            return self, self.network(), {}
        except InputError:
            found = None
            with contextlib.suppress(InputError):  # the first message names the reason
                found = None if inputs is None else bound(self.proto, inputs, seed)
            if found is None:
                raise
            source = replace(self, proto=found[0])
            return source, source.network(), found[1]

    @contextlib.contextmanager
    def named(self) -> Iterator[None]:
        """Puts the name of the model in front of an `InputError`."""
        try:
            yield
        except InputError as error:
            text = str(error)
            raise InputError(text if text.startswith(self.title) else f"{self.title}: {text}") from None

    def files(self) -> dict[str, bytes]:
        """The model in one file, external data inside; raises `InputError` for too much."""
        for tensor in self.proto.graph.initializer:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
        try:
            return {MODEL: self.proto.SerializeToString(deterministic=True)}
        except ValueError as error:
            raise InputError(f"{self.title}: its constants do not fit one file: {error}") from None


#: A graph of operators to compile: its `network`, `title`, and the `files` that a compiled directory keeps.
GraphSource = OnnxSource | Problem


def read_source(source: Any, *, allow_host: bool = False) -> GraphSource | Program:
    """A source by its path (MODEL.onnx, PROGRAM.py), its bytes, an `onnx.ModelProto`, or as it is.

    Raises `InputError` for what cannot be read, and for things of another kind.
    """
    if isinstance(source, Problem | OnnxSource | Program):
        return source
    if isinstance(source, str | Path):
        path = Path(source)
        if path.suffix == ".py":
            return load_program(path)
        return OnnxSource(str(path), read_file(path), allow_host)
    if isinstance(source, bytes | bytearray | memoryview):
        return OnnxSource.parse("model", bytes(source), allow_host)
    if hasattr(source, "SerializeToString") and hasattr(source, "graph"):
        return OnnxSource(source.graph.name or "model", source, allow_host)
    kinds = "a path, bytes, an onnx.ModelProto, a problem or a tile program"
    raise InputError(f"a model must be {kinds}, not {type(source).__name__}")


def from_files(files: Mapping[str, bytes], *, allow_host: bool) -> GraphSource:
    """The source whose files a compiled directory holds; raises `InputError` where there is none."""
    if problems.SHAPE in files:
        return problems.from_files(files)
    if MODEL not in files:
        raise InputError(f"must hold {MODEL} or {problems.SHAPE}")
    return OnnxSource.parse(MODEL, files[MODEL], allow_host)
