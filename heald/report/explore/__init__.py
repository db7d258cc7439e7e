"""The report of an exploration as one HTML page that needs nothing else (docs/explore_report.md)."""

from heald.report.explore.render import page

__all__ = ["page"]
