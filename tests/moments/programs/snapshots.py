"""A parent that asks for a snapshot after each step of its two workers; nothing changes until it has said what was there."""
import os

import whyrss
from truth import BLOCK, FILL, MIB, rollup, say

WORKERS, STEPS, STEP = 2, 5, 20 * MIB


def work(orders, done):
    kept = []
    while os.read(orders, 1):
        kept += [bytearray(FILL) for _ in range(STEP // BLOCK)]  # steps
        os.write(done, b"d")
    os._exit(0)


def start(earlier):
    """(pid, where to send orders, where to read that they are done) of a new worker."""
    orders, ordering = os.pipe()
    doing, done = os.pipe()
    pid = os.fork()
    if pid == 0:
        for end in (ordering, doing, *earlier):
            os.close(end)
        work(orders, done)
    os.close(orders)
    os.close(done)
    return pid, ordering, doing


workers = []
for _ in range(WORKERS):
    workers.append(start([end for _, *ends in workers for end in ends]))
for step in range(STEPS):
    _, ordering, doing = workers[step % WORKERS]
    os.write(ordering, b"o")
    os.read(doing, 1)
    whyrss.snapshot()
    say("step", workers={pid: rollup(pid)["Rss"] for pid, *_ in workers})
for pid, ordering, _ in workers:
    os.close(ordering)
    os.waitpid(pid, 0)
