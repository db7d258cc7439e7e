"""What a model computes, in whole numbers: operators on tensors, and their meaning (docs/network.md)."""
