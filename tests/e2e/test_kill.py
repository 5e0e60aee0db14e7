"""SIGKILL of the target, of the collector, of both: the recording reads and holds the last event.

The target works on command, so each test knows what its last event was: a fork just before the kill.
The forked child's first record says that the child exists; a report that lists its pid holds that event.
"""
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import time

import pytest

import frame_reader
from conftest import PATIENCE_S, is_running, kill_and_wait, manifest_of, unwrapped, wait_until
from figure_off import assert_figure
from expected.report_reading import cause, read_report

TARGET = r"""
import ctypes, os, sys, time
kept = []
print("ready", os.getpid(), flush=True)
for line in sys.stdin:
    word, number = (line + " 0").split()[:2]
    if word == "busy":
        for _ in range(int(number)):
            bytearray(50000)
    elif word == "keep":
        kept.append(b"x" * (int(number) << 20))
    elif word == "snapshot":
        ctypes.CDLL(None).whyrss_snapshot()
    elif word == "fork":
        if os.fork() == 0:
            print(os.getpid(), flush=True)
            time.sleep(600)
            os._exit(0)
        continue
    print("done", flush=True)
"""


class Job:
    """A recorded target that does what the test requests."""

    SOURCE = TARGET

    def __init__(self, whyrss, recording, tmp_path):
        script = tmp_path / "target.py"
        script.write_text(self.SOURCE)
        self.recording = recording
        self.record = subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", "/usr/bin/python3", script],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.target = int(self.record.stdout.readline().split()[1])
        self.children = []

    def tell(self, command):
        self.record.stdin.write(command + "\n")
        self.record.stdin.flush()
        return self.record.stdout.readline().strip()

    def fork(self):
        self.children.append(int(self.tell("fork")))
        return self.children[-1]

    def collector(self):
        return wait_until(lambda: manifest_of(self.recording)["collector"]["pid"], "the manifest names the collector")

    def end(self):
        for pid in [self.target, *self.children]:
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)
        self.record.stdin.close()
        self.record.wait(PATIENCE_S)
        self.record.stdout.close()


@pytest.fixture
def job(whyrss, recording, tmp_path):
    started = Job(whyrss, recording, tmp_path)
    yield started
    started.end()
    pool = pathlib.Path(manifest_of(started.recording)["pool_path"])
    if pool.name and pool.parent == pathlib.Path("/dev/shm"):
        for left in (pool, pool.with_name(pool.name + ".memory")):
            left.unlink(missing_ok=True)  # the report's source after a kill of the collector; no longer needed


PACES = {"low rate": 0, "busy": 100_000}


@pytest.mark.parametrize("events", PACES.values(), ids=PACES)
def test_target_killed(whyrss, job, events):
    job.tell("keep 32")
    job.tell(f"busy {events}")
    child = job.fork()
    kill_and_wait(job.target, child)
    assert job.record.wait(PATIENCE_S) == -signal.SIGKILL
    report = whyrss.finished_report(job.recording)
    assert report["recording"]["exit"] == {"code": None, "signal": "SIGKILL", "oom_killed": False}
    assert child in [process["pid"] for process in report["processes"]]


def test_target_stopped_and_then_killed(whyrss, job):
    """A stopped process answers no request, and is walked as any other."""
    job.tell("keep 32")
    os.kill(job.target, signal.SIGSTOP)

    def state():
        return pathlib.Path(f"/proc/{job.target}/stat").read_text().rpartition(")")[2].split()[0]
    wait_until(lambda: state() == "T", "it is stopped")

    def held(report):
        return cause(report["processes"][0], "heap_live")["rss"]["last"]
    wait_until(lambda: held(whyrss.report(job.recording)) >= 32 << 20, "what it holds is known")
    kill_and_wait(job.target)
    assert job.record.wait(PATIENCE_S) == -signal.SIGKILL
    known = held(whyrss.finished_report(job.recording))
    assert_figure(known >= 32 << 20, known)


def test_memory_of_a_killed_target(whyrss, job):
    """What a walk has seen before the kill stays known."""
    job.tell("keep 32")

    def is_seen():
        return any((process["rss"]["peak"] or 0) >= 32 << 20 for process in whyrss.report(job.recording)["processes"])
    wait_until(is_seen, "a walk counted the memory")
    kill_and_wait(job.target)
    assert job.record.wait(PATIENCE_S) == -signal.SIGKILL
    report = whyrss.finished_report(job.recording)
    assert_figure(is_seen(), report["processes"][0]["rss"])


