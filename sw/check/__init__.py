"""The independent checker of warps (docs/check.md). It shares no code with the generator of warps."""

from sw.check.binding import Flow, Limits, Verdict, check_binding, compile_all
from sw.check.checker import check

__all__ = ["Flow", "Limits", "Verdict", "check", "check_binding", "compile_all"]
