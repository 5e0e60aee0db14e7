"""What becomes of memory that a fork made shared, one scenario at a time: fork_events_work.py LOG SCENARIO.

Every scenario has phases, and at the end of each all processes are walked. LOG gets what the processes themselves know.
"""
import json
import mmap
import os
import pickle
import sys

import whyrss
from fork_truth import PAGE, minor_faults, remember_frames, say, settle, take_snapshot, tracked_pages

MIB = 1 << 20
BUFFER_BYTES = 24 * MIB
WRITTEN_BYTES = 8 * MIB
RECORDS, FLOATS = 13_000, 24  # of 32 bytes each in pymalloc
LARGE_BYTES = 64 * MIB
PARTS, PART_BYTES = 800, 40 << 10  # on [heap], none of them on pages of its own
ITEMS, ITEM_BYTES = 200_000, 160   # in pymalloc
SMALL_BLOCKS, SMALL_BYTES = 15_000, 2000


class Child:
    """A forked process that does the next of its steps on request."""

    def __init__(self, name, *steps):
        self.ask, self.answer = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            for step in steps:
                before = settle()  # here, not after the wait: the phase begins with the answer
                os.write(self.answer[1], b"+")
                os.read(self.ask[0], 1)
                faults = minor_faults()
                step()
                faults = minor_faults() - faults
                say(LOG, pid=os.getpid(), who=name, step=step.__name__, faults=faults, copied_before=before, copied=settle())
            os.write(self.answer[1], b"+")
            os.read(self.ask[0], 1)
            os._exit(0)
        os.read(self.answer[0], 1)

    def step(self):
        os.write(self.ask[1], b"+")
        os.read(self.answer[0], 1)

    def end(self):
        os.write(self.ask[1], b"+")
        status = os.waitpid(self.pid, 0)[1]
        if status != 0:
            sys.exit("a child failed")


def build():
    return bytearray(BUFFER_BYTES)  # builds buffer


def fill(buffer):
    for at in range(0, len(buffer), PAGE):
        buffer[at] = 1  # fills buffer
    return buffer


def write(buffer, value):
    for at in range(0, WRITTEN_BYTES, PAGE):
        buffer[at] = value  # writes buffer


def idle():
    pass


def parent_writes():
    """The parent writes to a part of what it shares with its child; then the child does."""
    buffer = fill(build())

    def child_writes():
        say(LOG, pid=os.getpid(), who="child", step="about to write", tracked=tracked_pages(buffer, WRITTEN_BYTES))
        write(buffer, 2)
    child = Child("child", idle, child_writes)
    before = settle()
    with whyrss.phase("parent writes"):
        faults = minor_faults()
        write(buffer, 3)
        faults = minor_faults() - faults
        take_snapshot()
        child.step()
    say(LOG, pid=os.getpid(), who="parent", step="parent_writes", faults=faults, copied_before=before)
    with whyrss.phase("child writes"):
        child.step()
        take_snapshot()
    child.end()


def sibling_ends():
    """A child ends: the pages that it shared are its parent's alone again, and no process has copied them."""
    buffer = fill(build())
    child = Child("child", idle)
    take_snapshot()
    with whyrss.phase("child ends"):
        child.step()
        child.end()
        take_snapshot()
    tracked = tracked_pages(buffer, WRITTEN_BYTES)
    with whyrss.phase("parent writes"):
        faults = minor_faults()
        write(buffer, 3)
        say(LOG, pid=os.getpid(), who="parent", step="parent_writes", faults=minor_faults() - faults, tracked=tracked)
        take_snapshot()


def by_index(data):
    for number in range(len(data)):
        data[number]


def by_pickle(data):
    for record in data:
        pickle.dumps(record)  # does by_pickle


def by_json(data):
    for record in data:
        json.dumps(record)  # does by_json


def by_walk(data):
    for record in data:
        for value in record.values():  # does by_walk
            repr(value)


def ways_to_read():
    """What counts as reading: which of these write to the objects is a matter of the version of CPython."""
    keys = ["key %d" % number for number in range(FLOATS)]
    data = [dict(zip(keys, [number + part / 64 for part in range(FLOATS)])) for number in range(RECORDS)]  # builds records
    read_all((way.__name__, lambda way=way: way(data)) for way in (by_index, by_pickle, by_json, by_walk))


def read_all(ways):
    """Each in a child of its own and a phase of its name."""
    for name, read in ways:
        read.__name__ = name
        child = Child("child", read)
        with whyrss.phase(name):
            child.step()
        child.end()


def written_blocks():
    """Children that write to large blocks of the interpreter, and one that reads objects."""
    large = bytearray(LARGE_BYTES)  # builds large
    parts = [bytearray(PART_BYTES) for _ in range(PARTS)]  # builds parts
    items = [b"%0127d" % number for number in range(ITEMS)]  # builds items

    def write_large():
        for at in range(0, LARGE_BYTES, PAGE):
            large[at] = 1  # writes large

    def write_parts():
        for part in parts:
            for at in range(0, PART_BYTES, PAGE):
                part[at] = 1  # writes parts

    def read_items():
        for item in items:  # reads items
            len(item)
    read_all((way.__name__, way) for way in (write_large, write_parts, read_items))


def small_blocks():
    """Small blocks of malloc's heap: a child reads objects there, another one writes into arrays."""
    import numpy
    items = [b"%0*d" % (SMALL_BYTES - 33, number) for number in range(SMALL_BLOCKS)]  # builds small items
    arrays = [numpy.full(SMALL_BYTES, number % 100, numpy.uint8) for number in range(SMALL_BLOCKS)]  # builds small arrays

    def read_small():
        for item in items:  # reads small items
            len(item)

    def write_small():
        for array_ in arrays:
            array_[9] = 1  # writes small arrays
    read_all((way.__name__, way) for way in (read_small, write_small))


def mapped_file():
    """A file that was mapped before the fork, and is read after it."""
    with open(LOG + ".data", "wb") as file:
        file.write(b"x" * BUFFER_BYTES)
        file.flush()
        os.fsync(file.fileno())
    with open(LOG + ".data", "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)  # maps file

    def read():
        for at in range(0, BUFFER_BYTES, PAGE):
            data[at]  # reads file
    children = [Child("child", read) for _ in range(2)]
    with whyrss.phase("read"):
        for child in children:
            child.step()
    for child in children:
        child.end()


SCENARIOS = {function.__name__: function for function in (
    parent_writes, sibling_ends, ways_to_read, written_blocks, small_blocks, mapped_file)}

if __name__ == "__main__":
    LOG, scenario = sys.argv[1:]
    os.register_at_fork(before=remember_frames)
    SCENARIOS[scenario]()
