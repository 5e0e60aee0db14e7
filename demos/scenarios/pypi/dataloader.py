"""A DataLoader with two workers: dataloader.py list | numpy | spawn. Each worker reads all of the data twice."""
# ruff: noqa: E402
import sys

from truth import anonymous_bytes, private_bytes, say

before = anonymous_bytes()
import torch  # imports torch
from torch.utils import data

say("imported", anonymous_bytes() - before)
import numpy

WORKERS = 2


class Rows(data.Dataset):
    """Rows of a list of Python objects, or of one array."""

    def __init__(self, storage):
        if storage == "numpy":
            self.rows = numpy.ones((20_000, 2048), numpy.float32)  # builds the array
        else:
            self.rows = [("row %d" % i, [float(i)] * 4) for i in range(400_000)]  # builds the list
        self.first = None

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        if self.first is None:
            self.first = private_bytes()
        row = self.rows[index]  # reads
        value = sum(row[1]) + len(row[0]) if isinstance(row, tuple) else float(row[0])
        if index == len(self.rows) - 1 or index == len(self.rows) - 2:
            say("private since the first row", private_bytes() - self.first)
        return value


def main():
    rows = Rows(sys.argv[1])
    if sys.argv[1] == "numpy":
        say("array", rows.rows.nbytes)
    loader = data.DataLoader(rows, batch_size=500, num_workers=WORKERS, persistent_workers=True,
                             multiprocessing_context="spawn" if sys.argv[1] == "spawn" else "fork")
    total = 0.0
    for _ in range(2):
        for batch in loader:
            total += float(batch.sum())
    print("total %.0f" % total, torch.get_num_threads() > 0)
    return rows


if __name__ == "__main__":
    kept = main()
