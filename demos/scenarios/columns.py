"""A table of text rows in a column file (offsets, then bytes, as Arrow lays it out), read row by row in several passes.

columns.py mapped [MIB]      the file is mapped: rows are decoded from the mapping and dropped
columns.py memmap [MIB]      the same through numpy.memmap
columns.py in_memory [MIB]   the whole file is read into memory first (keep_in_memory=True)
columns.py synthetic         no file: the same row over and over
"""
import mmap
import os
import struct
import sys

MIB = 1 << 20
ROW_BYTES = 8192
PASSES = 3


def make_file(path, mib):
    """Row count, offsets, rows. In pieces: what builds the file leaves nothing behind."""
    rows = mib * MIB // ROW_BYTES
    with open(path, "wb") as file:
        file.write(struct.pack("<q", rows))
        for row in range(rows + 1):
            file.write(struct.pack("<q", row * ROW_BYTES))
        for row in range(rows):
            file.write(b"%0*d" % (ROW_BYTES, row))
        file.flush()
        os.fsync(file.fileno())


class Column:
    def __init__(self, data):
        self.data = data
        self.rows, = struct.unpack_from("<q", data)

    def row(self, number):
        first, end = struct.unpack_from("<qq", self.data, 8 + 8 * number)
        start = 8 + 8 * (self.rows + 1)
        return bytes(self.data[start + first:start + end]).decode()  # touches


class SameRow:
    rows = 4096

    def row(self, number):
        return "%0*d" % (ROW_BYTES, number % 2)  # makes


def mapped(path):
    with open(path, "rb") as file:
        return Column(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))  # maps


def memmap(path):
    import numpy  # imports
    return Column(numpy.memmap(path, mode="r"))  # memmaps


def in_memory(path):
    with open(path, "rb") as file:
        return Column(file.read())  # loads


def main():
    kind = sys.argv[1]
    path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "column.bin")
    if kind == "synthetic":
        column = SameRow()
    else:
        make_file(path, int(sys.argv[2]) if len(sys.argv) > 2 else 128)
        column = {"mapped": mapped, "memmap": memmap, "in_memory": in_memory}[kind](path)
    letters = 0
    for _ in range(PASSES):
        for number in range(column.rows):
            letters += len(column.row(number))
    print("%s: %d rows read, %d MiB of text" % (kind, PASSES * column.rows, letters // MIB))
    return column


if __name__ == "__main__":
    held = main()
