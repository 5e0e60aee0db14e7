"""Reads a file through mmap whose pages are not in the page cache yet: limited_scan.py [MIB]

Under a memory limit the kernel charges each page that comes in, and takes others back.
"""
import mmap
import os
import sys

from moments import take_snapshot

MIB = 1 << 20
PAGE = 4096
SNAPSHOT_BYTES = 32 * MIB


def make_file(path, mib):
    with open(path, "wb") as file:
        for _ in range(mib):
            file.write(os.urandom(PAGE) * (MIB // PAGE))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "cold.bin")
    make_file(path, mib)
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps
    total = 0
    for start in range(0, len(data), PAGE):
        total += data[start]  # reads
        if start % SNAPSHOT_BYTES == 0:
            take_snapshot()  # what came and went between two snapshots would be missing
    print("%d pages of %d MiB" % (len(data) // PAGE, mib))
    return data, total


if __name__ == "__main__":
    held = main()
