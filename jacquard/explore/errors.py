"""How workers are lost."""


class WorkerLostError(Exception):
    """The worker of a point is gone; others, and a new one in its place, go on."""


class ClusterLostError(Exception):
    """Nobody is left to evaluate points."""
