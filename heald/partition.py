"""What a machine does not execute after all is left to the host: one road for all that compiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from heald.sources import GraphSource, OnnxSource
from sw.compile.refused import OperatorsError
from sw.graph.network import Network

T = TypeVar("T")


def compiled(source: GraphSource, network: Network, make: Callable[[Network], T]) -> tuple[GraphSource, T]:
    """What `make` compiles of a network, and the source whose network that is.

    Operators that it refuses go to the host with the reason, if that is allowed, and it begins again. Raises
    `InputError` for what is refused otherwise.
    """
    while True:
        try:
            return source, make(network)
        except OperatorsError as error:
            if not isinstance(source, OnnxSource):
                raise
            source = source.without(error)
            network = source.network()
