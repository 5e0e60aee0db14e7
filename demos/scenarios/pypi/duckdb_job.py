"""A table in DuckDB, whose threads allocate from a jemalloc of its own."""
import duckdb

from truth import anonymous_bytes, say

MAKES_TABLE = "CREATE TABLE numbers AS SELECT range AS number, random() AS value, 'row ' || range AS text FROM range(10_000_000)"


def main():
    connection = duckdb.connect()
    before = anonymous_bytes()
    connection.execute(MAKES_TABLE)
    say("grew", anonymous_bytes() - before)
    return connection


if __name__ == "__main__":
    held = main()
