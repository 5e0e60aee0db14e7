"""Programs that keep Python objects among many times as many temporaries: python_lines_work.py NAME.

Under tracemalloc it prints what each line of this file holds at the end, {line: [bytes, of which in small blocks]}, as
CPython's pools count them.
"""
import collections
import dataclasses
import functools
import json
import sys
import threading
import tracemalloc

kept = []
LARGE_BLOCK_BYTES = 32 * 1024  # from here on blocks are counted, not sampled
COUNT = 24_000
PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def noise(number):
    """Some 25 KiB of temporaries."""
    texts = [str(number + i) + " of a temporary" for i in range(100)]
    return {text: (i, [text]) for i, text in enumerate(texts)}


def steps(count=COUNT, every=60):
    for number in range(count):
        if number % every == 0:
            noise(number)
        yield number


@program
def cache_of_tuples():
    cache = {}
    for number in steps():
        cache[number] = (number, "value %d" % number, [number])
    kept.append(cache)


@program
def list_of_texts():
    for number in steps():
        kept.append("a text that is kept, number %d" % number * 3)


@program
def set_of_numbers():
    kept.append(set())
    for number in steps(4 * COUNT, 400):
        kept[0].add(number * 10**12)


@program
def closures():
    def make(number):
        text = "captured %d" % number
        return lambda: (text, number)
    for number in steps():
        kept.append(make(number))


@program
def memoized():
    @functools.lru_cache(maxsize=None)
    def square(number):
        return (number, number * number, "memo %d" % number)
    for number in steps():
        square(number)
    kept.append(square)


@dataclasses.dataclass
class Point:
    x: float
    y: float
    label: str


@program
def dataclass_instances():
    for number in steps():
        kept.append(Point(number + 0.5, number - 0.5, "point %d" % number))


class Slim:
    __slots__ = ("name", "value")

    def __init__(self, number):
        self.name = "slim %d" % number
        self.value = number * 1.5


@program
def slotted():
    for number in steps():
        kept.append(Slim(number))


@program
def suspended_generators():
    def counts(start):
        text = "started at %d" % start
        yield text
        yield start
    for number in steps(COUNT // 2, 30):
        generator = counts(number)
        next(generator)
        kept.append(generator)


@program
def exceptions_with_tracebacks():
    def fails(number):
        raise ValueError("number %d" % number)
    for number in steps(COUNT // 2, 30):
        try:
            fails(number)
        except ValueError as error:
            kept.append(error)


@program
def fragments():
    """One of ten neighbours is kept."""
    for number in steps(COUNT // 10, 6):
        texts = ["neighbour %d of %d, as long as it takes" % (i, number) for i in range(100)]
        kept.extend(texts[::10])


@program
def nested_lists():
    for number in steps():
        kept.append([number * 1.5, [number * 2.5, [number * 3.5]]])


@program
def interned():
    for number in steps():
        kept.append(sys.intern("interned %d, which is a name" % number))


@program
def bytes_objects():
    for number in steps():
        kept.append(b"%0300d" % number)


@program
def lists_by_key():
    groups = collections.defaultdict(list)
    for number in steps(3 * COUNT, 100):
        groups[number % 1000].append(number * 1.25)
    kept.append(groups)


@program
def queue():
    waiting = collections.deque()
    for number in steps():
        waiting.append({"id": number, "body": "message %d" % number})
    kept.append(waiting)


@program
def parsed_json():
    line = json.dumps({"name": "a record", "tags": ["one", "two", "three"], "sizes": [1.5, 2.5, 3.5]})
    for _ in steps(COUNT // 3, 30):
        kept.append(json.loads(line))


@program
def partials():
    def add(left, right):
        return left + right
    for number in steps():
        kept.append(functools.partial(add, number * 1.5))


class Node:
    def __init__(self, number, parent):
        self.number, self.parent, self.children = number * 1.5, parent, []


@program
def tree_of_objects():
    parent = Node(0, None)
    kept.append(parent)
    for number in steps():
        child = Node(number, parent)
        parent.children.append(child)
        if len(parent.children) == 8:
            parent = parent.children[0]


@program
def resized():
    """Each grows eight times."""
    for number in steps(COUNT // 3, 30):
        values = []
        for i in range(12):
            values.append(number * 1.5 + i)
        kept.append(values)


@program
def threads():
    def fill():
        for number in steps(COUNT // 2):
            kept.append("of a thread, number %d" % number * 2)
    workers = [threading.Thread(target=fill) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def pool_bytes(size):
    """What CPython's pools or, beyond 512 bytes, glibc's malloc use for it."""
    return (size + 15) // 16 * 16 if size <= 512 else (size + 8 + 15) // 16 * 16 - 8


@functools.lru_cache(maxsize=None)
def own_line(frames):
    """Of (file, line) pairs, innermost first; None: this file is not among them."""
    return next((line for file, line in frames if file == __file__), None)


def bytes_by_line(snapshot):
    lines = collections.defaultdict(lambda: [0, 0])
    # Without an object for each frame of each block, which would take longer than the program.
    for _, size, frames, *_ in snapshot.traces._traces:
        line = own_line(frames)
        if line is not None:
            lines[line][0] += pool_bytes(size)
            lines[line][1] += pool_bytes(size) if size < LARGE_BLOCK_BYTES else 0
    return lines


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
    if tracemalloc.is_tracing():
        print(json.dumps(bytes_by_line(tracemalloc.take_snapshot())))
    else:
        from moments import take_snapshot
        take_snapshot()  # the walk at the end is skipped where less than 1 MiB has moved
