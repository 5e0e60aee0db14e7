"""Runs one command and all that it starts to the end, and measures it.

The harness is a child subreaper: orphans, the collector of an env-only recording among them, become its children, so
that a run is over when no child is left. What outlives the limit is killed, and the run says so.
"""
import ctypes
import dataclasses
import os
import pathlib
import resource
import signal
import subprocess
import time

from harness import groups

PR_SET_CHILD_SUBREAPER = 36
POLL_S = 0.005
STOPPED_S = 2  # between two polls: the harness was stopped, and what it runs with it
LINGER_S = 30  # for what lives on after the command: daemons of the host, the collector


@dataclasses.dataclass
class Outcome:
    status: int | None = None  # as of subprocess: negative is a signal; None: the limit
    wall_s: float = 0.0  # until the command ended
    cpu_s: float = 0.0  # of the whole tree until all of it had ended
    survivors: list = dataclasses.field(default_factory=list)  # what had to be killed: command lines
    stdout: str = ""
    stderr: str = ""

    def status_name(self):
        if self.status is None:
            return "hang"
        return signal.Signals(-self.status).name if self.status < 0 else str(self.status)


def become_subreaper():
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def children_of(pid):
    """All living descendants, the nearest first."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
        except OSError:
            continue
        if state != "Z":
            parents.setdefault(int(parent), []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        for child in parents.get(todo.pop(0), []):
            found.append(child)
            todo.append(child)
    return found


def command_of(pid):
    try:
        words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        return words[:100] or pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


class Tree:
    def __init__(self, words, environment, scene, logs, memory_max):
        self.group = groups.make_cpu_group()
        self.memory = groups.make_memory_group(memory_max) if memory_max else None
        self.began = time.monotonic()
        self.children_before = cpu_of_children()
        self.group_before = self.group.cpu_seconds() if self.group else 0
        with open(logs / "stdout", "wb") as out, open(logs / "stderr", "wb") as err:
            self.process = subprocess.Popen(words, cwd=scene.work, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=err, start_new_session=True, preexec_fn=lambda: self.enter(scene))
        self.result = Outcome()

    def enter(self, scene):
        """In the child, before its exec."""
        for group in (self.group, self.memory):
            if group:
                group.join()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        scene.become_user()

    def reap(self):
        """Takes the status of every child that has ended; False once there is no child at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.process.pid:
                self.process.returncode = os.waitstatus_to_exitcode(status)
                self.result.status = self.process.returncode
                self.result.wall_s = time.monotonic() - self.began

    def wait(self, limit_s):
        deadline = self.began + limit_s
        before = self.began
        while self.reap():
            now = time.monotonic()
            if now - before > STOPPED_S:
                deadline += now - before  # all of us were stopped meanwhile
            before = now
            if self.process.returncode is not None:
                deadline = min(deadline, now + LINGER_S)
            if now > deadline:
                self.kill()
                break
            time.sleep(POLL_S)

    def kill(self):
        """Ends what is left, and says what it was."""
        if self.process.returncode is None:
            self.result.wall_s = time.monotonic() - self.began
        hung = self.process.returncode is None
        left = children_of(os.getpid())
        self.result.survivors = sorted({command_of(pid) for pid in left})
        while left:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            time.sleep(POLL_S)
            self.reap()
            left = children_of(os.getpid())
        if hung:
            self.result.status = None
            if self.process.returncode is None:
                self.process.returncode = -signal.SIGKILL

    def finish(self):
        if self.group:
            self.result.cpu_s = self.group.cpu_seconds() - self.group_before
        else:
            self.result.cpu_s = cpu_of_children() - self.children_before
        for group in (self.group, self.memory):
            if group:
                group.remove()
        return self.result


def cpu_of_children():
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run(words, environment, scene, logs, limit_s, memory_max=None):
    """Runs a command to the end of its whole tree."""
    tree = Tree(words, environment, scene, logs, memory_max)
    tree.wait(limit_s)
    result = tree.finish()
    result.stdout = (logs / "stdout").read_text(errors="replace")
    result.stderr = (logs / "stderr").read_text(errors="replace")
    return result
