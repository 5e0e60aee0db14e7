"""Workers that import what they need: imports.py METHOD MODULE; METHOD is spawn, forkserver or preload."""
import importlib
import multiprocessing
import os
import sys

from moments import take_snapshot
from workers import run

WORKERS = 3


def work(module, gate):
    importlib.import_module(module)  # imports
    take_snapshot()
    gate.wait()  # all have it


def main():
    method, module = sys.argv[1:]
    context = multiprocessing.get_context("forkserver" if method == "preload" else method)
    if method == "preload":
        # A forkserver does not search the folder of this script, and says nothing of what it could not import.
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.path.dirname(__file__), os.environ.get("PYTHONPATH")]))
        context.set_forkserver_preload([module])
    gate = context.Barrier(WORKERS)
    workers = [context.Process(target=work, args=(module, gate)) for _ in range(WORKERS)]
    run(workers)


if __name__ == "__main__":
    main()
