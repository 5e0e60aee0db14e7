"""A recording that cannot be written: the job ends as ever, and record, manifest and report name the file, the error and
what is missing."""
import os
import pathlib
import resource
import shutil
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, is_running, manifest_of, wait_until
from expected.report_reading import assert_conserved

NO_SPACE = "No space left on device"

# Fills some MiB with events in exact mode; ends with 3.
BUSY = """
import os, random, sys
numbers = random.Random(1)
kept = []
for step in range(100):
    kept.append([bytes(numbers.randrange(20, 3000)) for _ in range(800)])
    if step % 7 == 0:
        del kept[numbers.randrange(len(kept))]
pid = os.fork()
if pid == 0:
    os._exit(len(kept) > 10)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print("worked", status)
sys.exit(3)
"""

# A tree of 301 processes.
MANY = """
import os, sys
for _ in range(300):
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
print("worked 300")
sys.exit(3)
"""

# Says that it has begun, and goes on when the file is there.
PAUSING = """
import os, sys, time
folder = sys.argv[1]
def step(name):
    open(folder + "/" + name, "w").close()
    while not os.path.exists(folder + "/" + name + ".go"):
        time.sleep(0.02)
kept = [bytearray(8 << 20)]
step("begun")
kept.append(bytearray(16 << 20))
for _ in range(2000):
    bytearray(60_000)
if os.fork() == 0:
    os._exit(0)
os.wait()
step("middle")
kept.append(bytearray(24 << 20))
step("end")
print("worked", len(kept))
sys.exit(3)
"""


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "work.py"
        path.write_text(text)
        return ["/usr/bin/python3", path]
    return write


@pytest.fixture
def small_disk(tmp_path):
    """small_disk(SIZE) -> a tmpfs of that size."""
    mounted = []

    def mount(size):
        place = tmp_path / "small"
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
        if os.geteuid() != 0 or subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("this machine does not let us mount a small tmpfs")
        mounted.append(place)
        return place
    yield mount
    for place in mounted:
        subprocess.run(["umount", "-l", str(place)], check=True)


def check_named(whyrss, recording, error):
    """What the recording says by itself; the JSON report."""
    manifest = manifest_of(recording)
    assert manifest["state"].startswith("incomplete: not all")
    assert manifest["exit"] == {"code": 3, "signal": None}
    assert error in [fault["error"] for fault in manifest["write_faults"]]
    report = whyrss.report(recording)
    recorded = report["recording"]
    assert not recorded["complete"] and recorded["incomplete_why"].startswith("not all of it could be written (")
    assert [note for note in recorded["lost"]["notes"] if error in note and "could not be written from" in note]
    assert "killed" not in {verdict["id"] for verdict in report["verdicts"]}
    text = whyrss.run("report", recording)
    assert text.returncode == 0 and error in text.stdout and "ended unseen" not in text.stdout
    markdown = whyrss.run("report", recording, "--format", "markdown")
    assert error in markdown.stdout
    return report


def wait_until_closed(recording):
    def is_closed():
        manifest = manifest_of(recording)
        return manifest["state"] != "recording" and not is_running(manifest["collector"]["pid"])
    wait_until(is_closed, "the collector has ended")


@pytest.mark.parametrize("size", ["200k", "40k", "8k"])
def test_record_on_a_full_disk(whyrss, small_disk, script, size):
    recording = small_disk(size) / "recording"
    result = whyrss.record(recording, script(BUSY), "--mode", "exact")
    assert (result.returncode, result.stdout) == (3, "worked 1\n")
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("whyrss: ") and NO_SPACE in lines[0], result.stderr
    assert str(recording) in lines[0] and ".zst" in lines[0] and "missing" in lines[0]
    report = check_named(whyrss, recording, NO_SPACE)
    assert report["recording"]["lost"]["events"] > 0
    if any(process["causes"] for process in report["processes"]):
        assert_conserved(report)


