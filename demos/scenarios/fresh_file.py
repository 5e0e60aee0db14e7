"""Maps and reads a file that has just been written: smaps calls its pages Private_Dirty until they are on disk."""
import mmap
import os
import re

MIB = 1 << 20
FILE_MIB = 128


def private_dirty(path):
    """What smaps says of the mapping."""
    found = None
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as smaps:
        for line in smaps:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                found = line.rstrip("\n").endswith(path)
            elif found and line.startswith("Private_Dirty:"):
                return int(line.split()[1]) * 1024
    return 0


def main():
    path = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "fresh.bin")
    with open(path, "wb") as file:
        for _ in range(FILE_MIB):
            file.write(os.urandom(MIB))
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps
    total = sum(data[at] for at in range(0, len(data), 4096))  # reads
    print("smaps says Private_Dirty: %d bytes" % private_dirty(path))
    return data, total


if __name__ == "__main__":
    held = main()
