"""transform.py NAME: one task; `transform` forks a supervised child, as Airflow's task runner does, that keeps its rows."""
import os
import sys


def keep_rows():
    return [bytes(1000) for _ in range(100_000)]


if sys.argv[1] != "transform":
    sys.exit(0)
pid = os.fork()
if pid == 0:
    rows = keep_rows()
    os._exit(3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
