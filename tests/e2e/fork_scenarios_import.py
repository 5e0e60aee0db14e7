"""Stands for a module whose import takes memory: a table of small objects."""

ROWS = 60_000
TABLE = [b"%0127d" % row for row in range(ROWS)]  # builds import
