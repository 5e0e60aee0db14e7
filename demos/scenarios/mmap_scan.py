"""Reads a text file line by line through mmap and drops each line: mmap_scan.py [MIB]"""
import mmap
import os
import sys

MIB = 1 << 20
LINE = b"%0126d \n"  # 128 bytes


def make_file(path, mib):
    with open(path, "wb") as file:
        for first in range(0, mib * 8192, 8192):
            file.write(b"".join(LINE % number for number in range(first, first + 8192)))
        file.flush()
        os.fsync(file.fileno())  # clean pages: the kernel may drop them at any time


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 256
    path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "big.txt")
    make_file(path, mib)
    with open(path, "rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps
        count = 0
        while text.readline():  # reads
            count += 1
    print("%d lines of %d MiB" % (count, len(text) // MIB))
    return text


if __name__ == "__main__":
    held = main()