def test_snapshot_that_came_too_late_is_none(whyrss, job):
    """What the collector walks later is not what the program wanted in the snapshot."""
    collector = job.collector()
    os.kill(collector, signal.SIGSTOP)
    try:
        job.tell("snapshot")
    finally:
        os.kill(collector, signal.SIGCONT)
    time.sleep(0.5)
    kill_and_wait(job.target)  # no last walk, which may be stored as requested
    assert job.record.wait(PATIENCE_S) == -signal.SIGKILL
    assert whyrss.finished_report(job.recording)["recording"]["lost"]["snapshots"] >= 1
    snapshots = frame_reader.snapshots(job.recording, job.target)
    assert not [one for one in snapshots if isinstance(one, frame_reader.Walk) and one.trigger == frame_reader.REQUEST]


def test_how_it_ended_is_known_without_a_word_of_record(whyrss, job):
    os.kill(job.record.pid, signal.SIGSTOP)
    try:
        os.kill(job.target, signal.SIGTERM)
        wait_until(lambda: manifest_of(job.recording)["state"] == "complete", "the collector has ended")
    finally:
        os.kill(job.record.pid, signal.SIGCONT)
    assert job.record.wait(PATIENCE_S) == -signal.SIGTERM
    assert whyrss.report(job.recording)["recording"]["exit"]["signal"] == "SIGTERM"


def test_a_program_that_ends_before_record_says_that_it_runs(whyrss, recording):
    """As on a busy machine, or with a record that is stopped: the collector waits for no word of it."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    delay_s = 2 * PATIENCE_S
    slowed = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=sendto", "-e",
              f"inject=sendto:delay_enter={int(delay_s * 1e6)}:when=1"]
    with subprocess.Popen([*slowed, whyrss.program, "record", "-q", "-o", recording, "--", "sh", "-c", "exit 3"]) as strace:
        try:
            whyrss.wait_until_complete(recording)
        finally:
            strace.kill()  # record goes on at once
    assert whyrss.report(recording)["recording"]["exit"]["code"] == 3


def test_report_while_the_collector_closes_the_recording(whyrss, job):
    """It may read the manifest before and ask whether the collector lives after, or the other way round."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    slowed = ["strace", "-qq", "-o", "/dev/null", "-e", "trace=flock", "-e", "inject=flock:delay_enter=3000000:when=1"]
    with subprocess.Popen([*slowed, whyrss.program, "report", job.recording], stdout=subprocess.PIPE, text=True) as report:
        time.sleep(1)
        kill_and_wait(job.target)
        assert job.record.wait(PATIENCE_S) == -signal.SIGKILL
        text, _ = report.communicate(timeout=PATIENCE_S)
    assert report.returncode == 0 and "the collector was killed" not in text


def test_last_snapshot_that_came_too_late_is_reported(whyrss, job):
    """The job does not wait for a collector that gets no processor; the report says that a snapshot is missing."""
    collector = job.collector()
    os.kill(collector, signal.SIGSTOP)
    try:
        job.tell("keep 32")
        job.record.stdin.close()
        wait_until(lambda: not is_running(job.target), "the target has left")
    finally:
        os.kill(collector, signal.SIGCONT)
    assert job.record.wait(PATIENCE_S) == 0
    lost = whyrss.finished_report(job.recording)["recording"]["lost"]
    assert lost["snapshots"] == 1
    text = unwrapped(whyrss.run("report", job.recording).stdout)
    assert "1 snapshot lost" in text and "came too late" in text


@pytest.mark.parametrize("events", PACES.values(), ids=PACES)
def test_collector_killed(whyrss, job, events):
    """The job goes on; what it did afterwards is in the ring and in the report."""
    job.tell("keep 32")
    before = job.fork()
    wait_until(lambda: whyrss.report(job.recording)["processes"], "something was drained")
    kill_and_wait(job.collector())
    job.tell(f"busy {events // 10}")
    after = job.fork()

    def pids():
        report = whyrss.report(job.recording)
        assert not report["recording"]["complete"]
        return {process["pid"] for process in report["processes"]}
    wait_until(lambda: {before, after} <= pids(), "the child says that it was forked, a moment after its number is known")
    assert job.tell("busy 10") == "done"
    job.record.stdin.close()
    for pid in job.children:
        os.kill(pid, signal.SIGKILL)
    assert job.record.wait(PATIENCE_S) == 0  # the target's own status, though its collector died
    assert not whyrss.report(job.recording)["recording"]["complete"]


@pytest.mark.parametrize("events", PACES.values(), ids=PACES)
def test_both_killed(whyrss, job, events):
    job.tell("keep 32")
    collector = job.collector()
    job.tell(f"busy {events}")
    child = job.fork()
    kill_and_wait(collector, job.target, child)
    report = whyrss.report(job.recording)
    assert not report["recording"]["complete"]
    assert child in [process["pid"] for process in report["processes"]]


