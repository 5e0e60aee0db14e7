"""dask.distributed with two worker processes, which keep the results of a function of this script."""
import numpy
from dask.distributed import Client, LocalCluster

from truth import say

TASKS, TASK_MIB = 8, 16


def table(number):
    return numpy.full(TASK_MIB << 17, float(number))  # makes


def main():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster) as client:
        tables = client.map(table, range(TASKS))
        print("sum %.0f" % sum(client.gather(client.map(lambda one: float(one[0]), tables))))
        say("kept", TASKS * TASK_MIB << 20)
        client.run(lambda: None)


if __name__ == "__main__":
    main()
