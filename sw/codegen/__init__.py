"""Code generation: from the tile program of one warp to instruction words (docs/codegen.md)."""

from sw.codegen.generate import generate

__all__ = ["generate"]
