#!/usr/bin/env python3
"""A torch DataLoader with four workers over a data set that is a list of Python objects.

What whyrss must say: each worker copied nearly all of the list by reading it (fork COW by reference counts), the list
was made in load(), and the reading line is in __getitem__. Wants Debian's python3-torch (demos/setup --torch).
"""
import sys

try:
    import torch
    from torch.utils import data
except ImportError:
    sys.exit("torch is missing: demos/setup --torch installs Debian's, for /usr/bin/python3")

RECORDS = 120_000  # of about 550 bytes each
WORKERS = 4
EPOCHS = 2


def load():
    records = []
    for number in range(RECORDS):
        records.append({
            "image": "images/train/%012d.jpg" % number,
            "caption": "number %d of the pictures: " % number + "a cat sits on a mat and looks at the camera, " * 2,
            "box": [number + 0.25, number + 0.5, number + 64.25, number + 48.5],
        })
    return records


class Captions(data.Dataset):
    def __init__(self):
        self.records = load()

    def __len__(self):
        return len(self.records)

    def __getitem__(self, index):
        record = self.records[index]
        return len(record["image"]), len(record["caption"]), torch.tensor(record["box"])


def main():
    loader = data.DataLoader(Captions(), batch_size=500, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    words = 0
    for epoch in range(EPOCHS):
        for _, captions, _ in loader:
            words += int(captions.sum())
        print("epoch %d: %d characters of captions so far" % (epoch + 1, words))


if __name__ == "__main__":
    main()
