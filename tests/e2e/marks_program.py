"""Uses every kind of phase and mark that whyrss.py offers and logs when: marks_program.py LOG.

Each line of the log is a JSON list [name, before begin, after begin, before end, after end] of CLOCK_MONOTONIC, or
[name, before, after] of a mark.
"""
import json
import os
import sys
import threading
import time

import whyrss

log = open(sys.argv[1], "a", buffering=1)


def write(*entry):
    log.write(json.dumps(entry) + "\n")


class Timed:
    """A phase that logs what it did."""

    def __init__(self, name, shown=None):
        self.phase, self.shown, self.pid = whyrss.phase(name), name if shown is None else shown, os.getpid()

    def __enter__(self):
        self.begin = [time.monotonic()]
        self.phase.__enter__()
        self.begin.append(time.monotonic())

    def __exit__(self, *raised):
        end = [time.monotonic()]
        result = self.phase.__exit__(*raised)
        if os.getpid() == self.pid:  # a forked child's end of its parent's phase is none
            write(self.shown, *self.begin, *end, time.monotonic())
        return result


def mark(text):
    before = time.monotonic()
    whyrss.mark(text)
    write(text, before, time.monotonic())


class Unprintable:
    def __str__(self):
        raise RuntimeError("no text")


with Timed("zero"):
    pass

with Timed("outer"):
    mark("between")
    with Timed("inner"):
        whyrss.snapshot()
    with Timed("again"):
        with Timed("again"):
            pass

try:
    with Timed("raises"):
        raise ValueError("as always")
except ValueError as error:
    print("caught", error, error.__traceback__.tb_next is None)


# Before there are threads: Python warns of a fork beside them.
with Timed("at fork"):
    child = os.fork()
    if child == 0:
        with Timed("in the child"):
            pass
if child == 0:
    os._exit(0)
print("child", os.waitpid(child, 0)[1])


def overlapping(name, barrier):
    with Timed(name):
        barrier.wait()
        barrier.wait()


def in_threads():
    barrier = threading.Barrier(2)
    threads = [threading.Thread(target=overlapping, args=("thread %d" % i, barrier)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


in_threads()


def generator():
    with Timed("in a generator"):
        yield 1
        yield 2


suspended = generator()
next(suspended)
with Timed("while it is suspended"):
    pass
print(list(suspended))


@whyrss.phase("decorated")
def decorated(depth):
    return depth if depth == 0 else decorated(depth - 1)


decorated(2)

with Timed("Époque ½ 記憶"), Timed(""), Timed("n\0l", "n\\x00l"), Timed("s\ud800", "s\\ud800"):
    pass
with Timed("x" * 100_000, "x" * 4096), Timed(b"bytes \xff", "bytes \\xff"), Timed(7, "7"):
    pass
with Timed(Unprintable(), "<Unprintable>"):
    pass

unfinished = whyrss.phase("unfinished")
unfinished.__enter__()
print("done")
