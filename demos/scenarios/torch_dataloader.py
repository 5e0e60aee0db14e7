"""A torch DataLoader with four workers over captions in a list of Python objects: torch_dataloader.py"""
import torch
from torch.utils import data

import loader
from moments import phase, take_snapshot

WORKERS = 4


class Captions(data.Dataset):
    def __init__(self):
        self.records = loader.load()
        print("written by reading: %d bytes" % loader.object_bytes(self.records)[1])

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = self.records[index]
        return loader.measure(record), torch.tensor(record["box"])  # indexes


def main():
    captions = Captions()
    batches = data.DataLoader(captions, batch_size=loader.BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True,
                              multiprocessing_context="fork")
    total = 0
    for epoch in range(loader.EPOCHS):
        with phase("epoch %d" % (epoch + 1)):
            take_snapshot()
            for sizes, _ in batches:
                total += int(sizes.sum())
            take_snapshot()
    print("read %d" % total)
    return captions


if __name__ == "__main__":
    held = main()
