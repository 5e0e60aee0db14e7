"""A training job's data loader over image captions: loader.py STORAGE METHOD [freeze|no-gc]

STORAGE holds the captions: list (of Python objects), numpy (pickled into one array, as detectron2 does), torch (that
array as a tensor), shared (the same in multiprocessing.shared_memory). METHOD starts the workers: none (the main process
reads), fork, spawn, forkserver, or preload (a forkserver that has imported what the storage needs).
"""
import gc
import multiprocessing
import pickle
import sys

from moments import phase, take_snapshot
from workers import finish, start

RECORDS = 60_000
WORKERS = 2
EPOCHS = 3
BATCH = 500
CAPTION = "picture %d: " + "a cat sits on a mat and looks at the camera, " * 5
BOX = (0.25, 0.5, 64.25, 48.5)


def annotation(number):
    return {"image": "images/train/%012d.jpg" % number, "caption": CAPTION % number, "box": [number + at for at in BOX]}  # makes


def load():
    return [annotation(number) for number in range(RECORDS)]  # builds


def measure(record):
    return len(record["image"]) + len(record["caption"]) + sum(record["box"])  # reads


def in_blocks(size):
    """CPython's small objects lie in blocks of a multiple of 16 bytes."""
    return -(-size // 16) * 16


def object_bytes(records):
    """(of all objects, of those that reading writes a reference count to)."""
    written = unwritten = 0
    for record in records:
        box = record["box"]
        written += sum(in_blocks(sys.getsizeof(one)) for one in (record["image"], record["caption"], {}, *box, []))
        # A list's array lies among the floats, and is copied with them; the tables of the dictionaries lie apart.
        written += in_blocks(8 * len(box))
        unwritten += in_blocks(sys.getsizeof(record) - sys.getsizeof({}))
    return written + unwritten, written


class ListCaptions:
    def __init__(self):
        self.records = load()
        print("objects: %d bytes" % object_bytes(self.records)[0])
        print("written by reading: %d bytes" % object_bytes(self.records)[1])

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        return measure(self.records[index])  # indexes


class PackedCaptions:
    """What the packed storages share: one buffer of pickled records, and where each ends."""
    def __init__(self):
        import numpy
        pieces = [pickle.dumps(record, protocol=4) for record in load()]  # pickles
        self.ends = numpy.cumsum([len(piece) for piece in pieces])
        self.keep(pieces)
        print("packed: %d bytes" % self.ends[-1])

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        begin = int(self.ends[index - 1]) if index else 0
        return measure(pickle.loads(self.buffer()[begin:int(self.ends[index])]))  # unpickles


class NumpyCaptions(PackedCaptions):
    def keep(self, pieces):
        import numpy
        self.data = numpy.empty(self.ends[-1], dtype=numpy.uint8)  # packs numpy
        for end, piece in zip(self.ends, pieces):
            self.data[end - len(piece):end] = bytearray(piece)

    def buffer(self):
        return memoryview(self.data)


class TorchCaptions(NumpyCaptions):
    def keep(self, pieces):
        import torch
        import torch.multiprocessing  # registers how a tensor is sent: as a handle of shared memory
        super().keep(pieces)
        self.data = torch.from_numpy(self.data)

    def buffer(self):
        return memoryview(self.data.numpy())


class SharedCaptions(PackedCaptions):
    def keep(self, pieces):
        from multiprocessing import shared_memory
        self.data = shared_memory.SharedMemory(create=True, size=int(self.ends[-1]))  # packs shared
        for end, piece in zip(self.ends, pieces):
            self.data.buf[end - len(piece):end] = piece

    def buffer(self):
        return self.data.buf


STORAGES = {"list": ListCaptions, "numpy": NumpyCaptions, "torch": TorchCaptions, "shared": SharedCaptions}


def batches(count, epoch, number, workers):
    """The indices that a worker reads in an epoch: batches go round, and to another worker in each epoch."""
    for at, first in enumerate(range(0, count, BATCH)):
        if (at + epoch) % workers == number:
            yield range(first, min(first + BATCH, count))


def read(captions, epoch, number=0, workers=1):
    return sum(captions[index] for batch in batches(len(captions), epoch, number, workers) for index in batch)


def work(number, captions, gate):
    take_snapshot()
    for epoch in range(EPOCHS):
        gate.wait()  # the epoch begins
        read(captions, epoch, number, WORKERS)
        take_snapshot()
        gate.wait()  # all have read


def train(captions, method):
    """Epochs with workers, who live through all of them."""
    context = multiprocessing.get_context("forkserver" if method == "preload" else method)
    if method == "preload":
        context.set_forkserver_preload(["numpy", "torch"] if isinstance(captions, TorchCaptions) else ["numpy"])
    gate = context.Barrier(WORKERS + 1)
    workers = [context.Process(target=work, args=(number, captions, gate)) for number in range(WORKERS)]
    start(workers)
    for epoch in range(EPOCHS):
        with phase("epoch %d" % (epoch + 1)):
            take_snapshot()
            gate.wait()
            gate.wait()
        take_snapshot()  # no worker reads meanwhile, as when a model is saved
        take_snapshot()
    finish(workers)


def main():
    storage, method, *collector = sys.argv[1:]
    captions = STORAGES[storage]()
    if collector == ["freeze"]:
        gc.freeze()
    if collector == ["no-gc"]:
        gc.disable()
    if method == "none":
        for epoch in range(EPOCHS):
            with phase("epoch %d" % (epoch + 1)):
                read(captions, epoch)
    else:
        train(captions, method)
    if storage == "shared":
        captions.data.unlink()
    return captions


if __name__ == "__main__":
    held = main()  # to the end, like a job that goes on
