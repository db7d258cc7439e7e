"""The integer graph of a model: operators on tensors, and their semantics (docs/network.md)."""
