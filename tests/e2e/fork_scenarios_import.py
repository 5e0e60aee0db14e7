"""Stands for a module whose import takes memory: a table of small objects."""

ROWS = 90_000  # of 160 bytes: per-process-import needs 8 MiB, and 5 % of what the process grew by
TABLE = [b"%0127d" % row for row in range(ROWS)]  # builds import
