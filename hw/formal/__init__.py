"""Proofs about parts of the machine: properties at their ports, proved by a solver (docs/formal.md)."""
