"""The graph of a model in integers: operators on tensors, and their meaning (docs/network.md)."""
