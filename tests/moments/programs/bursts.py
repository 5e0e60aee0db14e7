"""Many processes that live for a moment, beside one that grows slowly, and slowly writes to what it inherited."""
import os
import time

from truth import BLOCK, FILL, MIB, PAGE, copied, pace, rollup, rss, say

SLOW, WRITTEN, SLOW_S = 50 * MIB, 25 * MIB, 5
BURSTS, BURST, BURST_S = 200, 30 * MIB, 0.05


kept = []
inherited = bytearray(b"x") * WRITTEN


def grow_slowly():
    begun, before = time.monotonic(), rss()
    for done in range(0, SLOW, BLOCK):
        kept.append(bytearray(FILL))  # grows
        for at in range(done // 2, (done + BLOCK) // 2, PAGE):
            inherited[at] = 1  # writes
        pace(begun, done, SLOW / SLOW_S)
    say("slow", rss=rss(), grown=rss() - before, copied=copied(anonymous))


def burst():
    held = bytearray(b"x") * BURST  # bursts
    time.sleep(BURST_S)
    return held


anonymous = rollup()["Anonymous"]
slow = os.fork()
if slow == 0:
    grow_slowly()
    os._exit(0)
running = set()
for _ in range(BURSTS):
    child = os.fork()
    if child == 0:
        burst()
        os._exit(0)
    running.add(child)
    time.sleep(0.02)
    running -= {pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]}
for pid in (*running, slow):
    os.waitpid(pid, 0)
