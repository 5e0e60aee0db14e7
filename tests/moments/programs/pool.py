"""A Pool of two workers that inherit 200 MiB and each get 100 MiB more: pool.py argument|global|before-load.

argument: by what the task is called with. global: by writing to what was there before the fork. before-load: by loading
it, after the pool was made and before the parent loads the same.
"""
import multiprocessing
import os
import sys
import time

from truth import MIB, high_water, own, rollup, say

WORKERS, BASE, SHARE, HOLD_S = 2, 200 * MIB, 100 * MIB, 1.0
SMALL = 4096 - 64  # a block of about a page
kept = []
base = [b"x" * MIB for _ in range(BASE // MIB)]  # no process writes to it
everyone = None


def small_blocks():
    return [bytearray(b"x") * SMALL for _ in range(SHARE // 4096)]  # loads


def meet(barrier):
    global everyone
    everyone = barrier


def stay():
    """All hold what they have; the parent reads what that is."""
    everyone.wait()
    everyone.wait()
    say("worker", high_water=high_water())
    return os.getpid()


def take(argument):
    kept.append(argument)
    return stay()


def write(_):
    for block in kept[0]:
        block[0] = 1  # writes
    return stay()


def load(_):
    kept.append(small_blocks())
    return stay()


def read_all():
    """Once all hold: in the middle of a time in which nothing changes."""
    everyone.wait()
    time.sleep(HOLD_S / 2)
    family = {child.pid: rollup(child.pid) for child in multiprocessing.active_children()}
    workers = {pid: {"rss": figures["Rss"], "uss": own(figures)} for pid, figures in family.items()}
    family[os.getpid()] = rollup()
    say("held", pss=sum(figures["Pss"] for figures in family.values()), workers=workers)
    time.sleep(HOLD_S / 2)
    everyone.wait()


def main(how):
    context = multiprocessing.get_context("fork")
    meet(context.Barrier(WORKERS + 1))
    if how == "global":
        kept.append(small_blocks())
    with context.Pool(WORKERS, meet, (everyone,)) as pool:
        if how == "before-load":
            kept.append(small_blocks())
        task = {"argument": take, "global": write, "before-load": load}[how]
        results = []
        for _ in range(WORKERS):
            results.append(pool.apply_async(task, (b"x" * SHARE if how == "argument" else None,)))
        read_all()
        for result in results:
            result.get()
        pool.close()
        pool.join()


if __name__ == "__main__":
    main(sys.argv[1])
