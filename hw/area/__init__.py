"""Area estimates: the FPGA resources of a machine from its configuration alone (docs/area.md)."""

from hw.area.model import Estimate, estimate

__all__ = ["Estimate", "estimate"]
