"""Four processes that map one file and read all of it, each at its own pace."""
import mmap
import os
import subprocess
import sys
import time

from truth import MIB, PAGE, pace, rollup, say

READERS, SIZE, HOLD_S = 4, 200 * MIB, 0.6
SLOWEST_S = 1.6


def make(path):
    with open(path, "wb") as file:
        for _ in range(SIZE // MIB):
            file.write(b"x" * MIB)


def read(path, seconds):
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    begun, total = time.monotonic(), 0
    for at in range(0, SIZE, PAGE):
        total += data[at]  # reads
        if at % MIB == 0:
            pace(begun, at, SIZE / seconds)
    print(total, flush=True)
    sys.stdin.read()


def main(path):
    make(path)
    readers = []
    for number in range(1, READERS + 1):
        readers.append(subprocess.Popen([sys.executable, __file__, path, str(number / READERS * SLOWEST_S)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    for reader in readers:
        reader.stdout.readline()
    time.sleep(HOLD_S / 2)
    family = [rollup(pid) for pid in (os.getpid(), *(reader.pid for reader in readers))]
    say("held", pss=sum(figures["Pss"] for figures in family), rss=sum(figures["Rss"] for figures in family))
    time.sleep(HOLD_S / 2)
    for reader in readers:
        reader.communicate()
    os.unlink(path)


if len(sys.argv) > 1:
    read(sys.argv[1], float(sys.argv[2]))
else:
    main(f"{os.environ['MOMENTS_LOG']}.data")
