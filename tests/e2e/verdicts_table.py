"""Stands for a module whose import takes memory: a table of small objects, more than any other start takes."""

ROWS = 150_000
TABLE = [b"%0127d" % row for row in range(ROWS)]
