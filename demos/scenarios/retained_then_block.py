"""Drops its records, then needs one large block: retained_then_block.py [trim]

The allocator keeps the memory of the records, and the kernel cannot take it back: under a limit the block does not fit,
unless malloc_trim gives the pages back first.
"""
import ctypes
import sys
import time

MIB = 1 << 20
RECORDS, RECORD = 60_000, 2000     # 120 MB in blocks of malloc: over the 512 bytes of CPython's own allocator
PINS = 64                          # each 64th record stays: the heap's end is never free
BLOCK = 100 * MIB


def main():
    records = [bytes([65 + number % 20]) * RECORD for number in range(RECORDS)]  # records
    kept = records[::PINS]
    del records
    time.sleep(0.5)
    if "trim" in sys.argv:
        print("malloc_trim gave back:", ctypes.CDLL(None).malloc_trim(0))
    block = bytearray(b"x" * 1) * BLOCK  # block
    time.sleep(0.5)
    print("%d MiB, %d records kept" % (len(block) // MIB, len(kept)))
    return kept, block


if __name__ == "__main__":
    held = main()
