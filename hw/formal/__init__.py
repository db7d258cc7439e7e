"""Formal proofs of the machine's parts: properties at their ports, proved by a solver (docs/formal.md)."""
