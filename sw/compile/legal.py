"""What operators ask of the views that they read: copies where one cannot be loaded as it lies."""

from __future__ import annotations

from hw.config import MachineConfig
from sw.network.network import Network


def legal(network: Network, config: MachineConfig) -> Network:
    """The network with copies where they are needed."""
    return network
