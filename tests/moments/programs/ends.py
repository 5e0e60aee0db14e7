"""Grows evenly from one line and ends at some size in the middle of it: ends.py HOW END_MIB RATE_MIB [LOADED_MIB].

HOW: kill, term (both sent to itself), exit (os._exit), raise (an exception that is not caught), limit (goes on until it
is killed). LOADED_MIB were there before, from another line.
"""
import os
import signal
import sys
import time

from truth import BLOCK, FILL, MIB, pace, rss, say

kept = []


def load(size):
    return [bytearray(FILL) for _ in range(size // BLOCK)]  # loads


def grow(size, rate, noted):
    begun = time.monotonic()
    for done in range(0, size, BLOCK):
        kept.append(bytearray(FILL))  # grows
        if noted and done % MIB == 0:
            say("end", rss=rss(), grown=done)
        pace(begun, done, rate)
    return size


def end(how, grown):
    say("end", rss=rss(), grown=grown)
    if how == "exit":
        os._exit(3)
    if how == "raise":
        raise RuntimeError("as it should")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM}[how])


def main(how, end_mib, rate_mib, loaded_mib=0):
    kept.append(load(loaded_mib * MIB))
    say("loaded", loaded=loaded_mib * MIB)
    end(how, grow(end_mib * MIB, rate_mib * MIB, how == "limit"))


main(sys.argv[1], *map(int, sys.argv[2:]))
