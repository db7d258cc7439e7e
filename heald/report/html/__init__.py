"""The report of a run as one HTML page that needs nothing else (docs/report.md)."""
