"""Cgroups for one run. One counts the CPU time of all that was in it, also of orphans and of children that were never
waited for; one bounds its memory, so that a host that takes all it can get harms itself only.

Version 2 or version 1, whichever may be made here. Without any, the CPU time is that of the children that were waited
for, and memory has no bound.
"""
import os
import pathlib

NAME = f"whyrss-hosts.{os.getpid()}"


class Group:
    def __init__(self, folder, read_seconds=None):
        self.folder = folder
        self.cpu_seconds = read_seconds

    def join(self):
        """Between fork and exec: the calling process and all that it will start."""
        (self.folder / "cgroup.procs").write_text("0")

    def remove(self):
        try:
            self.folder.rmdir()
        except OSError:
            pass  # the kernel still counts a process that has just ended; the next run takes it again


def mounts():
    """(file system type, mount point, controllers) of all cgroup mounts."""
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            yield kind, pathlib.Path(where), options.split(",")


def own_group(controller):
    """The path, relative to its mount, of the cgroup that we are in; "" is version 2."""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path.lstrip("/")
    return None


def new_folder(where, controller):
    """A group below the one that we are in, or None."""
    own = own_group(controller)
    if own is None:
        return None
    folder = where / own / NAME
    try:
        folder.mkdir(exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder / "cgroup.procs", os.W_OK) else None


def usage_of(stat, key, unit):
    values = dict(line.split() for line in stat.read_text(encoding="utf-8").splitlines())
    return int(values[key]) / unit


def make_cpu_group():
    for kind, where, options in mounts():
        if kind == "cgroup2":
            folder = new_folder(where, "")
            if folder:
                return Group(folder, lambda: usage_of(folder / "cpu.stat", "usage_usec", 1e6))
        elif "cpuacct" in options:
            folder = new_folder(where, "cpuacct")
            if folder:
                return Group(folder, lambda: int((folder / "cpuacct.usage").read_text()) / 1e9)
    return None


def make_memory_group(limit_bytes):
    for kind, where, options in mounts():
        if kind == "cgroup2" or "memory" in options:
            folder = new_folder(where, "" if kind == "cgroup2" else "memory")
            file = folder and folder / ("memory.max" if kind == "cgroup2" else "memory.limit_in_bytes")
            try:
                if file and file.exists():
                    file.write_text(str(limit_bytes))
                    return Group(folder)
            except OSError:
                pass
    return None
