"""`record --memory-max`: what the limit takes back, what it kills, and that nothing is left behind, however it ends."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import pytest

from conftest import PATIENCE_S, is_running, line_of, manifest_of, wait_until
from expected.report_reading import verdicts
from expected.scenario import can_limit_memory
from memory_groups import kill_all, made_by_record, members

MIB = 1 << 20
DEBIAN = "/usr/bin/python3"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

# Keeps what it makes, a megabyte at a time; with a second number rests once it has so many, until the file is there.
KEEP = r"""
import os, sys, time
def rest():
    import whyrss
    while not os.path.exists(sys.argv[3]):
        whyrss.snapshot()
        time.sleep(0.2)
kept = []
for _ in range(int(sys.argv[1])):
    kept.append(bytearray(1 << 20))  # keeps
    if len(kept) == int((sys.argv[2:] or [0])[0]):
        rest()
    time.sleep(0.005)
print("kept", flush=True)
"""

# Takes all at once.
FILL = r"""
kept = []
while True:
    kept.append(bytearray(b"x") * (1 << 20))  # fills
"""

# Reads a file through mmap that is not in the page cache.
SCAN = r"""
import mmap, os, sys
path, mib, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "wb") as file:
    for _ in range(mib):
        file.write(os.urandom(1 << 20))
    file.flush()
    os.fsync(file.fileno())
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
with open(path, "rb") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = 0
for _ in range(rounds):
    for at in range(0, len(data), 4096):
        total += data[at]
print("read", flush=True)
"""

# Waits, with a child that ignores what ends its parent.
WAIT = r"""
import os, signal, sys, time
child = os.fork()
if child == 0:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(float(sys.argv[1]))
    os._exit(0)
print("waits", os.getpid(), child, flush=True)
while True:  # a signal that comes just before a sleep is handled after it
    time.sleep(0.1)
"""

# Leaves a child behind that ends when the file is there.
LEAVE = r"""
import os, pathlib, sys, time
if os.fork() == 0:
    held = bytearray(b"x") * (8 << 20)
    while not pathlib.Path(sys.argv[1]).exists():
        time.sleep(0.02)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def limits(whyrss):
    if not can_limit_memory(whyrss.program):
        pytest.skip("record --memory-max does not work here (whyrss doctor says what it needs)")


