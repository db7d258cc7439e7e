"""Data-flow graphs of loops: read from Python functions or JSON, interpreted, scheduled, transformed."""
