"""DataLoader workers prefetch tensors faster than they are taken: shared memory fills a memory limit."""
import glob
import threading
import time

import torch
from torch.utils import data

from truth import say

BATCH_MIB = 8


def shmem_of_group():
    """What the kernel counts as shmem of this process's memory cgroup, v1 or v2; 0 where it cannot be read."""
    for line in open("/proc/self/cgroup", encoding="ascii"):
        _, controllers, path = line.strip().split(":", 2)
        for root in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup"):
            if controllers not in ("", "memory"):
                continue
            for stat in glob.glob(root + path + "/memory.stat"):
                return next(int(row.split()[1]) for row in open(stat, encoding="ascii") if row.startswith("shmem "))
    return 0


def report():
    while True:
        say("shared", shmem_of_group())
        time.sleep(0.02)


class Batches(data.Dataset):
    def __len__(self):
        return 200

    def __getitem__(self, index):
        return torch.full((BATCH_MIB << 18,), float(index))  # makes


def main():
    threading.Thread(target=report, daemon=True).start()
    loader = data.DataLoader(Batches(), batch_size=None, num_workers=2, prefetch_factor=60, multiprocessing_context="fork")
    for batch in loader:
        time.sleep(0.5)
    return batch


if __name__ == "__main__":
    main()
