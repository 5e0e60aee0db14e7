"""What a job knows of itself: its memory by the kernel's own counters, written down as JSON lines in $MOMENTS_LOG.

No job waits for whyrss: each does the same without it.
"""
import json
import os
import time

MIB = 1 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
BLOCK = 64 << 10      # of what jobs keep: large enough that each call is seen, small enough to come from the heap
FILL = b"x" * BLOCK   # blocks are written, not only reserved


def say(what, **facts):
    line = json.dumps({"what": what, "pid": os.getpid(), "time": time.time(), **facts}) + "\n"
    log = os.open(os.environ["MOMENTS_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, line.encode())
    os.close(log)


def rss(pid="self"):
    """At once; off by at most 64 pages for each CPU."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * PAGE


def high_water():
    with open("/proc/self/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def rollup(pid="self"):
    """Sums over all mappings by their names in smaps, in bytes; takes some ms for each 100 MiB."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as sums:
        next(sums)
        return {name.rstrip(":"): int(size) * 1024 for name, size, _ in map(str.split, sums)}


def own(figures):
    """USS: what no other process maps."""
    return figures["Private_Clean"] + figures["Private_Dirty"]


def copied(anonymous_before_fork):
    """Of what this process inherited, what it has copied: what it has for itself, less what it has made anew. Right while
    another process maps all that it inherited."""
    now = rollup()
    return now["Private_Dirty"] - (now["Anonymous"] - anonymous_before_fork)


def pace(begun, done, rate):
    """Sleeps while `done` bytes are ahead of a rate per second."""
    ahead_s = done / rate - (time.monotonic() - begun)
    if ahead_s > 0.005:
        time.sleep(ahead_s)
