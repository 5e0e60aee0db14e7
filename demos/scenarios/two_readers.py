"""A process that maps a file and reads it; a second one joins, reads the same file, and leaves first."""
import mmap
import os
import subprocess
import sys

from moments import phase, take_snapshot

MIB = 1 << 20
FILE_MIB = 192


def make_file(path):
    with open(path, "wb") as file:
        for _ in range(FILE_MIB):
            file.write(os.urandom(MIB))
        file.flush()
        os.fsync(file.fileno())


def read_all(path):
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps
    total = sum(data[at] for at in range(0, len(data), 4096))  # reads
    return data, total


def second(path):
    held = read_all(path)
    take_snapshot()
    print("read by the second process", flush=True)
    sys.stdin.readline()
    return held


def first(path):
    make_file(path)
    held = read_all(path)
    with phase("alone"):
        take_snapshot()
    reader = subprocess.Popen([sys.executable, __file__, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    reader.stdout.readline()
    with phase("two readers"):
        take_snapshot()
    reader.communicate("\n")
    with phase("alone again"):
        take_snapshot()
    print("%d MiB read by two processes" % FILE_MIB)
    return held


if __name__ == "__main__":
    shared = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "shared.bin")
    kept = second(sys.argv[1]) if len(sys.argv) > 1 else first(shared)
