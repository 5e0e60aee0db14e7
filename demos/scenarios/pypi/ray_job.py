"""Arrays in Ray's object store, and an actor that keeps what it made."""
import os

import numpy
import ray

from truth import say

ARRAYS, ARRAY_MIB = 4, 32
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"


@ray.remote
class Arrays:
    def __init__(self):
        self.kept = []

    def keep(self, mib):
        self.kept.append(numpy.ones(mib << 17))  # keeps
        return len(self.kept)


def main():
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=512 << 20, logging_level="error")
    actor = Arrays.remote()
    print("kept %d" % ray.get([actor.keep.remote(24) for _ in range(4)])[-1])
    say("kept", 4 * 24 << 20)
    stored = [ray.put(numpy.ones(ARRAY_MIB << 17)) for _ in range(ARRAYS)]  # stores
    print("sum %.0f" % sum(float(ray.get(one)[0]) for one in stored))
    say("stored", ARRAYS * ARRAY_MIB << 20)
    ray.shutdown()


if __name__ == "__main__":
    main()
