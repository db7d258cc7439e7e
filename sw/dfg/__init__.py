"""Data-flow graphs of loops: made from Python functions or JSON, interpreted, scheduled, transformed."""
