"""A training job reads its samples from a memory-mapped database in worker processes, epoch by epoch.

key_value.py lmdb persistent     each worker opens the database once
key_value.py lmdb fresh          new workers in each epoch
key_value.py lmdb reopening      each worker closes and opens the database again after every 128 records
key_value.py sqlite persistent   the same with SQLite and its mmap_size
"""
import multiprocessing
import os
import sqlite3
import sys

from moments import phase, take_snapshot

MIB = 1 << 20
VALUE_BYTES = 1 << 16
RECORDS = 128 * MIB // VALUE_BYTES
WORKERS, EPOCHS = 4, 4
REOPEN_AFTER = 128
SNAPSHOT = -1
PATH = os.path.join(os.environ.get("DEMO_DIR", "/var/tmp"), "frames.db")


def value(number):
    return b"%0*d" % (VALUE_BYTES - 64, number)


class Lmdb:
    @staticmethod
    def build():
        import lmdb
        with lmdb.open(PATH, map_size=512 * MIB, subdir=False) as environment:
            for first in range(0, RECORDS, 64):
                with environment.begin(write=True) as transaction:
                    for number in range(first, first + 64):
                        transaction.put(b"%08d" % number, value(number))

    def __init__(self):
        import lmdb
        self.environment = lmdb.open(PATH, subdir=False, readonly=True, lock=False, map_size=512 * MIB)  # opens

    def get(self, number):
        with self.environment.begin() as transaction:
            return transaction.get(b"%08d" % number)  # gets

    def close(self):
        self.environment.close()


class Sqlite:
    @staticmethod
    def build():
        with sqlite3.connect(PATH) as connection:
            connection.execute("PRAGMA journal_mode=OFF")
            connection.execute("CREATE TABLE samples (number INTEGER PRIMARY KEY, content BLOB)")
            connection.executemany("INSERT INTO samples VALUES (?, ?)", ((n, value(n)) for n in range(RECORDS)))
        connection.close()

    def __init__(self):
        self.connection = sqlite3.connect(PATH)
        self.connection.execute("PRAGMA mmap_size=%d" % (512 * MIB))

    def get(self, number):
        return self.connection.execute("SELECT content FROM samples WHERE number = ?", (number,)).fetchone()[0]  # selects

    def close(self):
        self.connection.close()


def read_part(kind, database, part, reopening):
    """Every fourth group of eight records, another one in each epoch; the database, which may be another one."""
    numbers = [number for number in range(RECORDS) if (number // 8 + part) % EPOCHS == 0]
    for count, number in enumerate(numbers, 1):
        assert database.get(number) == value(number)
        if reopening and count % REOPEN_AFTER == 0:
            database.close()
            database = kind()
    return database


def work(kind, number, reopening, asked, answers):
    """A worker: reads a part of the database for each epoch that it is sent, and takes a snapshot for SNAPSHOT."""
    global held  # still open when the worker ends
    held = kind()
    for epoch in iter(asked.get, None):
        if epoch == SNAPSHOT:
            take_snapshot()
        else:
            held = read_part(kind, held, number + epoch, reopening)
        answers.put(number)


def start_workers(context, kind, reopening):
    answers = context.Queue()
    workers = []
    for number in range(WORKERS):
        asked = context.SimpleQueue()
        process = context.Process(target=work, args=(kind, number, reopening, asked, answers))
        process.start()
        workers.append((process, asked))
    return workers, answers


def tell_all(workers, answers, what):
    for _, asked in workers:
        asked.put(what)
    for _ in workers:
        answers.get()


def end_workers(workers):
    for process, asked in workers:
        asked.put(None)
        process.join()
        assert process.exitcode == 0


def main():
    kind, way = {"lmdb": Lmdb, "sqlite": Sqlite}[sys.argv[1]], sys.argv[2]
    kind.build()
    context = multiprocessing.get_context("fork")
    workers = None
    for epoch in range(EPOCHS):
        if workers is None:
            workers, answers = start_workers(context, kind, way == "reopening")
        with phase("epoch %d" % epoch):
            tell_all(workers, answers, epoch)
            tell_all(workers, answers, SNAPSHOT)
        print("epoch %d read by %d workers" % (epoch, len(workers)), flush=True)
        if way == "fresh":
            end_workers(workers)
            workers = None
    if workers is not None:
        end_workers(workers)


if __name__ == "__main__":
    main()
