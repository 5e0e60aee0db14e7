"""Starts tasks as Airflow's LocalExecutor does: a forked worker runs each by a shell, in a session of its own."""
import multiprocessing
import subprocess
import sys


def run_task(name):
    done = subprocess.run(["bash", "-c", f"{sys.executable} transform.py {name}"], start_new_session=True, check=False)
    return f"task {name}: exit status {done.returncode}"


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print("\n".join(pool.map(run_task, ["extract", "transform", "load"])))
