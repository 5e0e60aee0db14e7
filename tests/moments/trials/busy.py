"""Processes that use a core each, beside what is measured."""
import contextlib
import subprocess
import sys


@contextlib.contextmanager
def busy(count):
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
