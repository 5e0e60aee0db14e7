"""COUNT children one after the other, forked and started anew in turn, which allocate and keep some of it."""
import os
import subprocess
import sys

JOB = "import argparse, json, unittest\nkept = [(str(number), [number]) for number in range(30_000)]"


def work():
    kept = [(str(number), [number]) for number in range(20_000)]
    table = {}
    for number in range(5_000):
        table[f"k{number % 997}"] = list(range(number % 20))
    return len(kept)


def main():
    inherited = [str(number) for number in range(50_000)]
    for number in range(int(sys.argv[1])):
        if number % 2:
            subprocess.run([sys.executable, "-c", JOB], check=True)
            continue
        child = os.fork()
        if child == 0:
            os._exit(work() == 0)
        os.waitpid(child, 0)
    return len(inherited)


main()
