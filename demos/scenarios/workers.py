"""Starting worker processes, and waiting for all of them."""
import sys


def start(workers):
    for worker in workers:
        worker.start()


def finish(workers):
    """Waits for all; ends the program with an error if one of them failed."""
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        sys.exit("a worker failed")


def run(workers):
    start(workers)
    finish(workers)
