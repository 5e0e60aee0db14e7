"""What a host is: a real program, how it is prepared and started, and what of a run is compared.

A family (tests/hosts/families) returns a list of hosts; the harness knows nothing else about them.
"""
import dataclasses
import hashlib
import os
import pathlib
import pwd
import re
import shutil
import socket
import subprocess
from collections.abc import Callable

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "programs"
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # Debian's programs, not what a user has put before them


class CannotRun(Exception):
    """This machine has not what the host needs; its row says why."""


class Scene:
    """The scratch directory of one host. `folder` lasts for all its runs, `work` is made anew for each at the same path,
    so that whatever a program prints about its files is the same in all ways."""

    def __init__(self, folder, host):
        self.folder = folder
        self.disk_max = host.disk_max
        self.work = folder / "work"
        self.user = host.user if os.geteuid() == 0 else None
        self.port = free_port()
        self.probe_log = folder / "probe.log"
        folder.mkdir(parents=True)
        self.own(folder)

    def own(self, path):
        if self.user:
            shutil.chown(path, self.user, pwd.getpwnam(self.user).pw_gid)

    def begin_run(self):
        """An empty working directory and an empty log of the probe."""
        self.end_run()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        if self.disk_max:
            self.mount_bounded()
        self.probe_log.write_text("")
        self.own(self.work)
        self.own(self.probe_log)

    def end_run(self):
        if os.path.ismount(self.work):
            subprocess.run(["umount", "-l", self.work], check=True)

    def mount_bounded(self):
        """A file system of the run's own, for hosts that fill what they get."""
        words = ["mount", "-t", "tmpfs", "-o", f"size={self.disk_max},nr_inodes=200k", "whyrss-hosts", self.work]
        made = subprocess.run(words, capture_output=True, text=True, check=False)
        if made.returncode != 0:
            raise CannotRun(f"it fills what disk it gets, and no file system can be mounted for it: {made.stderr.strip()}")

    def environment(self):
        return {"PATH": PATH, "HOME": str(self.folder), "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "TZ": "UTC",
                "PROBE": str(self.folder.parent / "tools/probe"), "PROBE_LOG": str(self.probe_log),
                "SCENE": str(self.folder), "USER": self.user or "root", "LOGNAME": self.user or "root"}

    def become_user(self):
        """In a child, before its exec: it goes on as the host's user."""
        if self.user:
            account = pwd.getpwnam(self.user)
            os.setgroups([])
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)

    def prepare(self, *command, cwd=None, **more):
        """Runs a command of the preparation, bare; what it printed."""
        words = [str(word) for word in command]
        environment = {**self.environment(), **more}
        result = subprocess.run(words, cwd=cwd or self.folder, env=environment, stdin=subprocess.DEVNULL, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, errors="replace", timeout=600,
                                check=False, preexec_fn=self.become_user)
        if result.returncode != 0:
            raise CannotRun(f"preparation failed: {' '.join(words)[:120]}: {result.stdout.strip()[-200:]}")
        return result.stdout

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def nothing(_scene):
    pass


def whole_output(_scene, output):
    """Outcome of most hosts: their standard output as it is."""
    return {"stdout": output}


def without(*patterns):
    """An outcome: the standard output without what differs from run to run, given as regular expressions."""
    expressions = [re.compile(pattern, re.MULTILINE) for pattern in patterns]

    def outcome(_scene, output):
        for expression in expressions:
            output = expression.sub("~", output)
        return {"stdout": output}
    return outcome


def only(*patterns):
    """An outcome: only the lines in which one of the regular expressions is found."""
    expression = re.compile("|".join(patterns))

    def outcome(_scene, output):
        return {"stdout": "\n".join(line for line in output.splitlines() if expression.search(line))}
    return outcome


def files_made(*names):
    """An outcome: the standard output and the contents of files that the run leaves in its working directory."""
    def outcome(scene, output):
        found = {"stdout": output}
        for name in names:
            path = scene.work / name
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "missing"
        return found
    return outcome


@dataclasses.dataclass(frozen=True)
class Host:
    name: str  # family/part: both `family` and `family/part` choose it
    command: Callable[[Scene], list]
    packages: tuple = ()  # Debian's
    prepare: Callable[[Scene], None] = nothing  # once, bare, as the host's user
    outcome: Callable[[Scene, str], dict] = whole_output  # what is compared: name -> text
    environment: dict = dataclasses.field(default_factory=dict)
    around: Callable[[list], list] | None = None  # a program that starts the recorded command, and is not recorded
    user: str | None = None  # where the harness is root
    ends: int | None = 0  # the status that it ends with bare; None: any
    limit_s: float = 120
    memory_max: int | None = None  # in bytes, for hosts that take all they get
    disk_max: int | None = None  # the same of its working directory
    timed: bool = True  # whether its CPU time depends on its work, not on a clock
    files_at_exec: bool = True  # whether it starts $PROBE, which logs what a program is born with
    reported: bool = True  # whether a recording must have processes with causes
