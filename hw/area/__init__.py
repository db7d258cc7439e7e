"""What a machine takes of an FPGA, estimated from its configuration alone (docs/area.md)."""

from hw.area.model import Estimate, estimate

__all__ = ["Estimate", "estimate"]
