"""The checker's tracer, for what has not yet left it."""

from sw.check.trace import Boxes, Rows, TooLongError, Trace, trace

__all__ = ["Boxes", "Rows", "TooLongError", "Trace", "trace"]
