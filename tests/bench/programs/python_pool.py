"""Four worker processes that get their tasks pickled, make objects, and send a result back.
    python_pool.py TASKS
"""
import multiprocessing
import sys


def work(numbers):
    counts = {}
    for number in numbers:
        key = "k%d" % (number * 7919 % 503)
        counts.setdefault(key, []).append((number, float(number)))
    return {key: len(values) for key, values in counts.items()}


if __name__ == "__main__":
    tasks = (list(range(i, i + 2000)) for i in range(int(sys.argv[1])))
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert sum(len(result) for result in pool.imap_unordered(work, tasks, chunksize=8)) > 0
