"""train.py MIB: keeps so much, a MiB at a time, and says so."""
import sys
import time

batches = []


def load_batch():
    batches.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.004)


while len(batches) < int(sys.argv[1]):
    load_batch()
print(f"{len(batches)} batches", flush=True)
