"""Gives memory up with MADV_FREE, and writes to a part of it again."""
import mmap
import os
import time

from truth import MIB, rollup, say

SIZE, AGAIN, REST_S = 64 * MIB, 16 * MIB, 0.7

memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = b"x" * SIZE
time.sleep(REST_S)
memory.madvise(mmap.MADV_FREE)
time.sleep(REST_S)
memory[:AGAIN] = b"y" * AGAIN
time.sleep(REST_S)
say("end", lazy_free=rollup()["LazyFree"])
os._exit(0)
