"""Runs every kind of call while python_steps.cc reads the frames after each instruction.

argv: the log to write, the least number of instructions. The names say who may call whom: LEGAL.
"""
import ctypes
import sys

# Function -> names of its callers, as CPython shows them.
LEGAL = {
    "<module>": {None, "executed"},
    "work": {"<module>"},
    "leaf": {"middle"}, "middle": {"work"},
    "produce": {"consume"}, "consume": {"work"}, "delegate": {"consume"}, "delegated": {"delegate"},
    "__await__": {"awaited", "items"}, "awaited": {"awaiting"}, "awaiting": {"drive"}, "drive": {"work"},
    "items": {"each", "<listcomp>"}, "each": {"drive"},
    "by_key": {"sort"}, "sort": {"work"}, "compare": {"qsort"}, "qsort": {"work"},
    "__init__": {"make", "work", "__init__"}, "__new__": {"make", "work"}, "make": {"work"}, "__del__": {"make", "collect", "work"},
    "collect": {"work"}, "attribute": {"visit"}, "__getattr__": {"visit"}, "__eq__": {"visit"}, "__hash__": {"visit"},
    "visit": {"work"}, "raising": {"catch"}, "catch": {"work"}, "__enter__": {"manage"}, "__exit__": {"manage"},
    "manage": {"work"}, "deep": {"deep", "work"}, "executed": {"work"}, "defined": {"<module>"},
    "<lambda>": {"lambdas"}, "lambdas": {"work"},
    "<listcomp>": {"comprehend", "each"}, "<dictcomp>": {"comprehend"}, "<genexpr>": {"comprehend"}, "comprehend": {"work"},
    "closed": {"close"}, "close": {"work"},
}


def leaf(value):
    return value + 1


def middle(value):
    return leaf(value) + leaf(b := value + 1) + len([b])


def produce():
    for number in range(3):
        yield number


def delegated():
    received = yield 1
    yield received


def delegate():
    yield from delegated()


def consume():
    found = list(produce()) + list(delegate())
    unfinished = produce()
    next(unfinished)
    unfinished.close()
    return sum(produce()) + len(found)


class Pause:
    def __await__(self):
        return iter((1,))


async def awaited():
    await Pause()
    return 1


async def awaiting():
    return await awaited() + await awaited()


async def items():
    yield 1
    await Pause()
    yield 2


async def each():
    return [item async for item in items()]


def drive():
    for coroutine in (awaiting(), each()):
        try:
            while True:
                coroutine.send(None)
        except StopIteration:
            pass


def by_key(value):
    return -value


def sort():
    return sorted([3, 1, 2], key=by_key), max([1, 2], key=by_key), list(map(by_key, [1]))


def compare(left, right):
    return left[0] - right[0]


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))(compare)
LIBC = ctypes.CDLL(None)


def qsort():
    LIBC.qsort((ctypes.c_int * 3)(3, 1, 2), ctypes.c_size_t(3), ctypes.c_size_t(4), COMPARE)


class Base:
    def __init__(self):
        self.kept = [1]


class Thing(Base):
    def __new__(cls, *_):
        return super().__new__(cls)

    def __init__(self, value):
        super().__init__()
        self.value = value

    def __del__(self):
        self.value = None

    @property
    def attribute(self):
        return self.kept

    def __getattr__(self, name):
        return name

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def make():
    return Thing(1).kept, Base().kept


def collect(thing):
    del thing


THINGS = Thing(1), Thing(2)


def visit():
    return THINGS[0].attribute, THINGS[0].missing, {THINGS[0]: 1}[THINGS[1]]


def raising(depth):
    if depth:
        raise ValueError(depth)
    return depth


def catch():
    try:
        raising(1)
    except ValueError:
        raising(0)
    finally:
        raising(0)


def manage():
    with THINGS[0]:
        raise KeyError


def deep(depth):
    return deep(depth - 1) if depth else 0


CODE = compile("def defined():\n  return 1\ndefined()", "<executed>", "exec")


def executed():
    exec(CODE, {})


def lambdas():
    return (lambda: 1)(), list(filter(lambda value: value, [0, 1]))


def comprehend():
    return [leaf for leaf in range(2)], {key: 1 for key in range(2)}, sum(value for value in range(2))


def close():
    cell = 1

    def closed(*rest, more=2, **most):
        return cell, rest, more, most
    return closed(1, more=3, most=4)


def work():
    middle(1)
    consume()
    drive()
    sort()
    qsort()
    make()
    collect(Thing(3))
    visit()
    catch()
    manage()
    executed()
    lambdas()
    comprehend()
    close()
    deep(60)


if __name__ == "__main__":
    work()
    begin, over, end = LIBC.python_steps_begin, LIBC.python_steps_are_over, LIBC.python_steps_end
    if begin(int(sys.argv[2])) != 0:
        sys.exit("no single steps here")
    while not over():
        work()
    sys.exit(end(sys.argv[1].encode()))
