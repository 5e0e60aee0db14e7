"""What data jobs do in libraries with an allocator of their own.
    library_work.py arrow|parquet|polars|duckdb|blocks ROUNDS
"""
import sys

ROWS = 400_000


def arrow_table():
    import pyarrow
    return pyarrow.table({"key": [i % 1000 for i in range(ROWS)], "text": [f"row {i}" for i in range(ROWS)],
                          "value": [i * 0.5 for i in range(ROWS)]})


def arrow(rounds):
    import pyarrow.compute
    table = arrow_table()
    for i in range(rounds):
        kept = table.filter(pyarrow.compute.greater(table["value"], i)).group_by("key").aggregate([("value", "sum")])
        kept = pyarrow.compute.utf8_upper(table["text"])
    return len(kept)


def parquet(rounds):
    import pyarrow.parquet
    file = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(arrow_table(), file)
    written = file.getvalue()
    for _ in range(rounds):
        frame = pyarrow.parquet.read_table(pyarrow.BufferReader(written))
    return len(frame)


def polars(rounds):
    import polars
    frame = polars.DataFrame({"key": [i % 1000 for i in range(ROWS)], "value": [i * 0.5 for i in range(ROWS)]})
    for i in range(rounds):
        sums = (frame.lazy().with_columns(text=polars.col("value").cast(polars.String)).filter(polars.col("key") != i)
                .group_by("key").agg(polars.col("value").sum(), polars.col("text").last()).sort("key").collect())
    return len(sums)


def duckdb(rounds):
    import duckdb
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE rows AS SELECT range AS number, range % 1000 AS key, 'row ' || range AS text FROM range({ROWS})")
    for i in range(rounds):
        sums = connection.execute(f"SELECT key, sum(number), max(text) FROM rows WHERE key <> {i} GROUP BY key ORDER BY key").fetchall()
    return len(sums)


def blocks(rounds):
    import pyarrow
    buffers = [None] * 1024
    for i in range(rounds):
        buffers[i & 1023] = pyarrow.allocate_buffer(64 if i % 16 else 8192)
    return len(buffers)


assert globals()[sys.argv[1]](int(sys.argv[2])) > 0
