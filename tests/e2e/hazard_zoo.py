"""hazard_zoo.py WHAT [ARGUMENTS]: Python at the moments where taking a stack is hardest. It prints only what is the
same in every run; its large blocks have sizes of their own, and `keep` makes all of those of size KEPT. Whatever it
does makes fewer records than the shared memory holds: nothing may be lost however late the collector is.
"""
import os
import signal
import sys
import threading
import time

KEPT, TRACED, HANDLED = 0x2A000, 0x2C000, 0x2E000  # each one is recorded
FORKS, ROUNDS = 20, 60


def keep():
    return bytearray(KEPT)


def down(depth, last):
    block = keep()
    if depth > 0:
        down(depth - 1, last)
    else:
        last()
    return block


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def run_exec():
    os.execv(sys.executable, [sys.executable, "-c", "print('the next program')"])


def leave():
    os._exit(5)


def worker():
    """A forked worker that leaves in the middle."""
    if os.fork() == 0:
        down(20, leave)
    print("worker", os.wait()[1] >> 8)


def work():
    for _ in range(50):
        down(10, keep)
    print("worked")


def daemons():
    """Ends while daemon threads allocate."""
    def forever():
        while True:
            keep()
            time.sleep(0.0002)
    sys.setswitchinterval(1e-4)
    for _ in range(3):
        threading.Thread(target=forever, daemon=True).start()
    for _ in range(30):
        keep()
    print("main is done")


def traced():
    """Both kinds of trace function are active and allocate themselves."""
    calls = [0]

    def tracer(frame, event, argument):
        if frame.f_code is keep.__code__ and event in ("call", "return"):
            calls[0] += 1
            bytearray(TRACED)
        return tracer
    sys.settrace(tracer)
    work()
    sys.settrace(None)
    sys.setprofile(tracer)
    work()
    sys.setprofile(None)
    print("traced", calls[0])


def ticking(number, timer):
    """A handler that allocates, a millisecond after the last one ended, while large blocks come and go. A timer that
    repeats by itself would interrupt a handler that takes longer, again and again, up to the limit of recursion.
    """
    ticks = [0]
    done = []

    def start():
        signal.setitimer(timer, 0.001)

    def handler(*_):
        ticks[0] += 1
        bytearray(HANDLED)
        if not done:
            start()
    signal.signal(number, handler)
    start()
    rounds = 0
    while rounds < ROUNDS or ticks[0] < 50:
        down(20, keep)
        rounds += 1
    # Where a signal comes while its handler is replaced, CPython says that it was ignored, recorded or not.
    done.append(True)
    signal.setitimer(timer, 0)
    signal.signal(number, signal.SIG_IGN)
    print("ticked")


def alarms():
    ticking(signal.SIGALRM, signal.ITIMER_REAL)


def profiled():
    ticking(signal.SIGPROF, signal.ITIMER_PROF)


def trapped():
    """A program whose own SIGTRAP is a message to itself."""
    ticks = []
    signal.signal(signal.SIGTRAP, lambda *_: ticks.append(bytearray(HANDLED)))
    for _ in range(200):
        os.kill(os.getpid(), signal.SIGTRAP)
        keep()
    print("trapped", len(ticks))


def recursion():
    """To the RecursionError, on a large stack."""
    def endless(depth):
        if depth % 1000 == 0:
            keep()
        return endless(depth + 1) + 1

    def run():
        try:
            endless(1)
        except RecursionError as error:
            print(type(error).__name__)
            keep()
    threading.stack_size(512 << 20)
    sys.setrecursionlimit(int(sys.argv[2]))
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def overflow():
    """Recursion through C that the interpreter does not stop, or stops with an exception."""
    import resource
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.setrecursionlimit(1 << 30)

    class Nested:
        depth = 0

        def __repr__(self):
            self.depth += 1
            if self.depth % 100 == 1:
                keep()
            return repr(self)
    try:
        repr(Nested())
    except RecursionError as error:
        print(type(error).__name__)


def forks():
    """Forks in the middle of the allocations of other threads."""
    going = True
    sys.setswitchinterval(1e-4)

    def allocate():
        while going:
            down(5, keep)
            time.sleep(0.001)
    threads = [threading.Thread(target=allocate) for _ in range(3)]
    for thread in threads:
        thread.start()
    statuses = set()
    for _ in range(FORKS):
        child = os.fork()
        if child == 0:
            keep()
            os._exit(6)
        statuses.add(os.waitpid(child, 0)[1])
    going = False
    for thread in threads:
        thread.join()
    print("forked", statuses)


def elsewhere():
    """Python that a C library calls on stacks of its own, one inside the other."""
    import ctypes
    run_elsewhere = ctypes.PyDLL(sys.argv[2]).run_elsewhere
    callback = ctypes.PYFUNCTYPE(None)

    def inner():
        down(10, keep)

    def outer():
        run_elsewhere(callback(inner))
        keep()
    for _ in range(100):
        run_elsewhere(callback(outer))
    print("been elsewhere")


def recursing(last):
    return lambda: down(300, last)


WHAT = {"kill": recursing(kill), "exec": recursing(run_exec), "exit": recursing(leave), "worker": worker, "work": work,
        "daemons": daemons, "traced": traced, "alarms": alarms, "profiled": profiled, "trapped": trapped,
        "recursion": recursion, "overflow": overflow, "forks": forks,
        "elsewhere": elsewhere}

if __name__ == "__main__":
    sys.stdout.reconfigure(line_buffering=True)
    WHAT[sys.argv[1]]()
