"""Allocates large memory in every kind of Python frame and says where each time: one JSON line
[pid, size, [[file, function, line], ...]] per event, innermost first, into the file argv[1].

Runs on 3.8 and later. A line that allocates calls here() too, so that both have the same line.
"""
import contextlib
import ctypes
import functools
import gc
import json
import mmap
import os
import re
import sys
import threading
import time
import traceback

LOG = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
STEP, FIRST = 4096, 1 << 20
count = 0
lock = threading.Lock()
current = threading.local()


def size():
    """A size no other event of this process has; remembered for here()."""
    global count
    with lock:
        count += 1
        current.size = FIRST + count * STEP
    return current.size


def here():
    """The stack of the caller, as traceback tells it."""
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._getframe(1)), lookup_lines=False)
    line = [os.getpid(), current.size, [[frame.filename, frame.name, frame.lineno] for frame in frames]]
    os.write(LOG, (json.dumps(line) + "\n").encode())


def heap():
    return bytearray(size()), here()


def mapped():
    return mmap.mmap(-1, size()), here()


def nested(depth):
    if depth:
        return nested(depth - 1)
    return heap(), mapped(), (bytearray(size()), here())


def generator():
    yield bytearray(size()), here()
    yield heap()
    yield from inner_generator()


def inner_generator():
    for _ in range(3):
        yield mmap.mmap(-1, size()), here()


def comprehensions():
    a = [(bytearray(size()), here()) for _ in range(2)]
    b = {i: (bytearray(size()), here()) for i in range(2)}
    c = {bool((bytearray(size()), here())) for _ in range(2)}
    d = sum(bool((bytearray(size()), here())) for _ in range(3))
    e = [[heap() for _ in range(2)] for _ in range(2)]
    return a, b, c, d, e


def key(value):
    bytearray(size()), here()
    return -value


def callbacks():
    sorted(range(4), key=key)
    sorted(range(3), key=lambda value: (bool(heap()), value))
    max(range(3), key=key)
    list(map(key, range(3)))
    functools.reduce(lambda left, right: key(left) + right, range(4))
    functools.partial(key, 3)()
    re.sub("a", lambda match: str(key(1)), "banana")


COMPARE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))


def from_c():
    values = (ctypes.c_int * 4)(3, 1, 2, 0)
    compare = COMPARE(lambda left, right: (key(0), left[0] - right[0])[1])
    ctypes.CDLL(None).qsort(values, ctypes.c_size_t(4), ctypes.c_size_t(4), compare)


class Meta(type):
    def __call__(cls, *arguments):
        heap()
        return super().__call__(*arguments)


class Base:
    def __init__(self):
        self.kept = bytearray(size()), here()


class Thing(Base, metaclass=Meta):
    made = bytearray(size()), here()

    def __new__(cls, *arguments):
        mapped()
        return super().__new__(cls)

    def __init__(self, value):
        super().__init__()
        self.value = (mmap.mmap(-1, size()), here()), value

    @property
    def attribute(self):
        return bytearray(size()), here()

    def __getattr__(self, name):
        return bytearray(size()), here()

    def __getitem__(self, index):
        return bytearray(size()), here()

    def __eq__(self, other):
        bytearray(size()), here()
        return True

    def __hash__(self):
        bytearray(size()), here()
        return 1

    def __enter__(self):
        bytearray(size()), here()

    def __exit__(self, *error):
        bytearray(size()), here()

    def __del__(self):
        bytearray(size()), here()


def methods():
    thing = Thing(1)
    _ = thing.attribute, thing.missing, thing[1], {thing: 1}[Thing(2)]
    with thing:
        heap()
    del thing, _
    cycle = [Thing(3)]
    cycle.append(cycle)
    del cycle
    gc.collect()


def closures():
    cell = 3

    def inner(a, *rest, b=cell, **more):
        nonlocal cell
        cell = bytearray(size()), here()

        def innermost():
            return cell, bytearray(size()), here(), a, b, rest, more
        return innermost()
    return inner(1, 2, c=4), (lambda: (bytearray(size()), here()))()


