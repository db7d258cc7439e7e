"""The CGRA as data: its fabric, configurations, bitstreams and their decoder."""

from hw.fabric.fabric import Fabric, Link, PEKind
from hw.fabric.layout import Layout, layout
from hw.fabric.operations import BY_NUMBER, OPERATIONS, PEOperation, Unit
from hw.fabric.toml import from_values, load, preset_names, to_toml

__all__ = [
    "BY_NUMBER",
    "OPERATIONS",
    "Fabric",
    "Layout",
    "Link",
    "PEKind",
    "PEOperation",
    "Unit",
    "from_values",
    "layout",
    "load",
    "preset_names",
    "to_toml",
]