def test_a_long_list_of_processes_on_a_full_disk(whyrss, small_disk, script):
    """The list finds no room in the last manifest; what happened does."""
    recording = small_disk("300k") / "recording"
    result = whyrss.record(recording, script(MANY))
    assert (result.returncode, result.stdout) == (3, "worked 300\n")
    assert len(result.stderr.splitlines()) == 1 and NO_SPACE in result.stderr
    check_named(whyrss, recording, NO_SPACE)
    manifest = manifest_of(recording)
    assert len(manifest.get("processes", [])) in (0, 301)
    assert [fault["error"] for fault in manifest["write_faults"]] == [NO_SPACE]


def test_env_only_on_a_full_disk(whyrss, small_disk, script):
    recording = small_disk("200k") / "recording"
    environment = whyrss.env_only(recording, WHYRSS_OPTS="mode=exact")
    result = subprocess.run(script(BUSY), env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (3, "worked 1\n", "")
    wait_until_closed(recording)
    report = check_named(whyrss, recording, NO_SPACE)
    assert report["recording"]["lost"]["events"] > 0


def test_no_room_for_anything(whyrss, small_disk, script, tmp_path):
    """125 and the reason; the job has not run, and nothing is left behind."""
    place = small_disk("4k")
    (place / "filler").write_bytes(bytes(4096))
    command = script(BUSY)
    result = whyrss.record(place / "recording", command)
    assert (result.returncode, result.stdout) == (125, "")
    assert len(result.stderr.splitlines()) == 1 and NO_SPACE in result.stderr
    assert [path.name for path in place.iterdir()] == ["filler"]
    result = subprocess.run(command, env=whyrss.env_only(place / "recording"), capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout) == (3, "worked 1\n")
    assert len(result.stderr.splitlines()) == 1 and NO_SPACE in result.stderr, result.stderr


class Job:
    """PAUSING under record, step by step."""

    def __init__(self, whyrss, recording, script, tmp_path):
        self.recording, self.folder = recording, tmp_path / "steps"
        self.folder.mkdir()
        command = [whyrss.program, "record", "-q", "-o", recording, "--", *script(PAUSING), self.folder]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def reach(self, step):
        wait_until(lambda: (self.folder / step).exists(), f"the job reaches {step}")

    def go_on(self, step):
        (self.folder / f"{step}.go").touch()

    def collector(self):
        return manifest_of(self.recording)["collector"]["pid"]

    def wait_for_fault(self):
        wait_until(lambda: "write_faults" in manifest_of(self.recording), "the fault stands in the manifest")

    def end(self):
        self.go_on("end")
        output, errors = self.process.communicate(timeout=PATIENCE_S)
        assert (self.process.returncode, output) == (3, "worked 3\n")
        return errors


def test_room_comes_back(whyrss, small_disk, script, tmp_path):
    """The recording goes on, and says from when to when something is missing."""
    place = small_disk("1m")
    job = Job(whyrss, place / "recording", script, tmp_path)
    job.reach("begun")
    filler = place / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    job.go_on("begun")
    job.reach("middle")
    job.wait_for_fault()
    assert manifest_of(job.recording)["state"] == "recording"
    filler.unlink()
    job.go_on("middle")
    job.reach("end")
    errors = job.end()
    assert errors.count("\n") == 1 and NO_SPACE in errors
    report = check_named(whyrss, job.recording, NO_SPACE)
    fault = manifest_of(job.recording)["write_faults"][0]
    assert 0 < fault["from_ns"] <= fault["until_ns"] < manifest_of(job.recording)["ended_ns"]
    main = report["processes"][0]
    assert main["rss"]["last"] >= 48 << 20, "the last look came when there was room again"
    assert main["ended_s"] is not None
    assert_conserved(report)


@pytest.mark.parametrize("name", ["EIO", "EDQUOT", "EROFS", "EACCES", "ENOSPC"])
def test_errors_of_writing(whyrss, script, tmp_path, recording, name):
    """Injected into the collector."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    job = Job(whyrss, recording, script, tmp_path)
    job.reach("begun")
    with subprocess.Popen(["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=pwrite64", "-e",
                           f"inject=pwrite64:error={name}", "-p", str(job.collector())], stderr=subprocess.PIPE,
                          text=True) as strace:
        job.wait_for_fault()
        for step in ("begun", "middle"):
            job.go_on(step)
        job.reach("end")
        errors = job.end()
        strace.wait(timeout=PATIENCE_S)
    error = os.strerror(getattr(__import__("errno"), name))
    assert errors.count("\n") == 1 and error in errors
    check_named(whyrss, recording, error)


def test_a_file_size_limit_on_the_way(whyrss, script, tmp_path, recording):
    job = Job(whyrss, recording, script, tmp_path)
    job.reach("begun")
    resource.prlimit(job.collector(), resource.RLIMIT_FSIZE, (16 << 10, 16 << 10))
    for step in ("begun", "middle"):
        job.go_on(step)
    job.reach("end")
    errors = job.end()
    assert errors.count("\n") == 1 and "File too large" in errors
    check_named(whyrss, recording, "File too large")


def limited(soft, hard):
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_no_file_may_grow(whyrss, script, recording):
    """Nothing can be recorded then: 125 and a reason, no signal. Only a soft limit is the job's affair."""
    command = script(BUSY)
    result = whyrss.record(recording, command, preexec_fn=limited(0, 0))
    assert (result.returncode, result.stdout) == (125, "")
    assert len(result.stderr.splitlines()) == 1 and "File too large" in result.stderr
    assert not recording.exists()
    result = whyrss.record(recording, command, preexec_fn=limited(0, resource.RLIM_INFINITY))
    assert (result.returncode, result.stdout, result.stderr) == (3, "worked 1\n", "")
    assert whyrss.finished_report(recording)["recording"]["exit"]["code"] == 3


@pytest.mark.parametrize("ignored", [False, True], ids=["default", "ignored"])
def test_the_job_has_its_own_signal(whyrss, compile_c, tmp_path, recording, ignored):
    """SIGXFSZ of a job that reaches the limit: as without us."""
    program = compile_c(r"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
int main(int count, char** words) {
  const int fd = open(words[count - 1], O_WRONLY | O_CREAT, 0600);
  return write(fd, "text", 4) == 4 ? 1 : 5;
}
""")

    def prepare():
        limited(0, resource.RLIM_INFINITY)()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN if ignored else signal.SIG_DFL)
    command = [program, tmp_path / "written"]
    bare = subprocess.run(command, preexec_fn=prepare, restore_signals=False, check=False).returncode
    assert bare == (5 if ignored else -signal.SIGXFSZ)
    result = whyrss.record(recording, command, preexec_fn=prepare, restore_signals=False)
    assert (result.returncode, result.stdout, result.stderr) == (bare, "", "")


@pytest.mark.parametrize("size", ["1m", "64k"])
def test_little_shared_memory(whyrss, script, tmp_path, size):
    """/dev/shm as small containers have it; the recording on a small disk as well."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "place"
    place.mkdir()
    recording = place / "recording"
    words = " ".join(map(str, [whyrss.program, "record", "-q", "-o", recording, "--", *script(BUSY)]))
    copy = tmp_path / "copy"
    shell = (f"mount --make-rprivate / && mount -t tmpfs -o size={size} none /dev/shm && "
             f"mount -t tmpfs -o size=4m none {place} || exit 77; {words}; status=$?; "
             f"cp -r {recording} {copy}; ls /dev/shm; exit $status")
    result = subprocess.run(["unshare", "-m", "sh", "-c", shell], capture_output=True, text=True, timeout=PATIENCE_S,
                            check=False)
    if result.returncode == 77 or "unshare" in result.stderr:
        pytest.skip("this machine does not let us mount a small /dev/shm")
    assert (result.returncode, result.stdout, result.stderr) == (3, "worked 1\n", "")
    report = whyrss.finished_report(pathlib.Path(copy))
    assert len(report["processes"]) == 2