class Job:
    """A program that runs under a limit; nothing of it may be left when it has ended."""

    def __init__(self, whyrss, recording, limit, program, arguments):
        self.recording = recording
        command = [whyrss.program, "record", "-o", recording, "--memory-max", limit, "--", DEBIAN, "-c", program]
        self.process = subprocess.Popen([*command, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True,
                                        env={**os.environ, "PYTHONPATH": str(whyrss.shim.parent / "python")})

    def group(self):
        (group,) = made_by_record(self.process.pid)
        return group

    def read_line(self):
        return self.process.stdout.readline().split()

    def end(self):
        """(status, output, errors)"""
        output, errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, output, errors

    def check_that_nothing_is_left(self):
        wait_until(lambda: not made_by_record(self.process.pid), "the memory cgroup is removed")
        if self.recording.exists():
            pool = pathlib.Path(manifest_of(self.recording)["pool_path"])
            wait_until(lambda: not pool.exists(), "the shared memory is removed")

    def stop(self):
        if self.process.poll() is None:
            for group in made_by_record(self.process.pid):
                kill_all(group)
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(whyrss, recording, limits):
    """start(LIMIT, PROGRAM, ARGUMENT...) -> Job"""
    jobs = []

    def start_job(limit, program, *arguments):
        jobs.append(Job(whyrss, recording, limit, program, arguments))
        return jobs[-1]
    yield start_job
    for job in jobs:
        job.stop()
        job.check_that_nothing_is_left()


def kernel_log_is_readable(report):
    return report["recording"]["capabilities"]["kernel_log"] is True


def wait_until_seen(whyrss, recording, size):
    """The recording shows that the program holds so much live heap, and the group so much anonymous memory."""
    def is_seen():
        if not (recording / "manifest.json").exists():
            return False
        report = whyrss.report(recording)
        held = [cause["rss"]["last"] or 0 for process in report["processes"] for cause in process["causes"]
                if cause["cause"] == "heap_live"]
        group = report["family"]["cgroup"] or {"readings": []}
        counted = [reading["anon"] or 0 for reading in group["readings"]]
        return max(held, default=0) >= size and max(counted, default=0) >= size
    wait_until(is_seen, "the recording shows what the program holds")


def test_killed_at_the_limit(whyrss, recording, start, tmp_path):
    job = start("96MiB", KEEP, 300, 64, tmp_path / "go on")
    wait_until_seen(whyrss, recording, 64 * MIB)
    (tmp_path / "go on").touch()
    status, _, errors = job.end()
    assert status == -signal.SIGKILL
    assert "killed by the kernel at the memory limit of 96 MiB" in errors
    report = whyrss.finished_report(recording)
    assert report["recording"]["exit"] == {"code": None, "signal": "SIGKILL", "oom_killed": True}
    verdict = report["verdicts"][0]
    assert verdict["id"] == "oom-killed"
    assert verdict["severity"] == "problem"
    assert verdict["pid"] == report["processes"][0]["pid"]
    assert f"live heap (<string>:{line_of(KEEP, '# keeps')}" in verdict["headline"]
    evidence = verdict["evidence"]
    assert evidence["limit_bytes"] == 96 * MIB
    assert evidence["certain"]
    assert evidence["held_by"][0]["cause"] == "heap_live"
    assert 64 * MIB <= evidence["held_by"][0]["bytes"] <= 96 * MIB
    assert evidence["grown_in_last_minute"][0]["cause"] == "heap_live"
    assert evidence["bytes_per_s"] > 0
    assert 64 * MIB <= evidence["before"]["anon_bytes"] <= 96 * MIB
    if kernel_log_is_readable(report):
        assert f"Killed process {verdict['pid']} (python3)" in verdict["why"]
        assert 64 * MIB <= evidence["killed"][0]["anon_bytes"] <= 96 * MIB
    group = report["family"]["cgroup"]
    assert group["made_by_record"]
    assert group["limit"] == 96 * MIB
    assert group["oom_kills"] == 1
    assert not verdicts(report, "limit-reclaimed")


def test_killed_before_a_walk_was_possible(whyrss, recording, start):
    """The kernel's log says how large it was, and its own events what it had allocated."""
    status, _, _ = start("96MiB", FILL).end()
    assert status == -signal.SIGKILL
    report = whyrss.finished_report(recording)
    if not kernel_log_is_readable(report):
        pytest.skip("the kernel's log cannot be read here")
    verdict = report["verdicts"][0]
    assert f"live heap (<string>:{line_of(FILL, '# fills')}" in verdict["headline"]
    assert verdict["evidence"]["held_by"][0]["bytes"] >= 80 * MIB
    assert report["processes"][0]["rss"]["last"] >= 88 * MIB


KEEP_IN_FILE = """
import os, time
fd = os.memfd_create("ahead")
for _ in range(80):
    os.write(fd, bytes(1 << 20))
time.sleep(1)
kept = []
while True:
    kept.append(b"x" * (1 << 20))
"""


def test_killed_for_what_no_process_maps(whyrss, recording, start):
    status, _, _ = start("128MiB", KEEP_IN_FILE).end()
    assert status == -signal.SIGKILL
    report = whyrss.finished_report(recording)
    assert report["family"]["shmem_unmapped"]["last"] == 80 * MIB
    verdict = report["verdicts"][0]
    assert verdict["id"] == "oom-killed"
    assert "held most by 80 MiB shared memory (mapped by no process, made at <string>:3 in <module>)" in verdict["headline"]


@pytest.fixture
def disk_folder():
    """A folder that is on a disk: /tmp may be in memory, and what lies there cannot be taken back."""
    with tempfile.TemporaryDirectory(prefix="whyrss-limit-", dir="/var/tmp") as folder:
        yield pathlib.Path(folder)


def test_file_cache_is_taken_back(whyrss, recording, start, disk_folder):
    status, output, errors = start("64MiB", SCAN, disk_folder / "cold.bin", 160, 2).end()
    assert (status, output) == (0, "read\n"), errors
    report = whyrss.finished_report(recording)
    group = report["family"]["cgroup"]
    assert group["limit_hits"] > 0
    assert group["oom_kills"] == 0
    (verdict,) = verdicts(report, "limit-reclaimed")
    assert verdict["severity"] == "ok"
    assert "no process was killed" in verdict["headline"]
    # What came back, or was in one walk and not in the next. Of 160 MiB at most 64 were there when it was read again:
    # the others came back then. Nothing comes or goes more than once while it is read once.
    assert (160 - 64) * MIB <= group["reclaimed_at_least"] <= 2 * 160 * MIB
    taken = group["reclaimed"] or group["reclaimed_at_least"]
    assert verdict["bytes"] == taken
    assert re.search(r"took back (at least )?\d+ MiB", verdict["headline"])
    for name in ("oom-killed", "near-limit", "limit-rereading"):
        assert not verdicts(report, name)
    assert report["processes"][0]["rss"]["peak"] < 128 * MIB


def test_files_that_do_not_fit_are_read_again_and_again(whyrss, recording, start, disk_folder):
    rounds, size = 6, 120 * MIB
    status, _, errors = start("64MiB", SCAN, disk_folder / "cold.bin", size // MIB, rounds).end()
    assert status == 0, errors
    verdict = whyrss.finished_report(recording)["verdicts"][0]
    assert (verdict["id"], verdict["severity"]) == ("limit-rereading", "warning")
    # In each round but the first what does not fit came back at least. A page may go before it is read, once in a round.
    assert (rounds - 1) * (size - 64 * MIB) <= verdict["evidence"]["refaulted_bytes"] <= 2 * rounds * size
    assert f"{verdict['bytes'] // (64 * MIB)} times the memory limit of 64 MiB" in verdict["headline"]


def test_a_limit_that_is_never_reached(whyrss, recording, start):
    status, output, errors = start("2GiB", KEEP, 8).end()
    assert (status, output) == (0, "kept\n"), errors
    report = whyrss.finished_report(recording)
    assert report["family"]["cgroup"]["limit_hits"] == 0
    for name in ("limit-reclaimed", "near-limit", "oom-killed", "killed"):
        assert not verdicts(report, name)


@pytest.mark.parametrize("limit", ["4096", "100KiB", "600KiB"])
def test_too_small_to_start(whyrss, recording, start, limit):
    status, output, errors = start(limit, KEEP, 1).end()
    assert (status, output) == (-signal.SIGKILL, "")
    kill_lines = [line for line in errors.splitlines() if "killed by the kernel at the memory limit of" in line]
    assert len(kill_lines) == 1, errors
    report = whyrss.finished_report(recording)
    assert report["recording"]["exit"]["oom_killed"]
    (verdict,) = verdicts(report, "oom-killed")
    assert "its group" not in verdict["headline"]
    if limit != "600KiB":  # with that some get to their first call
        assert "too small even to start it" in verdict["headline"]
        assert "(no command line)" not in errors
    assert not is_running(report["processes"][0]["pid"] if report["processes"] else 0)


@pytest.mark.parametrize("limit", ["", "0", "-1", "many", "12Q"])
def test_sizes_that_are_none(whyrss, recording, limit):
    result = whyrss.run("record", "-o", recording, "--memory-max", limit, "--", "true")
    assert result.returncode == 125
    assert len(result.stderr.splitlines()) == 1
    assert "--memory-max" in result.stderr
    assert not recording.exists()


@pytest.mark.usefixtures("limits")
def test_a_command_that_is_not_there(whyrss, recording):
    result = whyrss.run("record", "-o", recording, "--memory-max", "64MiB", "--", "/nowhere/program")
    assert result.returncode == 127
    assert not recording.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_without_access_to_cgroups(whyrss):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="whyrss-limit-", dir="/var/tmp"))
    try:
        os.chown(folder, 65534, 65534)
        if subprocess.run([*NOBODY, whyrss.program, "env"], capture_output=True, check=False).returncode != 0:
            pytest.skip("the program lies where nobody else may run it")
        command = [*NOBODY, "env", "-i", whyrss.program, "record", "-o", folder / "rec", "--memory-max", "64MiB", "--",
                   "true"]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert result.returncode == 125
        assert len(result.stderr.splitlines()) == 1
        for part in ("a memory limit needs root", "delegated to you", "a session of systemd"):
            assert part in result.stderr
        assert not any(folder.iterdir())
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted(whyrss, recording, start, number):
    """A child that ignores the signal goes on, and collector and group with it, until it ends too."""
    job = start("128MiB", WAIT, 1)
    _, target, child = job.read_line()
    if number == signal.SIGINT:
        os.killpg(job.process.pid, number)  # as a terminal does
    else:
        job.process.send_signal(number)
    assert job.end()[0] == -number
    wait_until(lambda: not is_running(int(target)) and not is_running(int(child)), "all have ended")
    report = whyrss.finished_report(recording)
    assert report["recording"]["exit"]["oom_killed"] is False
    assert not verdicts(report, "oom-killed") and not verdicts(report, "killed")


def test_interrupted_before_the_program_began(start):
    """However early it comes: record ends, and nothing stays."""
    job = start("128MiB", WAIT, 0)
    os.killpg(job.process.pid, signal.SIGINT)
    assert job.end()[0] in (-signal.SIGINT, 1)


def test_record_is_killed(start):
    """Its collector goes on until the program ends, and then removes the group."""
    job = start("128MiB", WAIT, 0)
    _, target, _ = job.read_line()
    group = job.group()
    assert int(target) in members(group)
    job.process.kill()
    job.process.wait(PATIENCE_S)
    assert group.exists()
    os.kill(int(target), signal.SIGTERM)
    wait_until(lambda: not group.exists(), "the collector has removed the group")


def test_a_child_that_outlives_the_job(whyrss, recording, start, tmp_path):
    job = start("128MiB", LEAVE, tmp_path / "end")
    assert job.process.wait(PATIENCE_S) == 0
    assert len(members(job.group())) == 1
    (tmp_path / "end").touch()
    assert "1 process of it goes on" in job.end()[2]
    report = whyrss.finished_report(recording)
    assert len(report["processes"]) == 2
    assert report["family"]["cgroup"]["limit"] == 128 * MIB
