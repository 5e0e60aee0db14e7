"""Programs with one kind of memory each, and their innocent neighbours: verdicts_work.py LOG FOLDER SCENARIO

What happens in the phase "work" is what counts. LOG gets what a program knows of itself.
"""
import mmap
import multiprocessing
import os
import sys

import whyrss
from fork_truth import PAGE, finish, say, start, take_snapshot

MIB = 1 << 20
FILE_BYTES = 48 * MIB
SHARED_BYTES = 32 * MIB
ARRAY_BYTES = 48 * MIB  # so that three readers of it count above the threshold of rss-double-counted
HUGE_BYTES = 2 * MIB
HUGE_PAGES = 32
WORKERS = 3
ROW = b"%0127d"      # 160 bytes in pymalloc
CACHE_ROWS = 150_000
SAW_ROWS = 120_000
LOG = FOLDER = ""


def smaps_of(path):
    """Fields of this process's mappings of a file, in bytes."""
    sums = {}
    inside = False
    with open("/proc/self/smaps", encoding="utf-8", errors="replace") as smaps:
        for line in smaps:
            words = line.split()
            if not words[0].endswith(":"):
                inside = line.rstrip("\n").endswith(path)
            elif inside and words[-1] == "kB":
                sums[words[0][:-1]] = sums.get(words[0][:-1], 0) + int(words[1]) * 1024
    return sums


def dirty_bytes(path):
    sums = smaps_of(path)
    return sums["Shared_Dirty"] + sums["Private_Dirty"]


def file_path():
    return os.path.join(FOLDER, "data.bin")


