"""The report of an exploration as one self-contained HTML page (docs/explore_report.md)."""

from heald.report.explore.render import page

__all__ = ["page"]
