"""Frees most of what it made, but not all of it: fragmented.py pins|threshold

pins: every fifth block of 600 bytes stays, so that each page still holds a live one.
threshold: batches of 3 MiB are freed, and a copy of 64 KiB of each stays. glibc maps such batches, until one was freed:
then it takes them from the heap, and the copies beside them keep it from shrinking.
"""
import sys
import time

KIB = 1024
BATCH = 3 * KIB * KIB


def pins():
    kept, passing = [], []
    for number in range(125000):
        if number % 5 == 0:
            kept.append(bytes(600))  # stays
        else:
            passing.append(bytes(600))
    del passing
    return kept


def threshold():
    kept = []
    for _ in range(3):
        batches, kept = [], []
        for _ in range(30):
            batches.append(b"\1" * BATCH)  # batches
            kept.append(batches[-1][:64 * KIB])  # copies
        del batches
    return kept


if __name__ == "__main__":
    held = {"pins": pins, "threshold": threshold}[sys.argv[1]]()
    print("kept %d blocks, %d KiB" % (len(held), sum(map(len, held)) // KIB))
    time.sleep(1.2)  # it goes on: what goes in its last second may be what ends with it
