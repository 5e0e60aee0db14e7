"""Reads a text file line by line through mmap and keeps each line as a string: mmap_keep.py [MIB]"""
import mmap
import os
import sys

MIB = 1 << 20
LINE_BYTES = 8192


def make_file(path, mib):
    with open(path, "wb") as file:
        for number in range(mib * MIB // LINE_BYTES):
            file.write(b"%0*d\n" % (LINE_BYTES - 1, number))
        file.flush()
        os.fsync(file.fileno())


def main():
    mib = int(sys.argv[1]) if len(sys.argv) > 1 else 128
    path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "lines.txt")
    make_file(path, mib)
    kept = []
    with open(path, "rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps
        while True:
            line = text.readline()  # reads
            if not line:
                break
            kept.append(line.decode())  # keeps
    print("%d lines of %d MiB kept" % (len(kept), len(text) // MIB))
    return text, kept


if __name__ == "__main__":
    held = main()
