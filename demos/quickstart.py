#!/usr/bin/env python3
"""Reads a 512 MiB text file through mmap, keeps every sixth line, lets two forked workers read them.

What whyrss must say: the file's 512 MiB are page cache, about 123 MiB are live Python objects made in
load(), and each worker copied most of them merely by reading (fork COW by reference counts).
"""
import mmap
import multiprocessing
import os
import sys
import tempfile

FILE_MIB = int(os.environ.get("QUICKSTART_MIB", "512"))
LINES_PER_MIB = 8192  # of 128 bytes each
KEEP_EVERY = 6


def make_file(path):
    block = b"".join(b"%07d %s\n" % (number, b"lorem ipsum " * 9 + b"dolor sit a") for number in range(LINES_PER_MIB))
    with open(path, "wb") as file:
        for _ in range(FILE_MIB):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())  # clean pages: the kernel may drop them at any time


def load(path):
    with open(path, "rb") as file:
        text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    kept = []
    number = 0
    while True:
        line = text.readline()
        if not line:
            return text, kept
        if number % KEEP_EVERY == 0:
            kept.append(line)
        number += 1


def count(lines, word):
    found = 0
    for line in lines:  # each step raises a reference count, and so writes to the page of the line
        found += line.count(word)
    return found


def work(lines, barrier):
    words = b"lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut labore et dolore"
    for word in words.split():
        count(lines, word)
    barrier.wait()  # both hold their copies at the same time


def main():
    # /var/tmp, because a file in a tmpfs would be memory for good and not page cache.
    base = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="whyrss-quickstart-", dir=base) as folder:
        path = os.path.join(folder, "big.txt")
        make_file(path)
        text, lines = load(path)
        print("%d lines kept of %d MiB" % (len(lines), len(text) >> 20))
        context = multiprocessing.get_context("fork")
        barrier = context.Barrier(2)
        workers = [context.Process(target=work, args=(lines, barrier)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        if any(worker.exitcode for worker in workers):
            sys.exit("a worker failed")
        return text, lines


if __name__ == "__main__":
    try:
        held = main()  # the file and the lines, to the end, like a job that goes on
    except KeyboardInterrupt:
        sys.exit("stopped; the temporary file is removed")
