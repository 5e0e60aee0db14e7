"""Two ranks of a training job, each with two forked loaders: ranks.py HOW [shared|torch]

HOW: naive (each rank loads the data itself) or handle (the main process loads it once, and sends its handle).
"""
import multiprocessing
import sys

import loader
from moments import take_snapshot
from workers import finish, start

RANKS = LOADERS = 2

held = []  # to the end of a process, like a job that goes on


def load(storage):
    return loader.STORAGES[storage]()  # loads


def read(captions, number, gate):
    for epoch in range(LOADERS):
        loader.read(captions, epoch, number, LOADERS)
    take_snapshot()
    gate.wait()  # all loaders of all ranks hold what they have
    gate.wait()  # until they have been walked


def rank(storage, captions, gate):
    own = captions is None
    if own:
        captions = load(storage)  # loads again
    held.append(captions)
    forked = multiprocessing.get_context("fork")
    loaders = [forked.Process(target=read, args=(captions, number, gate)) for number in range(LOADERS)]
    start(loaders)
    gate.wait()
    take_snapshot()
    gate.wait()
    try:
        finish(loaders)
    finally:
        if own and storage == "shared":
            captions.data.unlink()


def main():
    how, storage = (*sys.argv[1:], "shared")[:2]
    spawned = multiprocessing.get_context("spawn")
    gate = spawned.Barrier(RANKS * (LOADERS + 1))
    captions = load(storage) if how == "handle" else None  # loads once
    held.append(captions)
    ranks = [spawned.Process(target=rank, args=(storage, captions, gate)) for _ in range(RANKS)]
    start(ranks)
    try:
        finish(ranks)
    finally:
        if captions is not None and storage == "shared":
            captions.data.unlink()


if __name__ == "__main__":
    main()
