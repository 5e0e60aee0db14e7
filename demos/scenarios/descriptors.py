"""Keeps one small piece of each batch that came in shared memory: descriptors.py keep|copy"""
import sys
from multiprocessing import shared_memory

import whyrss

BATCHES = 200
SIZE = 256 * 1024


def batch():
    segment = shared_memory.SharedMemory(create=True, size=SIZE)  # maps
    segment.unlink()  # as DataLoader's workers do: the name is gone, the memory lives as long as its users
    segment.buf[:] = b"\1" * SIZE  # fills
    return segment


def main():
    kept = []
    for _ in range(BATCHES):
        segment = batch()
        if sys.argv[1] == "keep":
            kept.append(segment)
        else:
            kept.append(bytes(segment.buf[:256]))
            segment.close()
    print("kept %d pieces" % len(kept))
    return kept


if __name__ == "__main__":
    held = main()
    whyrss.snapshot()
