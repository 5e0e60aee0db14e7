"""Reads a text file of long lines with readline, and drops or keeps each: text_lines.py [--keep]"""
import os
import sys

MIB = 1 << 20
LINES = 8
LINE_MIB = 24


def make_file(path):
    with open(path, "wb") as file:
        for _ in range(LINES):
            for _ in range(LINE_MIB):
                file.write(b"x" * MIB)
            file.write(b"\n")
        file.flush()
        os.fsync(file.fileno())


path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "long.txt")
make_file(path)
kept = ""
with open(path, encoding="ascii") as text:
    for _ in range(LINES):
        line = text.readline()  # reads
        if "--keep" in sys.argv:
            kept += line  # keeps
        del line
os.unlink(path)
print("CPython %d.%d kept %d bytes" % (*sys.version_info[:2], len(kept)))
