"""Canonical form of expressions (docs/canonical.md): `canonicalize`."""

from sw.canonical.simplify import canonicalize

__all__ = ["canonicalize"]
