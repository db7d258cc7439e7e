"""What a model computes, in whole numbers: operators on tensors, and what each of them means (docs/network.md)."""
