"""What the benchmarks share: CPU time of whole process trees, builds of small programs, and the machine they ran on."""
import collections
import ctypes
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/bench/programs"
WHYRSS = ROOT / "build/release/bin/whyrss"
PR_SET_CHILD_SUBREAPER = 36

Cpu = collections.namedtuple("Cpu", "own_s others_s")  # of a command with the children it waited for; of what it left


def fail(message):
    sys.exit(f"{sys.argv[0]}: {message}")


def machine():
    model = next((line.partition(":")[2].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                  if line.startswith("model name")), platform.machine())
    return (f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, glibc {platform.libc_ver()[1]}, "
            f"Python {platform.python_version()}")


def tool_version(name):
    """The first line of `name --version`, None where it is not installed."""
    if shutil.which(name) is None:
        return None
    return subprocess.run([name, "--version"], capture_output=True, text=True, check=True).stdout.strip()


def become_subreaper():
    """What a command leaves behind becomes a child of this process, which cpu_seconds waits for."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def temporary_folder():
    """In memory where that can be: what a new file costs depends on the disk, and on what was removed from it before."""
    return tempfile.TemporaryDirectory(prefix="whyrss-bench-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def compile_program(compiler, source, folder, *flags):
    built = folder / source.stem
    subprocess.run([compiler, "-O2", "-fno-builtin-malloc", "-o", built, source, *flags], check=True)
    return str(built)


def cpu_seconds(command, environment, output=None, errors=None):
    """CPU time of the command with the children that it waited for; and of what it left behind, the collector.

    What is left behind becomes a child of this process, a subreaper, and is waited for: it costs the next run nothing.
    Standard output and error go to files where their paths are given.
    """
    files = [(os.POSIX_SPAWN_OPEN, number, path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
             for number, path in ((1, output), (2, errors)) if path is not None]
    pid = os.posix_spawnp(command[0], command, environment, file_actions=files)
    own = others = 0
    while True:
        try:
            ended, status, usage = os.wait3(0)
        except ChildProcessError:
            return Cpu(own, others)
        seconds = usage.ru_utime + usage.ru_stime
        if ended != pid:
            others += seconds
            continue
        own = seconds
        if status != 0:
            error_text = pathlib.Path(errors).read_text(errors="replace") if errors is not None else ""
            fail(f"{' '.join(map(str, command))} ended with status {status}\n{error_text}")