def make_file():
    with open(file_path(), "wb") as file:
        for _ in range(FILE_BYTES // MIB):
            file.write(b"x" * MIB)
        file.flush()
        os.fsync(file.fileno())


def written_file():
    make_file()
    with open(file_path(), "r+b") as file:
        data = mmap.mmap(file.fileno(), 0)  # maps file
    with whyrss.phase("work"):
        for at in range(0, FILE_BYTES, PAGE):
            data[at] = 1  # writes file
        before = dirty_bytes(file_path())
        take_snapshot()
        say(LOG, dirty=[before, dirty_bytes(file_path())])


def copied_file():
    make_file()
    with open(file_path(), "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # maps copies
    with whyrss.phase("work"):
        for at in range(0, FILE_BYTES, PAGE):
            data[at] = 1  # writes copies
        take_snapshot()


def flushed_file():
    make_file()
    with open(file_path(), "r+b") as file:
        data = mmap.mmap(file.fileno(), 0)
    with whyrss.phase("work"):
        for at in range(0, FILE_BYTES, PAGE):
            data[at] = 1
        data.flush()
        take_snapshot()
        say(LOG, dirty=[dirty_bytes(file_path())])


def in_workers(work, *arguments, count=WORKERS):
    """Runs work(*arguments, number) in forked workers; each is walked while all live."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(count)

    def run(number):
        kept = work(*arguments, number)
        barrier.wait()
        take_snapshot()
        barrier.wait()
        say(LOG, worker=os.getpid(), number=number)
        return kept
    workers = [context.Process(target=run, args=(number,)) for number in range(count)]
    start(workers)
    finish(workers)


def read_pages(data, _number):
    total = 0
    for at in range(0, len(data), PAGE):
        total += int(data[at])  # reads pages
    return total


def shared_memory():
    from multiprocessing import shared_memory as module
    with whyrss.phase("work"):
        segment = module.SharedMemory(create=True, size=SHARED_BYTES)  # maps segment
        for at in range(0, SHARED_BYTES, PAGE):
            segment.buf[at] = 1  # fills segment
        take_snapshot()
        in_workers(read_pages, segment.buf)
        say(LOG, name=segment.name)
        take_snapshot()
    segment.close()
    segment.unlink()


def shared_anonymous():
    """One worker fills what the parent mapped."""
    with whyrss.phase("work"):
        segment = mmap.mmap(-1, SHARED_BYTES)  # maps anonymous

        def fill(number):
            if number == 1:
                for at in range(0, SHARED_BYTES, PAGE):
                    segment[at] = 1  # fills anonymous
        in_workers(fill)
        take_snapshot()


def own_buffers():
    """What every worker has to itself is no shared memory, and counts once in the RSS."""
    with whyrss.phase("work"):
        in_workers(lambda number: bytearray(b"x") * ARRAY_BYTES)


def huge_area():
    size = (HUGE_PAGES + 1) * HUGE_BYTES  # of which so many whole huge pages lie in it, wherever it begins
    area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # maps huge
    area.madvise(14)  # MADV_HUGEPAGE
    return area


def huge_bytes():
    with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
        return next(int(line.split()[1]) * 1024 for line in rollup if line.startswith("AnonHugePages:"))


def write_huge(step):
    with whyrss.phase("work"):
        area = huge_area()
        for at in range(0, len(area), step):
            area[at] = 1
        take_snapshot()
        say(LOG, huge=huge_bytes())


def sparse_huge():
    write_huge(HUGE_BYTES)


def full_huge():
    write_huge(PAGE)


def sparse_small():
    with whyrss.phase("work"):
        area = mmap.mmap(-1, 4 * HUGE_PAGES * HUGE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.madvise(15)  # MADV_NOHUGEPAGE
        for at in range(0, len(area), 4 * PAGE):
            area[at] = 1
        take_snapshot()
        say(LOG, huge=huge_bytes())


def zeroed_huge():
    """Filled with zeros by the program itself."""
    with whyrss.phase("work"):
        area = huge_area()
        for at in range(0, len(area), HUGE_BYTES // 2):
            area[at:at + HUGE_BYTES // 2] = bytes(HUGE_BYTES // 2)
        take_snapshot()
        say(LOG, huge=huge_bytes())


def write_pages(data, _number):
    for at in range(0, len(data), PAGE):
        data[at] = 2  # writes copy


def copied():
    import numpy
    data = numpy.ones(ARRAY_BYTES, dtype=numpy.uint8)  # makes array
    take_snapshot()
    with whyrss.phase("work"):
        in_workers(write_pages, data)


def full_cache():
    """A cache that grows to its bound, and then changes all it holds."""
    import time
    cache = {}
    begun = time.monotonic()
    with whyrss.phase("work"):
        for number in range(5 * CACHE_ROWS):
            cache[number] = ROW % number  # caches
            if len(cache) > CACHE_ROWS:
                del cache[number - CACHE_ROWS]
            if number == CACHE_ROWS:
                filling_s = time.monotonic() - begun
            if number % (CACHE_ROWS // 2) == 0:
                take_snapshot()
        while time.monotonic() - begun < 3 * filling_s:
            time.sleep(0.1)
        take_snapshot()


def sawtooth():
    """Rows that are made and dropped, step by step; the last ones are still there at the end."""
    with whyrss.phase("work"):
        for step in range(5):
            take_snapshot()
            rows = []
            for number in range(SAW_ROWS):
                rows.append(ROW % number)  # makes rows
            take_snapshot()
            if step < 4:
                del rows


def dropped_rows():
    with whyrss.phase("work"):
        for _ in range(4):
            rows = [ROW % number for number in range(SAW_ROWS)]
            take_snapshot()
            del rows
            take_snapshot()


SCENARIOS = {work.__name__: work for work in (
    written_file, copied_file, flushed_file, shared_memory, shared_anonymous, own_buffers, sparse_huge, full_huge,
    sparse_small, zeroed_huge, copied, full_cache, sawtooth, dropped_rows)}

if __name__ == "__main__":
    LOG, FOLDER, name = sys.argv[1:]
    say(LOG, main=os.getpid())
    SCENARIOS[name]()
