"""Jobs that are killed as a whole group, with the collector beside them or among them; and whose kill a counter counted.

The kernel does that to a group with memory.oom.group (cgroup v2), batch systems and containers do it too. Here the test
does: SIGKILL to every process of a memory cgroup without a pause.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, is_running, line_of, manifest_of, wait_until
from expected.report_reading import cause, verdicts
from memory_groups import enter, group_of, kill_all, members, remove

MIB = 1 << 20
LIMIT = 256 * MIB
MAIN_MIB, WORKER_MIB = 64, 40
DEBIAN = "/usr/bin/python3"

# The main process and its worker each keep what they make, and wait for their end; on SIGUSR1 the main one takes all.
JOB = r"""
import os, signal, sys, time
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
def fill(mib):
    kept = []
    for _ in range(mib):
        kept.append(bytearray(b"x") * (1 << 20))  # keeps
        time.sleep(0.005)
    return kept
def work(mib):
    held = fill(mib)  # works
    time.sleep(600)
if os.fork() == 0:
    work(int(sys.argv[2]))
held = fill(int(sys.argv[1]))  # leads
print("full", os.getpid(), flush=True)
signal.sigwait([signal.SIGUSR1])
more = [bytearray(b"x") * (1 << 20) for _ in range(4096)]
"""

# Not recorded: takes memory until the kernel kills it.
HOG = "held = [bytearray(b'x') * (1 << 20) for _ in range(4096)]"


def command_of(whyrss, recording, *options):
    return [whyrss.program, "record", "-q", "-o", recording, *options, "--",
            DEBIAN, "-c", JOB, str(MAIN_MIB), str(WORKER_MIB)]


@pytest.fixture
def shared_group():
    """shared_group(LIMIT) -> the directory of a fresh group with that limit, which a test fills; gone at the end."""
    made = []

    def make(limit_bytes):
        version, parent = group_of("self")
        if version != 1:
            pytest.skip("no memory cgroup of version 1")
        group = parent / f"test-whyrss-{os.getpid()}-{len(made)}"
        try:
            group.mkdir()
        except OSError as error:
            pytest.skip(f"no memory cgroup can be made: {error}")
        made.append(group)
        (group / "memory.swappiness").write_text("0")
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        return group
    yield make
    for group in made:
        kill_all(group)
        wait_until(lambda group=group: remove(group), f"{group} is removed")


@pytest.fixture
def start(whyrss, recording):
    """start(GROUP, BEFORE...) -> (record in that group, pid of its target); both are full, and the recording says so."""
    started = []

    def start_job(group, *before):
        command = [*before, *command_of(whyrss, recording)]
        record = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=enter(group))
        started.append(record)
        target = int(record.stdout.readline().split()[1])
        wait_until_seen(whyrss, recording)
        return record, target
    yield start_job
    for record in started:
        with contextlib.suppress(ProcessLookupError):
            record.kill()
        record.wait(PATIENCE_S)
        record.stdout.close()
    if recording.exists():
        pool = pathlib.Path(manifest_of(recording)["pool_path"])
        for left in (pool, pool.with_name(pool.name + ".memory")):
            left.unlink(missing_ok=True)  # of a collector that was killed


def wait_until_seen(whyrss, recording):
    """What both hold is on disk, also as the group counts it."""
    def is_seen():
        report = whyrss.report(recording)
        held = sum(cause(process, "heap_live")["rss"]["last"] for process in report["processes"])
        counted = [reading["anon"] or 0 for reading in report["family"]["cgroup"]["readings"]]
        return (held >= 0.96 * (MAIN_MIB + WORKER_MIB) * MIB
                and max(counted, default=0) >= (MAIN_MIB + WORKER_MIB) * MIB)
    wait_until(is_seen, "the recording shows what both hold")


def check_who_held_what(verdict):
    evidence = verdict["evidence"]
    assert evidence["limit_bytes"] == LIMIT
    assert evidence["before"]["anon_bytes"] >= (MAIN_MIB + WORKER_MIB) * MIB
    most = evidence["held_by"][0]
    assert most["cause"] == "heap_live"
    assert most["line"].startswith(f"<string>:{line_of(JOB, '# keeps')}")
    assert 0.95 * (MAIN_MIB + WORKER_MIB) * MIB <= most["bytes"] <= 1.1 * (MAIN_MIB + WORKER_MIB) * MIB
    assert most["processes"] == 2
    # On a busy machine part of it may have been there a minute before the end.
    assert evidence["bytes_per_s"] > 0
    assert evidence["grown_in_last_minute"][0]["bytes"] > 0
    for text in ("held most by", "limit", "256 MiB"):
        assert text in verdict["headline"]
    assert " the group held " in verdict["why"]
    # The verdict says how the group grew until its end only where snapshots have all of it.
    assert (" the group grew by " in verdict["why"]) == (verdict["evidence"].get("unseen_bytes", 0) == 0)
    assert ("came after the last snapshot" in verdict["headline"]) == (verdict["evidence"].get("unseen_bytes", 0) > 0)


def test_with_the_collector_beside(whyrss, recording, start, shared_group):
    """The collector has left the group: it sees the others die."""
    group = shared_group(LIMIT)
    record, target = start(group)
    collector = manifest_of(recording)["collector"]["pid"]
    (group.parent / "cgroup.procs").write_text(str(collector))
    kill_all(group)
    record.wait(PATIENCE_S)
    report = whyrss.finished_report(recording)
    assert report["recording"]["exit"] == {"code": None, "signal": "SIGKILL", "oom_killed": False}
    (verdict,) = verdicts(report, "killed")
    assert verdict["pid"] == target
    assert verdict["headline"].startswith("killed by SIGKILL, which a process sent")
    assert verdict["evidence"]["end_seen"]
    check_who_held_what(verdict)
    assert not verdicts(report, "oom-killed")


def test_with_the_collector_among_them(whyrss, recording, start, shared_group):
    group = shared_group(LIMIT)
    record, target = start(group)
    assert manifest_of(recording)["collector"]["pid"] in members(group)
    before = whyrss.report(recording)
    assert not verdicts(before, "killed")  # it still runs
    os.kill(manifest_of(recording)["collector"]["pid"], signal.SIGSTOP)
    kill_all(group)
    record.wait(PATIENCE_S)
    report = whyrss.report(recording)
    assert report["recording"]["incomplete_why"] == "the collector was killed"
    assert report["recording"]["exit"] == {"code": None, "signal": None, "oom_killed": False}
    (verdict,) = verdicts(report, "killed")
    assert verdict["pid"] == target
    assert verdict["headline"].startswith("ended unseen, and so did whyrss's collector")
    assert not verdict["evidence"]["end_seen"]
    check_who_held_what(verdict)


def test_the_collector_is_killed_after_it_saw_the_end(whyrss, recording, start, shared_group):
    """Of those that are killed one after another it may be the last, and has not yet said how the main one ended."""
    group = shared_group(LIMIT)
    record, target = start(group)
    record.kill()
    os.kill(target, signal.SIGKILL)
    wait_until(lambda: whyrss.report(recording)["processes"][0]["ended_s"] is not None, "the collector saw it end")
    kill_all(group)
    manifest = manifest_of(recording)
    (recording / "manifest.json").write_text(json.dumps({**manifest, "exit": {"code": None, "signal": None}}))
    report = whyrss.report(recording)
    assert report["recording"]["incomplete_why"] == "the collector was killed"
    assert report["recording"]["exit"] == {"code": None, "signal": "SIGKILL", "oom_killed": False}
    (verdict,) = verdicts(report, "killed")
    assert verdict["pid"] == target
    assert verdict["headline"].startswith("killed by SIGKILL")
    assert verdict["evidence"]["end_seen"]
    check_who_held_what(verdict)


def test_the_kernel_killed_it_and_then_all_others(whyrss, recording, start, shared_group):
    """As with memory.oom.group: the collector is gone before it could tell of it."""
    group = shared_group(LIMIT)
    record, target = start(group)
    os.kill(manifest_of(recording)["collector"]["pid"], signal.SIGSTOP)
    os.kill(target, signal.SIGUSR1)
    wait_until(lambda: not is_running(target), "the kernel has killed it")
    kill_all(group)
    record.wait(PATIENCE_S)
    report = whyrss.report(recording)
    if report["recording"]["capabilities"]["kernel_log"] is not True:
        pytest.skip("the kernel's log is not readable")
    assert report["recording"]["incomplete_why"] == "the collector was killed"
    assert report["recording"]["exit"]["oom_killed"] is True
    (verdict,) = verdicts(report, "oom-killed")
    assert verdict["pid"] == target
    assert verdict["evidence"]["certain"]
    assert verdict["evidence"]["killed"][0]["anon_bytes"] >= MAIN_MIB * MIB
    check_who_held_what(verdict)
    assert not verdicts(report, "killed")


def test_the_collector_alone_is_killed(whyrss, recording, start, shared_group):
    """While the program goes on, no verdict says that it was killed; when it has ended later, how is not known."""
    _, target = start(shared_group(LIMIT))
    os.kill(manifest_of(recording)["collector"]["pid"], signal.SIGKILL)
    wait_until(lambda: whyrss.report(recording)["recording"]["incomplete_why"] == "the collector was killed", "it is gone")
    assert not verdicts(whyrss.report(recording), "killed")
    os.kill(target, signal.SIGTERM)
    wait_until(lambda: not is_running(target), "the program has ended")
    report = whyrss.report(recording)
    assert report["recording"]["exit"] == {"code": None, "signal": None, "oom_killed": False}
    (verdict,) = verdicts(report, "killed")
    assert not verdict["evidence"]["end_seen"]
    assert "the collector alone died, and the program ended later" in verdict["why"]
    assert "ended unseen" in verdict["headline"]


def kill_another_one_of(group):
    """The kernel kills another process of the group, for lack of memory."""
    hog = subprocess.run([DEBIAN, "-c", HOG], preexec_fn=enter(group), timeout=PATIENCE_S, check=False)
    assert hog.returncode == -signal.SIGKILL


def words_of(pid):
    return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def kill_the_job(group):
    """Of what runs in a group: the recorded program and its worker."""
    for pid in members(group):
        if words_of(pid)[0] == DEBIAN.encode():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_the_kernel_killed_another_one(whyrss, recording, start, shared_group):
    """The group's counter rose just before another process killed this job."""
    group = shared_group(LIMIT)
    record, _ = start(group)
    kill_another_one_of(group)
    kill_the_job(group)
    record.wait(PATIENCE_S)
    report = whyrss.finished_report(recording)
    if report["recording"]["capabilities"]["kernel_log"] is not True:
        pytest.skip("the kernel's log is not readable: that it was the other one cannot be known")
    assert report["recording"]["exit"]["oom_killed"] is False
    assert not verdicts(report, "oom-killed")
    assert verdicts(report, "killed")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_whom_the_kernel_killed_is_not_known(whyrss, recording, start, shared_group):
    """In a container the kernel's log has other numbers."""
    unshare = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no pid namespaces here")
    group = shared_group(LIMIT)
    # The first process of a namespace takes all others with it when it ends: the collector has to finish.
    start(group, *unshare, "sh", "-c", '"$@"; exec sleep 1000', "sh")
    (collector,) = [pid for pid in members(group) if b"collect" in words_of(pid)]
    os.kill(collector, signal.SIGSTOP)  # so that it cannot see one after the other
    kill_another_one_of(group)
    kill_the_job(group)
    os.kill(collector, signal.SIGCONT)
    report = whyrss.finished_report(recording)
    assert report["recording"]["capabilities"]["kernel_log"] is not True
    assert report["recording"]["exit"]["oom_killed"] is True
    (verdict,) = verdicts(report, "oom-killed")
    assert verdict["headline"].startswith("probably killed by the kernel at the memory limit of 256 MiB")
    assert verdict["evidence"]["certain"] is False
