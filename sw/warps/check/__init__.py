"""The independent checker of warps (docs/check.md). It shares no code with what makes them."""

from sw.warps.check.binding import Flow, Limits, Verdict, check_binding, compile_all
from sw.warps.check.checker import check

__all__ = ["Flow", "Limits", "Verdict", "check", "check_binding", "compile_all"]
