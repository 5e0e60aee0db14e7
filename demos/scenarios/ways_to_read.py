"""Forked workers that only read a list of records, each in another way: which of them copy it?"""
import json
import multiprocessing
import pickle

from moments import take_snapshot
from workers import run

RECORDS = 25_000
FLOATS = 24
FLOAT_BYTES = 32  # in CPython's small blocks


def build():
    keys = ["key %d" % at for at in range(FLOATS)]
    return [dict(zip(keys, [number + at / FLOATS for at in range(FLOATS)])) for number in range(RECORDS)]  # builds


def by_index(records):
    return sum(len(records[index]) for index in range(len(records)))  # indexes


def by_pickle(records):
    return sum(len(pickle.dumps(record, protocol=4)) for record in records)  # pickles


def by_json(records):
    return sum(len(json.dumps(record)) for record in records)  # encodes


def by_walk(records):
    return sum(value for record in records for value in record.values())  # walks


WAYS = [by_index, by_pickle, by_json, by_walk]


def work(way, records):
    way(records)
    take_snapshot()


def main():
    records = build()
    print("floats: %d bytes" % (RECORDS * FLOATS * FLOAT_BYTES))
    context = multiprocessing.get_context("fork")
    for way in WAYS:
        worker = context.Process(target=work, args=(way, records))
        run([worker])
    return records


if __name__ == "__main__":
    held = main()  # to the end
