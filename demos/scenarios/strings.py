"""200,000 paths, one of them long, in one kind of container, which a forked child reads: strings.py KIND"""
import os
import resource
import sys

from moments import phase, take_snapshot

COUNT = 200000
LONGEST = 255


def paths():
    yield "/data/" + "d" * (LONGEST - 6)
    for number in range(1, COUNT):
        yield "/data/train/shard-%05d/image-%09d.jpg" % (number // 1000, number)  # formats


class Packed:
    """All strings in one buffer, and where each begins."""

    def __init__(self, strings):
        self.text, self.ends = bytearray(), numpy.zeros(COUNT + 1, numpy.int64)
        for number, string in enumerate(strings):
            self.text += string.encode()  # packs
            self.ends[number + 1] = len(self.text)

    def __iter__(self):
        for number in range(COUNT):
            yield self.text[self.ends[number]:self.ends[number + 1]]


def as_list():
    return list(paths())  # lists


def as_object():
    return numpy.fromiter(paths(), dtype=object, count=COUNT)  # objects


def as_unicode():
    return numpy.fromiter(paths(), dtype="U%d" % LONGEST, count=COUNT)  # unicodes


def as_bytes():
    return numpy.fromiter((path.encode() for path in paths()), dtype="S%d" % LONGEST, count=COUNT)  # bytes


def as_packed():
    return Packed(paths())


def read(container):
    return sum(len(string) for string in container)  # reads


def main():
    container = {"list": as_list, "object": as_object, "U": as_unicode, "S": as_bytes, "packed": as_packed}[sys.argv[1]]()
    child = os.fork()
    if child == 0:
        take_snapshot()
        with phase("reading"):
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(3):
                read(container)
            faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
            take_snapshot()
        print("faults: %d bytes" % (faults * resource.getpagesize()), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    print("%d strings as %s" % (COUNT, sys.argv[1]))
    return container


if __name__ == "__main__":
    if sys.argv[1] != "list":
        import numpy
    held = main()
