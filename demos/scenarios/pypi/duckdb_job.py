"""A table in DuckDB, whose threads allocate from a jemalloc of its own. With `close` it is given up again."""
import sys

import duckdb

from truth import anonymous_bytes, say

MAKES_TABLE = "CREATE TABLE numbers AS SELECT range AS number, random() AS value, 'row ' || range AS text FROM range(10_000_000)"
IN_USE = "SELECT sum(memory_usage_bytes)::BIGINT FROM duckdb_memory()"


def main():
    connection = duckdb.connect()
    before = anonymous_bytes()
    connection.execute(MAKES_TABLE)  # makes
    say("grew", anonymous_bytes() - before)
    say("in use", connection.execute(IN_USE).fetchone()[0])
    if "close" in sys.argv:
        connection.close()
        say("stays", anonymous_bytes() - before)
    return connection


if __name__ == "__main__":
    held = main()
