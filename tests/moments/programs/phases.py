"""Five phases of different length, each of which keeps the same amount, evenly: phases.py LOADED_MIB (before them)."""
import sys
import time

import whyrss
from truth import BLOCK, FILL, MIB, pace, rss, say

KEPT = int(15.3 * MIB) // BLOCK * BLOCK
SECONDS = (1, 2, 3, 1.5, 2.5)
kept = []
loaded = [bytearray(FILL) for _ in range(int(sys.argv[1]) * MIB // BLOCK)]  # loads


def work(seconds):
    begun = time.monotonic()
    for done in range(0, KEPT, BLOCK):
        kept.append(bytearray(FILL))  # keeps
        pace(begun, done, KEPT / seconds)


for number, length_s in enumerate(SECONDS, 1):
    with whyrss.phase(f"phase {number}"):
        before = rss()
        work(length_s)
        after = rss()
    say("phase", name=f"phase {number}", grown=after - before, kept=KEPT)
