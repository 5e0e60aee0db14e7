"""Memory cgroups for tests: where they may be made, and what lives in one."""
import contextlib
import os
import pathlib
import signal
import time

from conftest import PATIENCE_S

MOUNT = pathlib.Path("/sys/fs/cgroup")


def group_of(pid):
    """(version, directory) of a process's memory cgroup."""
    unified = None
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return 1, MOUNT / "memory" / path.lstrip("/")
        if number == "0":
            unified = MOUNT / path.lstrip("/")
    return 2, unified


def made_by_record(record_pid):
    """The groups that this `whyrss record` has made and that are still there, wherever they may be."""
    return [path for path in MOUNT.rglob(f"whyrss-{record_pid}-*") if path.is_dir()]


def members(group):
    try:
        return [int(pid) for pid in (group / "cgroup.procs").read_text().split()]
    except OSError:  # it is gone
        return []


def kill_all(group):
    """SIGKILL to every process of the group without a pause, as the kernel does for memory.oom.group; until it is empty."""
    deadline = time.monotonic() + PATIENCE_S
    while members(group) and time.monotonic() < deadline:
        for pid in members(group):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    assert not members(group)


def remove(group):
    try:
        group.rmdir()
    except OSError:  # the last process is still leaving
        return False
    return True


def enter(group):
    """For subprocess's preexec_fn: the child and all that it starts run in the group."""
    def move():
        (group / "cgroup.procs").write_text(str(os.getpid()))
    return move
