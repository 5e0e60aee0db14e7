"""Many processes that live for a moment, beside one that grows slowly."""
import os
import time

from truth import BLOCK, FILL, MIB, pace, rss, say

SLOW, SLOW_S = 50 * MIB, 5
BURSTS, BURST, BURST_S = 200, 30 * MIB, 0.05


kept = []


def grow_slowly():
    begun, before = time.monotonic(), rss()
    for done in range(0, SLOW, BLOCK):
        kept.append(bytearray(FILL))  # grows
        pace(begun, done, SLOW / SLOW_S)
    say("slow", rss=rss(), grown=rss() - before)


def burst():
    held = bytearray(b"x") * BURST  # bursts
    time.sleep(BURST_S)
    return held


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