@contextlib.contextmanager
def managed():
    bytearray(size()), here()
    try:
        yield
    finally:
        bytearray(size()), here()


def exceptions():
    try:
        with managed():
            raise ValueError((bytearray(size()), here()))
    except ValueError:
        heap()
        try:
            raise KeyError from None
        except KeyError:
            bytearray(size()), here()
    finally:
        mapped()


def multi_line():
    return [
        1,
        (bytearray(size()), here()),
        nested(
            2
        ),
        [
            (bytearray(size()), here()),
        ],
    ]


async def coroutine(depth):
    if depth:
        return await coroutine(depth - 1)
    return bytearray(size()), here()


async def asynchronous():
    async def items():
        for _ in range(2):
            await coroutine(1)
            yield bytearray(size()), here()
    await coroutine(2)
    return [item async for item in items()]


def drive(coro):
    try:
        while True:
            coro.send(None)
    except StopIteration:
        pass


def executed():
    space = {"heap": heap, "size": size, "here": here}
    exec(compile("\n" * 70000 + "def größe():\n\n  return bytearray(size()), here()\ngröße()", "<läuft>", "exec"), space)
    exec(compile("\n" * 3 + "def 大きさ():\n  return heap(), (bytearray(size()), here())\n\n\n大きさ()", "文件.py", "exec"), space)
    exec(compile("(lambda: (bytearray(size()), here()))()", "<😀>", "exec"), space)
    eval(compile("[heap(),\n\n (bytearray(size()), here())]", "a" * 700, "eval"), space)
    # Shorter and longer jumps of lines than one table entry holds, downwards too.
    lines = ["def far():", "  x = (", *[""] * 400, "    1,", *[""] * 130, "    bytearray(size()), here())",
             *["  y = 1"] * 300, "  return x, bytearray(size()), here()", "far()"]
    exec(compile("\n".join(lines), "<far>", "exec"), space)


def short_lived_code():
    """Code objects that come and go, so that their addresses are used again."""
    for number in range(300):
        lines = "\n" * (number % 7)
        space = {"size": size, "here": here}
        exec(compile(f"{lines}def f{number}():\n  bytearray(size()), here()\nf{number}()", f"<{number}>", "exec"), space)
        del space
        if number % 50 == 0:
            gc.collect()


def threads():
    def run(depth):
        for _ in range(5):
            nested(depth)
            drive(coroutine(2))
    workers = [threading.Thread(target=run, args=(depth,)) for depth in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


SUBINTERPRETER = r"""
import json, os, sys, traceback
def size():
    global current
    current = {first} + {step} * (size.count + 1)
    size.count += 1
    return current
size.count = 0
def here():
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._getframe(1)), lookup_lines=False)
    line = [os.getpid(), current, [[frame.filename, frame.name, frame.lineno] for frame in frames]]
    os.write({log}, (json.dumps(line) + "\n").encode())
def inside():
    return bytearray(size()), here()
inside()
[(inside(), (bytearray(size()), here())) for _ in range(2)]
"""


def subinterpreter():
    for name in ("_interpreters", "_xxsubinterpreters"):
        with contextlib.suppress(ImportError):
            module = __import__(name)
            break
    else:
        return
    script = SUBINTERPRETER.replace("{first}", str(64 << 20)).replace("{step}", str(STEP)).replace("{log}", str(LOG))
    interpreter = module.create()
    module.run_string(interpreter, script)
    module.destroy(interpreter)


def forked():
    # A joined thread may still be leaving; CPython 3.12 and later would warn about it.
    while len(os.listdir("/proc/self/task")) > 1:
        time.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        nested(3)
        threads()
        executed()
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0
    heap()


def everything():
    nested(0)
    nested(120)
    list(generator())
    comprehensions()
    callbacks()
    from_c()
    methods()
    closures()
    exceptions()
    multi_line()
    drive(asynchronous())
    executed()
    short_lived_code()
    threads()
    subinterpreter()
    forked()
    nested(600)  # deeper than a stack is stored


objects = [[number] for number in range(300_000)]  # several arenas
everything()
