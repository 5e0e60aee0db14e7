"""One task of a job: keeps rows, rank 3 four times as many, and rank 1 is killed in the end, as by a batch system."""
import os
import signal
import time

rank = int(os.environ.get("SLURM_PROCID") or os.environ.get("OMPI_COMM_WORLD_RANK") or 0)
rows = []


def load(count):
    for _ in range(count):
        rows.append(bytearray(b"x") * (1 << 20))
        time.sleep(0.01)


time.sleep(1)  # until the others of its node are there
load(80 if rank == 3 else 20)
time.sleep(2)
if rank == 1 and "SLURM_PROCID" in os.environ:
    os.kill(os.getpid(), signal.SIGKILL)
