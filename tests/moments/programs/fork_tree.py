"""A tree three deep: the root holds memory and writes none of it, the middle ends, the grandchild writes it all:
fork_tree.py before|while|at-once (the middle ends before, or while the grandchild writes; or all is over in a moment).
"""
import gc
import os
import sys
import time

from truth import MIB, copied, pace, rollup, say

BASE, HELD, SMALL, WRITES_S = 500 * MIB, 64 * MIB, 4096 - 64, 0.6
HOW = sys.argv[1]


def write(blocks):
    begun = time.monotonic()
    for number, block in enumerate(blocks):
        block[0] = 1  # writes
        if HOW != "at-once":
            pace(begun, number, len(blocks) / WRITES_S)


base = [b"x" * MIB for _ in range(BASE // MIB)]  # no process writes to it
held = [bytearray(b"x") * SMALL for _ in range(HELD // 4096)]  # holds
gc.disable()
time.sleep(0.3)
anonymous = rollup()["Anonymous"]
reading, writing = os.pipe()
middle = os.fork()
if middle == 0:
    os.close(reading)
    if os.fork() == 0:
        write(held)
        say("grandchild", copied=copied(anonymous))
        os.close(writing)
    elif HOW == "while":
        time.sleep(WRITES_S / 2)
    os._exit(0)
os.close(writing)
os.waitpid(middle, 0)
os.read(reading, 1)  # until the grandchild has ended
say("root")
os._exit(0)
