"""An allocation-heavy job: objects with attributes, lists, dictionaries, strings and larger buffers, all short-lived.
    python_objects.py [BATCHES]
"""
import sys


class Record:
    def __init__(self, number):
        self.number = number
        self.name = "record %d" % number
        self.tags = [number % 7, number % 11, str(number % 13)]
        self.fields = {"a": number, "b": float(number), "c": (number, number + 1)}


def batch(seed):
    records = [Record(seed * 1000 + i) for i in range(2000)]
    texts = [record.name * 60 for record in records]  # 600 bytes and more: malloc's, not pymalloc's
    by_tag = {}
    for record in records:
        by_tag.setdefault(record.tags[0], []).append(record)
    return sum(len(text) for text in texts) + len(by_tag)


assert sum(batch(seed) for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 120)) > 0
