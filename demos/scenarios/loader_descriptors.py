"""Keeps the numbers of each batch of a DataLoader with a worker: loader_descriptors.py keep|copy  (PyTorch)"""
import sys

import torch
import whyrss
from torch.utils.data import DataLoader, Dataset

BATCHES = 150
NUMBERS = 32768  # 256 KiB a batch


class Numbers(Dataset):
    def __len__(self):
        return BATCHES

    def __getitem__(self, index):
        return torch.full((NUMBERS,), index, dtype=torch.int64)


def main():
    kept, total = [], 0
    for batch in DataLoader(Numbers(), batch_size=None, num_workers=1, multiprocessing_context="fork"):  # loads
        numbers = batch.numpy()
        total += int(numbers.sum())  # reads
        kept.append(numbers[:4].copy() if sys.argv[1] == "copy" else numbers[:4])
    return kept


if __name__ == "__main__":
    held = main()
    whyrss.snapshot()
    print("kept %d pieces" % len(held))
