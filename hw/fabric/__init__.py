"""The grid of processing elements: its description, configuration, bitstreams and their decoder."""

from hw.fabric.fabric import Fabric, Kind, Link
from hw.fabric.layout import Layout, layout
from hw.fabric.operations import BY_NUMBER, OPERATIONS, Operation, Unit

__all__ = ["BY_NUMBER", "OPERATIONS", "Fabric", "Kind", "Layout", "Link", "Operation", "Unit", "layout"]
