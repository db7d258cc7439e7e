"""Operators of the host: they take and leave whatever there is."""

from __future__ import annotations

from sw.graph.host import HostOperator
from sw.graph.network import View
from sw.operators.registry import takes_padding


@takes_padding.register
def _(operator: HostOperator, view: View, row: int) -> bool:
    return True
