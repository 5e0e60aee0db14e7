"""Four workers that inherit 200 MiB, take 100 MiB of small objects, free it and end at once."""
import multiprocessing
import time

from truth import MIB, high_water, say

WORKERS, BASE, TAKEN, WORK_S = 4, 200 * MIB, 100 * MIB, 0.4
OBJECT, HEADER = 448, 33  # of a bytes object
base = [b"x" * MIB for _ in range(BASE // MIB)]


def work():
    taken = [b"%d" % number + b"x" * (OBJECT - HEADER - 7) for number in range(10**6, 10**6 + TAKEN // OBJECT)]  # takes
    time.sleep(WORK_S)
    taken.clear()
    say("worker", high_water=high_water())


def main():
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work) for _ in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


main()
