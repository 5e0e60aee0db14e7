"""Builds records, serialises them, deletes everything: retained.py [--trim] [RECORDS]

What is still resident then is free memory that the allocator keeps. The last line is what the program knows of it.
"""
import ctypes
import os
import pickle
import sys
import time

KIB = 1024


def resident_kib():
    with open("/proc/self/statm", encoding="ascii") as statm:
        _, resident, shared = statm.read().split()[:3]
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE") // KIB


def glibc_free_kib():
    """What glibc says it has free; 0 under another allocator, which hides its counters."""
    fields = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    counters = type("mallinfo2", (ctypes.Structure,), {"_fields_": [(field, ctypes.c_size_t) for field in fields]})
    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = counters
    return mallinfo2().fordblks // KIB


def build(count):
    """Annotations of images: small objects, which CPython keeps in its arenas, and a list of 704 bytes, which malloc makes."""
    return [{"id": number, "box": [number * 0.5 + side for side in range(4)],
             "outline": [number + point * 0.25 for point in range(80)]}  # outlines
            for number in range(count)]


def serialise(records):
    """One string of 850 bytes a record, which malloc makes, then all of them in one."""
    parts = [pickle.dumps(record) for record in records]  # serialises
    return parts, b"".join(parts)


def work(count):
    records = build(count)
    parts, packed = serialise(records)
    size = len(packed)
    summary = pickle.dumps(records[0])  # the last block of the heap stays: glibc can give back nothing from its end
    del records, parts, packed
    return size, summary


def main():
    arguments = [word for word in sys.argv[1:] if word != "--trim"]
    ctypes.CDLL(None)
    before = resident_kib()
    size, summary = work(int(arguments[0]) if arguments else 60000)
    if "--trim" in sys.argv:
        ctypes.CDLL(None).malloc_trim(0)
    print("packed %d KiB, then deleted; kept by the allocator %d KiB, of which glibc counts %d KiB"
          % (size // KIB, resident_kib() - before, glibc_free_kib()))
    time.sleep(1.2)  # it goes on: what goes in its last second may be what ends with it
    return summary


if __name__ == "__main__":
    held = main()
