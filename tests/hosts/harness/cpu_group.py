"""A cgroup for one run: counts the CPU time of all that was in it, also of orphans and of children that nobody waited for.

Version 2 or version 1's cpuacct, whichever may be made here. Without any, `make_group` returns None, and the CPU time is
that of the children that were waited for.
"""
import os
import pathlib


class Group:
    def __init__(self, folder, read_seconds):
        self.folder = folder
        self.cpu_seconds = read_seconds

    def join(self):
        """Between fork and exec: the calling process and all that it will start."""
        (self.folder / "cgroup.procs").write_text("0")

    def members(self):
        return [int(pid) for pid in (self.folder / "cgroup.procs").read_text().split()]

    def remove(self):
        self.folder.rmdir()


def own_group(controller):
    """The path, relative to its mount, of the cgroup that we are in."""
    for line in pathlib.Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == controller:
            return path.lstrip("/")
    return None


def mounts():
    """(file system type, mount point, options) of all cgroup mounts."""
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, kind, options, *_ = line.split()
        if kind in ("cgroup", "cgroup2"):
            yield kind, pathlib.Path(where), options.split(",")


def candidates():
    for kind, where, options in mounts():
        if kind == "cgroup2":
            yield where, own_group(""), lambda group: usage_of(group / "cpu.stat", "usage_usec", 1e6)
        elif "cpuacct" in options:
            names = ",".join(option for option in options if option in ("cpu", "cpuacct"))
            yield where, own_group(names), lambda group: int((group / "cpuacct.usage").read_text()) / 1e9


def usage_of(stat, key, unit):
    for line in stat.read_text().splitlines():
        name, value = line.split()
        if name == key:
            return int(value) / unit
    raise OSError(f"{stat} has no {key}")


def make_group():
    for where, own, read in candidates():
        if own is None:
            continue
        folder = where / own / f"whyrss-hosts.{os.getpid()}"
        try:
            folder.mkdir(exist_ok=True)
            read(folder)
            (folder / "cgroup.procs").read_text()
            if not os.access(folder / "cgroup.procs", os.W_OK):
                raise OSError("not ours")
        except OSError:
            continue
        return Group(folder, lambda group=folder, reader=read: reader(group))
    return None