def test_pool_of_a_killed_collector_moves_into_the_recording(whyrss, job, tmp_path):
    """Nothing of ours stays in memory, and a copy of the recording has the last events on every machine."""
    pool = pathlib.Path(manifest_of(job.recording)["pool_path"])
    job.tell("keep 32")
    kill_and_wait(job.collector())
    child = job.fork()
    whyrss.report(job.recording)
    assert pool.is_file()  # the target may still write
    kill_and_wait(job.target, child)
    before = whyrss.report(job.recording)
    assert not pool.exists() and not pool.with_name(pool.name + ".memory").exists()
    copy = tmp_path / "copy.whyrss"
    shutil.copytree(job.recording, copy)
    manifest = manifest_of(copy)
    (copy / "manifest.json").write_text(json.dumps({**manifest, "boot_id": "another machine"}))
    for recording in (job.recording, copy):
        after = whyrss.report(recording)
        assert after["processes"] == before["processes"]
        assert child in [process["pid"] for process in after["processes"]]


def test_nothing_of_a_killed_collector_stays_after_record(whyrss, job):
    """Even without a report: record -q itself moves the pool into the recording at its end."""
    pool = pathlib.Path(manifest_of(job.recording)["pool_path"])
    job.fork()  # writes are tracked: there is a socket
    kill_and_wait(job.collector(), *job.children)
    job.record.stdin.close()
    assert job.record.wait(PATIENCE_S) == 0
    assert not pool.exists() and not pool.with_name(pool.name + ".memory").exists()
    assert (job.recording / "pool").is_file()


def test_everything_killed_at_once(whyrss, job):
    """As an OOM kill of the whole cgroup: record itself too."""
    collector = job.collector()
    child = job.fork()
    kill_and_wait(job.record.pid, collector, job.target, child)
    text = whyrss.run("report", job.recording)
    assert text.returncode == 0, text.stderr
    assert "incomplete" in text.stdout
    assert child in [process["pid"] for process in whyrss.report(job.recording)["processes"]]


def test_drained_frames_survive_without_the_ring(whyrss, job):
    """As on another host: what was written a second before the kill needs no /dev/shm."""
    child = job.fork()

    def is_written():
        return any(path.name.split(".")[-2] == str(child) for path in job.recording.glob("*/events.zst")
                   for path in [path.parent] if (path / "events.zst").stat().st_size > 64)
    wait_until(is_written, "the child's events are in the recording")
    pool = pathlib.Path(manifest_of(job.recording)["pool_path"])
    kill_and_wait(job.collector(), job.target, child)
    job.record.wait(PATIENCE_S)
    for path in (pool, job.recording / "pool"):  # record itself may have moved it
        path.unlink(missing_ok=True)
    report = whyrss.report(job.recording)
    assert not report["recording"]["complete"]
    assert child in [process["pid"] for process in report["processes"]]


STORM = r"""
import os
kept = []
print("ready", os.getpid(), flush=True)
while True:
    kept = kept[-40:] + [bytearray(300_000)]
    pid = os.fork()
    if pid == 0:
        mine = bytearray(500_000)
        os._exit(0)
    print(pid, flush=True)
    if pid % 4:
        os.waitpid(pid, 0)
"""

# Who is killed, in this order and without a pause. Those who live on are killed later.
VICTIMS = (["target"], ["collector"], ["collector", "target"], ["target", "collector"], ["record"], ["record", "target"],
           ["record", "collector"], ["collector", "record", "target"])
KILLS = int(os.environ.get("WHYRSS_KILLS", "8"))


class Storm(Job):
    """Forks for ever and says whom: whatever was said before a kill is in the recording."""

    SOURCE = STORM

    def __init__(self, whyrss, recording, tmp_path):
        super().__init__(whyrss, recording, tmp_path)
        self.collector_pid = self.collector()

    def follow(self, count):
        """Reads what it says of so many children."""
        self.children += [int(self.record.stdout.readline()) for _ in range(count)]

    def kill_all(self, victims):
        pids = {"target": self.target, "collector": self.collector_pid, "record": self.record.pid}
        kill_and_wait(*(pids[name] for name in victims))


def reports_at_once(whyrss, recording, count=2):
    """As several people ask for them."""
    running = [subprocess.Popen([whyrss.program, "report", recording, "--format", "json"], stdout=subprocess.PIPE, text=True)
               for _ in range(count)]
    texts = [process.communicate(timeout=PATIENCE_S)[0] for process in running]
    assert [process.returncode for process in running] == [0] * count
    return [read_report(text) for text in texts]


