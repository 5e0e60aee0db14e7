"""Gives memory up with MADV_FREE, writes to a part of it again, and is killed."""
import mmap
import os
import signal
import time

from truth import MIB, rollup, say

SIZE, AGAIN, REST_S, LAST_S = 64 * MIB, 16 * MIB, 0.7, 0.1

memory = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory[:] = b"x" * SIZE
time.sleep(REST_S)
memory.madvise(mmap.MADV_FREE)
time.sleep(REST_S)
memory[:AGAIN] = b"y" * AGAIN
time.sleep(LAST_S)
say("end", lazy_free=rollup()["LazyFree"])
os.kill(os.getpid(), signal.SIGKILL)
