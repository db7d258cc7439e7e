"""Leaves to the host what the machine refuses; every caller of the compiler uses this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from heald.sources import GraphSource, OnnxSource
from hw.config import MachineConfig, load, parse_setting
from hw.errors import InputError
from sw.compile.refused import OperatorsError
from sw.compiler import executes
from sw.graph.network import Network

T = TypeVar("T")
#: Options for larger machines, smallest change first.
_LARGER = ("--set cgra=torus4x4", "--hw default", "--hw large")


def compiled(
    source: GraphSource, network: Network, make: Callable[[Network], T], config: MachineConfig | None = None
) -> tuple[GraphSource, T]:
    """Compile a network with `make`; returns the result, and the source of the network compiled.

    If refused operators may go to the host, they do, with the reason, and compilation starts again. Otherwise
    raises `InputError` with what to do: use the host, or another machine than `config`.
    """
    while True:
        try:
            return source, make(network)
        except OperatorsError as error:
            if not isinstance(source, OnnxSource) or not source.allow_host:
                reasons = {o.name: why for o, why in error.refused}
                to_do = remedy(network, reasons, config, host=isinstance(source, OnnxSource))
                raise InputError("; ".join(filter(None, (str(error), to_do)))) from None
            source = source.without(error)
            network = source.network()


def remedy(
    network: Network, reasons: Mapping[str, str], config: MachineConfig | None, *, host: bool = True
) -> str:
    """What to do about operators that `config` refuses: another preset or fabric, or the host."""
    found = []
    for options in _LARGER:
        if config is None:
            break
        option, value = options.split()
        other = load(value) if option == "--hw" else load(config, dict([parse_setting(value)]))
        # A CGRA that failed to map a loop fails on other machines too, and trying takes long.
        tried = any(f"the CGRA '{other.cgra and other.cgra.name}'" in why for why in reasons.values())
        if other != config and not tried and executes(network, reasons, other):
            found.append(f"{options} would do")
            break
    if host:
        found.append(f"--allow-host leaves {'it' if len(reasons) == 1 else 'them'} to the host")
    return ", or ".join(found)
