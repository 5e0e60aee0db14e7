"""Data in several storages, read by two workers: fork_scenarios_work.py LOG METHOD STORAGE...

METHOD is a start method of multiprocessing, or "preload": forkserver with fork_scenarios_import preloaded. The
storages are read one after the other, each in a phase of its name, and every process is walked before and after it.
LOG gets a JSON object per worker and storage: what the worker itself says about the faults and copies that it made.
"""
import multiprocessing
import os
import sys

import whyrss
from fork_truth import PAGE, finish, minor_faults, remember_frames, say, settle, start, take_snapshot

WORKERS = 2
MIB = 1 << 20
LIST_ITEMS = 120_000     # of 160 bytes in pymalloc, head included
LIST_BUFFERS = 12        # of 1 MiB: only the page that holds the head is written by reading
BUFFER_BYTES = 24 * MIB  # of shared memory


def build_list():
    kept = []
    for number in range(LIST_ITEMS):
        kept.append(b"%0127d" % number)  # builds list
    for number in range(LIST_BUFFERS):
        kept.append(b"x" * (MIB + number))  # builds buffers
    return kept


def read_list(data):
    total = 0
    for item in data:  # reads list
        total += len(item)
    return total


def build_shared_memory():
    from multiprocessing import shared_memory
    segment = shared_memory.SharedMemory(create=True, size=BUFFER_BYTES)  # maps shared_memory
    for at in range(0, BUFFER_BYTES, PAGE):
        segment.buf[at] = 1  # builds shared_memory
    return segment


def read_shared_memory(segment):
    total = 0
    for at in range(0, BUFFER_BYTES, PAGE):
        total += segment.buf[at]  # reads shared_memory
    return total


def read_import(_):
    import fork_scenarios_import  # reads import
    return len(fork_scenarios_import.TABLE)


STORAGES = {"list": (build_list, read_list), "shared_memory": (build_shared_memory, read_shared_memory),
            "import": (lambda: None, read_import)}


def work(number, log, barrier, storages):
    for name, data in storages:
        before = settle()
        barrier.wait()  # all have been walked
        barrier.wait()  # the phase has begun
        faults = minor_faults()
        STORAGES[name][1](data)
        faults = minor_faults() - faults
        say(log, pid=os.getpid(), storage=name, faults=faults, copied_before=before, copied=settle())
        barrier.wait()  # all have read


def main():
    log, method, *names = sys.argv[1:]
    context = multiprocessing.get_context(method if method != "preload" else "forkserver")
    if method == "preload":
        context.set_forkserver_preload(["fork_scenarios_import"])
    if method == "fork":
        os.register_at_fork(before=remember_frames)
    barrier = context.Barrier(WORKERS + 1)
    storages = [(name, STORAGES[name][0]()) for name in names]
    workers = [context.Process(target=work, args=(number, log, barrier, storages)) for number in range(WORKERS)]
    start(workers)
    for name in names:
        barrier.wait()
        with whyrss.phase(name):
            barrier.wait()
            barrier.wait()
            take_snapshot()
    try:
        finish(workers)
    finally:
        for name, data in storages:
            if name == "shared_memory":
                data.close()
                data.unlink()


if __name__ == "__main__":
    main()
