"""Means of the columns of a table, by a pool of two workers: pool.py HOW [array|pandas]

HOW: arguments (Pool.map gets the columns), global (it gets their names; the table was loaded before the pool was made),
first (the pool is made before the table is loaded), imap (small chunks, and each worker ends after two of them), memmap
(the columns lie in a file, and every worker maps it).
"""
import array
import mmap
import multiprocessing
import os
import sys

from moments import phase, take_snapshot

WORKERS = 2
COLUMNS = 24
ROWS = 1 << 19                   # doubles: 4 MiB a column
CHUNK = COLUMNS // WORKERS       # columns of a task: one for each worker
SMALL_CHUNK, TASKS_OF_CHILD = 3, 2
COLUMN_BYTES = 8 * ROWS

table = {}
gate = None       # of the workers
columns_done = 0  # by this worker


def load(kind):
    columns = {"column %d" % number: array.array("d", [number]) * ROWS for number in range(COLUMNS)}  # builds
    print("table: %d bytes" % sum(len(column) * column.itemsize for column in columns.values()))
    if kind == "array":
        return columns
    import pandas
    return pandas.DataFrame(columns)  # frames


def write(path):
    with open(path, "wb") as file:
        for number in range(COLUMNS):
            file.write(array.array("d", [number]) * ROWS)
        file.flush()
        os.fsync(file.fileno())
    print("table: %d bytes" % os.path.getsize(path))


def in_chunk_of(size):
    """Counts a column; with the last of a task the worker still holds all that it was sent."""
    global columns_done
    columns_done += 1
    if columns_done % size == 0:
        with phase("task %d of %d" % (columns_done // size, os.getpid())):
            take_snapshot()
        if gate is not None:
            gate.wait()  # both hold theirs


def mean(column):
    result = sum(column) / len(column)  # reads
    in_chunk_of(SMALL_CHUNK if gate is None else CHUNK)
    return result


def mean_of(name):
    result = sum(table[name]) / len(table[name])  # reads global
    in_chunk_of(CHUNK)
    return result


def mean_in_file(number):
    with open(os.path.join(os.environ["DEMO_DIR"], "table"), "rb") as file:
        if not table:
            table["file"] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps
    column = memoryview(table["file"])[number * COLUMN_BYTES:(number + 1) * COLUMN_BYTES].cast("d")
    result = sum(column) / len(column)  # reads file
    in_chunk_of(CHUNK)
    return result


def make_gate():
    global gate
    gate = multiprocessing.Barrier(WORKERS)


def run(how, kind):
    global table
    if how == "first":
        make_gate()
        with multiprocessing.Pool(WORKERS) as pool:  # makes first pool
            table = load(kind)
            yield from pool.map(mean, [table[name] for name in table], chunksize=CHUNK)
        return
    if how == "memmap":
        write(os.path.join(os.environ["DEMO_DIR"], "table"))
    else:
        table = load(kind)
    if how == "imap":
        with multiprocessing.Pool(WORKERS, maxtasksperchild=TASKS_OF_CHILD) as pool:  # makes imap pool
            yield from pool.imap(mean, [table[name] for name in table], chunksize=SMALL_CHUNK)
        return
    make_gate()
    with multiprocessing.Pool(WORKERS) as pool:  # makes pool
        if how == "arguments":
            yield from pool.map(mean, [table[name] for name in table], chunksize=CHUNK)
        elif how == "global":
            yield from pool.map(mean_of, list(table), chunksize=CHUNK)
        else:
            yield from pool.map(mean_in_file, range(COLUMNS), chunksize=CHUNK)


def main():
    os.environ.setdefault("DEMO_DIR", "/var/tmp")
    multiprocessing.set_start_method("fork")
    how, kind = (*sys.argv[1:], "array")[:2]
    with phase("means"):
        means = list(run(how, kind))
    print("%d means" % len(means))


if __name__ == "__main__":
    main()
