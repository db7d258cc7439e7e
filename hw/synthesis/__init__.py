"""Synthesis, placement and routing of Verilog with open tools: Yosys and nextpnr."""

from hw.synthesis.place import Hop, Placement, place_and_route
from hw.synthesis.resources import DEVICES, FAMILIES, Device, Resources, find_device
from hw.synthesis.yosys import Synthesis, synthesise

__all__ = [
    "DEVICES",
    "FAMILIES",
    "Device",
    "Hop",
    "Placement",
    "Resources",
    "Synthesis",
    "find_device",
    "place_and_route",
    "synthesise",
]
