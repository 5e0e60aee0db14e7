"""Four forked workers that write to a part of what they inherited, then leave through the interpreter's shutdown."""
import os
import sys
import time

from truth import MIB, PAGE, copied, pace, rollup, say

WORKERS, WRITTEN, SERVE_S = 4, 4 * MIB, 1.0
ROWS = 400_000

table = [[number] for number in range(ROWS)]  # 40 MiB; CPython's search for cycles writes to each list
shared = bytearray(b"x") * WRITTEN  # loads


def serve():
    begun = time.monotonic()
    for at in range(0, WRITTEN, PAGE):
        shared[at] = 1  # serves
        pace(begun, at, WRITTEN / SERVE_S)


anonymous = rollup()["Anonymous"]
workers = []
for _ in range(WORKERS):
    workers.append(os.fork())
    if workers[-1] == 0:
        serve()
        say("worker", copied=copied(anonymous))
        sys.exit(0)
for worker in workers:
    os.waitpid(worker, 0)
