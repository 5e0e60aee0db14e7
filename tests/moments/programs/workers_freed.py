"""Two workers that inherit 200 MiB, take 100 MiB, free it and end at once."""
import multiprocessing
import time

from truth import BLOCK, FILL, MIB, high_water, say

BASE, TAKEN, WORK_S = 200 * MIB, 100 * MIB, 0.4
base = [b"x" * MIB for _ in range(BASE // MIB)]


def work():
    taken = [bytearray(FILL) for _ in range(TAKEN // BLOCK)]  # takes
    time.sleep(WORK_S)
    taken.clear()
    say("worker", high_water=high_water())


def main():
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


main()
