"""Reads a memory-mapped Arrow table row by row, and drops each row: needs pyarrow."""
import os

import pyarrow

ROWS, ROW_BYTES, BATCH = 16384, 8192, 1024
MIB = 1 << 20


def make_file(path):
    schema = pyarrow.schema([("text", pyarrow.string())])
    with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
        for first in range(0, ROWS, BATCH):
            texts = ["%0*d" % (ROW_BYTES, row) for row in range(first, first + BATCH)]
            writer.write_batch(pyarrow.record_batch([pyarrow.array(texts)], schema=schema))
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def main():
    path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "table.arrow")
    make_file(path)
    pool = pyarrow.default_memory_pool()
    pool.release_unused()
    table = pyarrow.ipc.open_file(pyarrow.memory_map(path)).read_all()  # maps
    letters = 0
    for row in range(len(table)):
        letters += len(table["text"][row].as_py())  # touches
    print("%d rows read, %d MiB of text; Arrow's pool holds %d bytes" % (len(table), letters // MIB, pool.bytes_allocated()))
    return table


if __name__ == "__main__":
    held = main()
