"""What scripts do all day: JSON to and from text, dictionaries, sorting, joining of strings.
    python_mixed.py ROUNDS
"""
import json
import random
import sys


def documents(seed):
    random.seed(seed)
    return [{"id": i, "name": f"user {i}", "tags": [f"t{random.randrange(50)}" for _ in range(5)],
             "score": random.random(), "address": {"street": f"{i} Main Street", "zip": 10000 + i % 90000}}
            for i in range(2000)]


def work(text):
    records = json.loads(text)
    by_tag = {}
    for record in records:
        for tag in record["tags"]:
            by_tag.setdefault(tag, []).append(record["id"])
    ranked = sorted(records, key=lambda record: (-record["score"], record["name"]))
    lines = ["%s %.3f" % (record["name"], record["score"]) for record in ranked]
    return len("\n".join(lines)) + len(by_tag) + len(json.dumps(ranked[:500]))


source = json.dumps(documents(1))
assert sum(work(source) for _ in range(int(sys.argv[1]))) > 0
