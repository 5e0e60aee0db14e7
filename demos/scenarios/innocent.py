"""Programs whose memory grows and is no leak: innocent.py cache|sawtooth|warm-up

cache: keeps the last 64 results of 512 KiB, whatever comes. sawtooth: rows are decoded, used, dropped, again and again.
warm-up: buffers are made once, then used again.
"""
import collections
import os
import pathlib
import sys
import time

import whyrss
from moments import take_snapshot

KIB = 1024
SNAPSHOTS = 6


def age_s():
    """Of this process: the trend counts from its birth, the interpreter's start with it."""
    started_ticks = int(pathlib.Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


def go_on(step):
    """Steps without growth, for longer than it took to get here, as a job goes on when it is warm."""
    warm_s = time.monotonic()
    until_s = warm_s + 2 * age_s() + 0.5
    for at in range(SNAPSHOTS):
        take_snapshot()
        while time.monotonic() < warm_s + (until_s - warm_s) * (at + 1) / SNAPSHOTS:
            step()


def result(number):
    return bytearray(512 * KIB + number % 7)  # results


def cache():
    kept = collections.OrderedDict()

    def ask():
        number = len(kept) and next(reversed(kept)) + 1
        kept[number] = result(number)
        if len(kept) > 64:
            kept.popitem(last=False)
    for _ in range(100):
        ask()
    whyrss.mark("warm")
    go_on(ask)
    return kept


def rows():
    return [b"row %d " % number * 150 for number in range(40000)]  # decodes


def sawtooth():
    for step in range(12):
        used = sum(map(len, rows()))
        if step == 2:
            whyrss.mark("warm")
    return used


def warm_up():
    buffers = [bytearray(8 * KIB * KIB) for _ in range(8)]  # buffers

    def use():
        for buffer in buffers:
            buffer[::4096] = b"\1" * 2048
    use()
    whyrss.mark("warm")
    go_on(use)
    return buffers


if __name__ == "__main__":
    held = {"cache": cache, "sawtooth": sawtooth, "warm-up": warm_up}[sys.argv[1]]()
    whyrss.snapshot()
