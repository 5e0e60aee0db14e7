"""Buffers that only reference cycles keep: garbage that waits for the collector. garbage_cycles.py [collect]"""
import gc
import sys

from moments import take_snapshot

COUNT, BUFFER_BYTES = 150, 1 << 20


class Record:
    def __init__(self):
        self.payload = bytearray(b"x") * BUFFER_BYTES  # allocates
        self.itself = self


def main():
    gc.disable()  # as it is in effect between two collections of the oldest generation
    for _ in range(COUNT):
        Record()
    print("%d records of 1 MiB made and dropped" % COUNT)
    take_snapshot()  # before and after
    if "collect" in sys.argv:
        print("gc.collect() found %d objects" % gc.collect())


if __name__ == "__main__":
    main()
