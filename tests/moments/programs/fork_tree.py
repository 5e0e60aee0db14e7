"""A tree three deep: the root holds memory and writes none of it, the middle ends, the grandchild writes it all."""
import gc
import os
import time

from truth import MIB, copied, rollup, say

HELD, SMALL = 64 * MIB, 4096 - 64


def write(blocks):
    for block in blocks:
        block[0] = 1  # writes


held = [bytearray(b"x") * SMALL for _ in range(HELD // 4096)]  # holds
gc.disable()
time.sleep(0.3)
anonymous = rollup()["Anonymous"]
reading, writing = os.pipe()
middle = os.fork()
if middle == 0:
    os.close(reading)
    if os.fork() == 0:
        time.sleep(0.3)
        write(held)
        time.sleep(0.3)
        say("grandchild", copied=copied(anonymous))
        os.close(writing)
    os._exit(0)
os.close(writing)
os.waitpid(middle, 0)
os.read(reading, 1)  # until the grandchild has ended
say("root")
os._exit(0)
