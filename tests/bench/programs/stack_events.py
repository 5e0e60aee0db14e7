"""The cost of events below Python frames: for each depth, nanoseconds for a read() of nothing into a buffer of 40 KB,
which is one malloc and one free that are logged. Best of many short slices.
    stack_events.py DEPTH...
"""
import os
import sys
import time

SLICES, PER_SLICE = 30, 500


def measure(null):
    best_ns = 1e30
    turns = range(PER_SLICE)
    read = os.read
    for _ in range(SLICES):
        start = time.perf_counter_ns()
        for _ in turns:
            read(null, 40_000)
        best_ns = min(best_ns, (time.perf_counter_ns() - start) / PER_SLICE)
    return best_ns


def descend(depth, null):
    return descend(depth - 1, null) if depth else measure(null)


with open(os.devnull, "rb", buffering=0) as opened:
    for wanted in sys.argv[1:]:
        print(descend(int(wanted) - 3, opened.fileno()))  # the frames of the module, descend(0) and measure()