def is_mapped(pool):
    """By a process that lives on: children of the storm may outlive it for a moment."""
    for maps in pathlib.Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            if str(pool) in maps.read_text():
                return True
    return False


def assert_holds(report, children):
    """All that was said before the kill; and nothing is complete of which a part is missing."""
    assert set(children) <= {process["pid"] for process in report["processes"]}
    recording = report["recording"]
    assert recording["complete"] or recording["incomplete_why"]
    if recording["complete"]:
        assert recording["lost"]["notes"] == [] and recording["lost"]["events"] == 0


@pytest.mark.parametrize("number", range(KILLS))
def test_killed_at_a_random_moment(whyrss, recording, tmp_path, number):
    """WHYRSS_KILLS=50 kills as often."""
    chance = random.Random(f"kill {number}")
    victims = VICTIMS[number % len(VICTIMS)]
    storm = Storm(whyrss, recording, tmp_path)
    pool = pathlib.Path(manifest_of(storm.recording)["pool_path"])
    try:
        storm.follow(chance.randrange(40))
        time.sleep(chance.random() * 0.05)
        storm.kill_all(victims)
        assert_holds(reports_at_once(whyrss, recording)[0], storm.children)
        if "target" not in victims:
            storm.follow(chance.randrange(40))
            storm.kill_all(["target"])
        storm.record.wait(PATIENCE_S)
        if "collector" not in victims:
            whyrss.wait_until_complete(recording)
        wait_until(lambda: not is_mapped(pool), "all have left")
        first, second = reports_at_once(whyrss, recording)
        for report in (first, second, whyrss.report(recording)):
            if victims != ["target", "collector"]:  # between the two kills the collector may have finished
                assert report["recording"]["complete"] == ("collector" not in victims)
            assert_holds(report, storm.children)
            assert report["processes"] == first["processes"]
        assert not pool.exists()  # taken into the recording, or given back
    finally:
        storm.end()
        for left in (pool, pool.with_name(pool.name + ".memory")):
            left.unlink(missing_ok=True)


UNSEEN_CHILD = r"""
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static long bare_fork(void) {
  long pid;
  __asm__ volatile("syscall" : "=a"(pid) : "a"(SYS_fork) : "rcx", "r11", "memory");
  return pid;
}
int main(int count, char** arguments) {
  long child = bare_fork();
  if (child != 0) {
    printf("%ld\n", child);
    fflush(stdout);
    kill(getpid(), SIGKILL);
  }
  while (access(arguments[1], F_OK) != 0) usleep(1000);
  char* kept = malloc(48 << 20);
  memset(kept, 1, 48 << 20);
  return kept[count];
}
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the program makes a bare system call of x86-64")
def test_child_that_nobody_knows_of_at_the_end(whyrss, recording, tmp_path, compile_c):
    """Made by a system call that no hook sees, of a parent that is dead: the recording waits for it as for others."""
    program, go = compile_c(UNSEEN_CHILD), tmp_path / "go"
    output = tmp_path / "output"
    with open(output, "w", encoding="ascii") as file:
        result = whyrss.record(recording, [program, go], capture_output=False, stdout=file)
    child = int(output.read_text())
    try:
        assert result.returncode == -signal.SIGKILL
        assert manifest_of(recording)["state"] == "incomplete: still running"
    finally:
        go.touch()
    report = whyrss.finished_report(recording)
    (process,) = [process for process in report["processes"] if process["pid"] == child]
    assert process["rss"]["peak"] >= 48 << 20


def test_descriptors_of_a_killed_process_as_they_were_counted_last(whyrss, recording, tmp_path):
    """Nothing requests a walk when a process is killed, and no memory moves while descriptors leak."""
    script = tmp_path / "leaks.py"
    script.write_text("import os, signal, time\n"
                      "from fork_truth import take_snapshot\n"
                      "take_snapshot()\n"
                      "kept = [os.open('/dev/null', os.O_RDONLY) for _ in range(300)]\n"
                      "time.sleep(4)\n"  # they are counted once a second
                      "os.kill(os.getpid(), signal.SIGKILL)\n")
    path = f"PYTHONPATH={whyrss.shim.parent / 'python'}:{pathlib.Path(__file__).parent}"
    whyrss.record(recording, ["env", path, "/usr/bin/python3", "-B", script])
    report = whyrss.finished_report(recording)
    (process,) = report["processes"]
    counters = process["counters"]
    # Whatever the interpreter had open for a moment when they were first counted.
    assert counters["descriptors_last"] - counters["descriptors_first"] == pytest.approx(300, abs=5)
    assert 0 < counters["descriptors_last_ms"] <= process["ended_s"] * 1000
    assert "descriptor-growth" in [verdict["id"] for verdict in report["verdicts"]]
