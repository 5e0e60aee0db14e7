"""Objects, threads, fork, spawn, programs, signals, deep recursion."""
import ctypes
import gc
import mmap
import multiprocessing
import os
import signal
import subprocess
import sys
import threading


def churn(seed):
    kept = {}
    for i in range(100_000):
        kept[(i * 31 + seed) % 5000] = [i, str(i)]
    return sum(len(value[1]) for value in kept.values())


def deep(n):
    return deep(n + 1)


def main():
    print(churn(0))
    results = [0] * 4
    threads = [threading.Thread(target=lambda n=n: results.__setitem__(n, churn(n))) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(results)
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(churn, range(2)))
    print(subprocess.run([os.environ["PROBE"]], check=False).returncode)
    print(subprocess.run("echo shell; exit 3", shell=True, capture_output=True, check=False))
    sys.stdout.flush()
    signal.signal(signal.SIGUSR1, lambda *_: print("signal"))
    os.kill(os.getpid(), signal.SIGUSR1)
    try:
        deep(0)
    except RecursionError:
        print("deep")
    with mmap.mmap(-1, 1 << 20) as area:
        area[5] = 7
        print(len(area))
    ctypes.CDLL(None).malloc_trim(0)
    gc.collect()
    sys.exit(4)


if __name__ == "__main__":
    main()
