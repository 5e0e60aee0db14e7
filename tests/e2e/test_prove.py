"""`whyrss prove`: the file pages of a living process go, everything else of it stays, and it runs on."""
import os
import pathlib
import pty
import re
import resource
import shutil
import signal
import subprocess
import tempfile

import pytest

from conftest import PATIENCE_S, is_running, unwrapped, wait_until

MIB = 1 << 20
FILE_MIB = 64
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

# A private and a shared mapping of files with copied and dirty pages, and shared memory, all with checksums. It reads
# its memory all the time, and ends with 0 once asked, if everything is as it left it.
PROGRAM = r"""
import mmap, os, pathlib, sys, time, zlib
folder, mib, kind = pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
path = folder / "data.bin"
if not path.exists():
    with open(path, "wb") as file:
        file.write(os.urandom(1 << 20) * mib)
        file.flush()
        os.fsync(file.fileno())
file = open(path, "r+b" if kind == "dirty" else "rb")
flags, protection = {"private": (mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE),
                     "dirty": (mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
                     "reader": (mmap.MAP_SHARED, mmap.PROT_READ)}[kind]
data = mmap.mmap(file.fileno(), 0, flags=flags, prot=protection)
shared = mmap.mmap(-1, 8 << 20)
shared[:] = os.urandom(8 << 20)
total = sum(data[at] for at in range(0, len(data), 4096))
if kind != "reader":
    for at in range(0, len(data), 16 * 4096):
        data[at] = 7
first = zlib.crc32(data), zlib.crc32(shared)
print("ready", flush=True)
while not (folder / "end").exists():
    time.sleep(0.02)
sys.exit(0 if (zlib.crc32(data), zlib.crc32(shared)) == first else 3)
"""


class Victim:
    """The program above, until it has mapped and read all."""

    def __init__(self, folder, kind, before=()):
        self.folder = folder
        command = [*before, "/usr/bin/python3", "-c", PROGRAM, str(folder), str(FILE_MIB), kind]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout.readline() == "ready\n"
        self.pid = self.process.pid

    def smaps(self, path=None):
        """Sums over its mappings, or over those of one file, in bytes."""
        sums, wanted = {}, False
        for line in pathlib.Path(f"/proc/{self.pid}/smaps").read_text().splitlines():
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                wanted = path is None or line.endswith(str(path))
            elif wanted and line.endswith(" kB"):
                name, value, _ = line.split()
                sums[name[:-1]] = sums.get(name[:-1], 0) + int(value) * 1024
        return sums

    def end(self):
        (self.folder / "end").touch()
        assert self.process.wait(60) == 0, "its memory is not what it was"


@pytest.fixture
def victim(tmp_path):
    started = []

    def start(kind, folder=tmp_path, before=()):
        started.append(Victim(folder, kind, before))
        return started[-1]
    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        one.process.stdout.close()


@pytest.fixture
def nobodys_folder():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="whyrss-prove-", dir="/var/tmp"))
    os.chown(folder, 65534, 65534)
    yield folder
    shutil.rmtree(folder)


def may_reclaim(whyrss, pid):
    """Whether this machine lets anybody do it; else what it said is right, and the test is over."""
    result = whyrss.run("prove", pid)
    if result.returncode == 1 and re.search("Linux 5.10|CAP_SYS_NICE", result.stderr):
        pytest.skip(result.stderr.strip())
    return result


def test_clean_pages_go_copies_stay(whyrss, victim):
    one = victim("private")
    data = one.folder / "data.bin"
    before = one.smaps(data)
    result = may_reclaim(whyrss, one.pid)
    after = one.smaps(data)
    assert result.returncode == 0, result.stderr + result.stdout
    assert after["Anonymous"] == before["Anonymous"] == FILE_MIB * MIB // 16
    assert before["Rss"] == FILE_MIB * MIB
    assert after["Rss"] == after["Anonymous"], result.stdout
    assert one.smaps()["Swap"] == 0
    assert "data.bin 60 MiB" in unwrapped(result.stdout)
    assert re.search(r"it goes on \((sleeping|running)\)", result.stdout)
    assert "no leak" in unwrapped(result.stdout)
    one.end()


def test_dirty_pages_of_a_shared_mapping_are_not_lost(whyrss, victim):
    one = victim("dirty")
    result = may_reclaim(whyrss, one.pid)
    assert result.returncode == 0, result.stderr + result.stdout
    assert one.smaps(one.folder / "data.bin")["Rss"] < FILE_MIB * MIB // 4
    one.end()
    content = (one.folder / "data.bin").read_bytes()
    assert all(content[at] == 7 for at in range(0, len(content), 16 * 4096))


def test_pages_of_two_readers_stay_and_are_reported(whyrss, victim):
    first, second = victim("reader"), victim("reader")
    result = may_reclaim(whyrss, first.pid)
    assert result.returncode == 1
    assert re.search(rf"stays: \d+ MiB mapped more than once, most of it data.bin, also by pid .*\b{second.pid}\b",
                     result.stdout), result.stdout
    assert "not shown" in result.stderr
    first.end()
    second.end()


def test_last_reader_gives_its_pages(whyrss, victim):
    first, second = victim("reader"), victim("reader")
    second.process.send_signal(signal.SIGKILL)
    second.process.wait()
    result = may_reclaim(whyrss, first.pid)
    assert result.returncode == 0, result.stderr + result.stdout
    assert first.smaps(first.folder / "data.bin")["Rss"] == 0
    first.end()


def test_tree_goes_down_to_descendants(whyrss, tmp_path):
    folder = tmp_path / "child"
    folder.mkdir()
    parent = subprocess.Popen(["/bin/sh", "-c", '"$@"; exit $?', "sh", "/usr/bin/python3", "-c", PROGRAM, str(folder),
                               str(FILE_MIB), "reader"], stdout=subprocess.PIPE, text=True)
    try:
        assert parent.stdout.readline() == "ready\n"
        result = may_reclaim(whyrss, parent.pid)
        assert "data.bin" not in result.stdout
        result = whyrss.run("prove", "--tree", parent.pid)
        assert f"data.bin {FILE_MIB} MiB" in unwrapped(result.stdout), result.stderr
    finally:
        (folder / "end").touch()
        assert parent.wait(60) == 0
        parent.stdout.close()


def test_locked_pages_stay(whyrss, compile_c, tmp_path):
    data = tmp_path / "locked.bin"
    data.write_bytes(b"x" * (16 * MIB))
    program = compile_c(r"""
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
  char *data = mmap(NULL, 16 << 20, PROT_READ, MAP_SHARED, open(argv[argc - 1], O_RDONLY), 0);
  if (data == MAP_FAILED || mlock(data, 16 << 20) != 0) return 1;
  puts("ready");
  fflush(stdout);
  return getchar() == 'x' ? 0 : 2;
}
""")
    process = subprocess.Popen([program, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        pytest.skip("16 MiB may not be locked here")
    result = may_reclaim(whyrss, process.pid)
    assert "stays: 16 MiB that is locked in memory (mlock)" in unwrapped(result.stdout), result.stdout
    assert result.returncode == 1
    process.communicate("x")
    assert process.returncode == 0


@root_only
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is missing")
def test_ordinary_user_learns_what_is_missing(whyrss, victim, nobodys_folder):
    own = victim("private", folder=nobodys_folder, before=NOBODY)
    before = own.smaps()
    program = nobodys_folder / "whyrss"
    shutil.copy(whyrss.program, program)
    result = subprocess.run([*NOBODY, program, "prove", str(own.pid)], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "CAP_SYS_NICE" in result.stderr
    assert f"sudo whyrss prove {own.pid}" in result.stderr
    assert own.smaps()["Rss"] == before["Rss"]
    own.end()


@root_only
@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv is missing")
def test_process_of_another_user(whyrss, victim, nobodys_folder):
    one = victim("private")
    program = nobodys_folder / "whyrss"
    shutil.copy(whyrss.program, program)
    result = subprocess.run([*NOBODY, program, "prove", str(one.pid)], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert f"another user's process can be read by root only: run `sudo whyrss prove {one.pid}`" in result.stderr
    one.end()


def test_kernel_without_the_call(whyrss, victim, forbid):
    one = victim("private")
    result = subprocess.run([*forbid("enosys", "process_madvise"), str(whyrss.program), "prove", str(one.pid)],
                            capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "Linux 5.10" in result.stderr
    one.end()


def test_process_without_file_cache_to_speak_of(whyrss, compile_c):
    program = compile_c("#include <unistd.h>\nint main(void) { return pause(); }", "-static")
    process = subprocess.Popen([program])
    try:
        wait_until(lambda: pathlib.Path(f"/proc/{process.pid}/exe").resolve() == program, "it runs")
        result = whyrss.run("prove", process.pid)
        assert result.returncode == 0, result.stderr
        assert "nothing to prove" in unwrapped(result.stdout)
        assert is_running(process.pid)
    finally:
        process.kill()
        process.wait()


def test_bad_input(whyrss, tmp_path):
    ended = subprocess.Popen(["/bin/true"])
    ended.wait()
    for target, said in ((ended.pid, "no process"), ("0", "not the id"), ("-5", "not the id"), ("nothing", "nothing"),
                         (tmp_path, "no whyrss recording"), ("99999999999", "99999999999")):
        result = whyrss.run("prove", "--", target)
        assert result.returncode == 1, target
        assert result.stderr.startswith("whyrss: ") and said in result.stderr, target
        assert result.stderr.count("\n") == 1, result.stderr
    assert whyrss.run("prove").returncode == 2
    assert whyrss.run("prove", "--nonsense", "1").returncode == 2


def test_zombie(whyrss):
    child = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    result = whyrss.run("prove", child.pid)
    child.wait()
    assert result.returncode == 1
    assert "has ended" in result.stderr


# Maps a file that is there already, and ends as its argument says: "again" with another status from the second run on,
# "hold" with memory that no limit can take, "lock" with all of it locked, "stay" only once the folder has a file
# named end, "write" with twice as much written to another file.
RECORDED = r"""
import ctypes, mmap, os, pathlib, sys, time
folder, how = pathlib.Path(sys.argv[1]), sys.argv[2]
held = bytearray(b"x") * (64 << 20) if how == "hold" else b""
with open(folder / "data.bin", "rb") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(data[at] for at in range(0, len(data), 4096))
if how == "lock":
    assert ctypes.CDLL(None).mlockall(1) == 0  # MCL_CURRENT
if how == "write":
    with open(folder / "copy.bin", "wb") as copy:
        for _ in range(2):
            copy.write(data)
while how == "stay" and not (folder / "end").exists():
    time.sleep(0.02)
if how == "again" and (folder / "ran").exists():
    sys.exit(3)
(folder / "ran").touch()
os._exit(0)
"""


@pytest.fixture
def recorded(whyrss, recording, tmp_path):
    """recorded(HOW) -> the recording of the program above over 96 MiB of file."""
    def record(how, mib=96):
        with open(tmp_path / "data.bin", "wb") as file:
            file.write(os.urandom(MIB) * mib)
            file.flush()
            os.fsync(file.fileno())
        result = whyrss.record(recording, ["/usr/bin/python3", "-c", RECORDED, tmp_path, how])
        assert result.returncode == 0, result.stderr
        whyrss.finished_report(recording)
        return recording
    return record


def proved_again(whyrss, *arguments, **options):
    """whyrss prove of a recording, where this machine lets us make a memory group."""
    probe = whyrss.run("record", "-q", "-f", "-o", "/dev/shm/whyrss-probe-%p", "--memory-max", "512MiB", "--", "true")
    for left in pathlib.Path("/dev/shm").glob("whyrss-probe-*"):
        shutil.rmtree(left, ignore_errors=True)
    if probe.returncode == 125:
        pytest.skip(probe.stderr.strip())
    return whyrss.run("prove", "--yes", *arguments, **options)


def test_recording_runs_again_under_a_limit(whyrss, recorded):
    result = proved_again(whyrss, recorded("plain"))
    assert result.returncode == 0, result.stderr + result.stdout
    assert re.search(r"recorded +1\d\d MiB +1\d\d MiB\n  with \d\d MiB +\d\d MiB +\d\d MiB\n", result.stdout), result.stdout
    assert "no process was killed" in unwrapped(result.stdout)
    assert re.search(r"ended with exit status 0 after .*, as recorded with exit status 0", result.stdout)


def asked(whyrss, recording, answer):
    """whyrss prove on a terminal on which `answer` is typed: (exit status, what it printed)."""
    ours, terminal = pty.openpty()
    with subprocess.Popen([whyrss.program, "prove", "--show-output", recording], stdin=terminal, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True) as process:
        os.close(terminal)
        os.write(ours, answer)
        said, _ = process.communicate(timeout=PATIENCE_S)
    os.close(ours)
    return process.returncode, said


def test_nothing_runs_again_unasked(whyrss, recorded, tmp_path):
    recording = recorded("again")
    ran = set(tmp_path.iterdir())
    result = whyrss.run("prove", recording, stdin=subprocess.DEVNULL)
    assert result.returncode == 2
    assert "give --yes" in result.stderr and len(result.stderr.splitlines()) == 1
    assert re.search(r"run once more, under a memory limit of \d+ MiB: /usr/bin/python3 -c '", result.stderr), result.stderr
    status, said = asked(whyrss, recording, b"n\n")
    assert status == 0 and "[y/N]" in said and "not run" in said, said
    status, said = asked(whyrss, recording, b"\n")
    assert status == 0 and "not run" in said, said
    assert set(tmp_path.iterdir()) == ran
    proved_again(whyrss, recording)  # skips where it cannot be done
    status, said = asked(whyrss, recording, b"y\n")
    assert status == 1 and "ended with exit status 3" in said, said


def test_run_that_ends_otherwise_proves_nothing(whyrss, recorded):
    result = proved_again(whyrss, recorded("again"))
    assert result.returncode == 1
    assert "ended with exit status 3" in unwrapped(result.stdout)
    assert "it ended otherwise than recorded" in result.stderr


def test_run_that_is_killed_proves_nothing(whyrss, recorded):
    result = proved_again(whyrss, "--memory-max", "40MiB", recorded("hold"))
    assert result.returncode == 1
    assert "it was killed at 40 MiB" in result.stderr, result.stderr + result.stdout
    assert "what it holds besides file cache needs more" in result.stderr


def test_locked_file_cache_is_not_called_reclaimable(whyrss, recorded):
    if os.geteuid() != 0 and resource.getrlimit(resource.RLIMIT_MEMLOCK)[0] != resource.RLIM_INFINITY:
        pytest.skip("this user may not lock memory")
    recording = recorded("lock")
    verdict, = (entry for entry in whyrss.report(recording)["verdicts"] if entry["id"] == "file-cache-growth")
    assert verdict["evidence"]["locked_bytes"] >= 96 * MIB
    assert "locked in memory (mlock)" in verdict["headline"] and "reclaimable" not in verdict["headline"]
    result = proved_again(whyrss, "--memory-max", "40MiB", recording)
    assert result.returncode == 1
    assert "is locked in memory (mlock), which the kernel cannot take back" in result.stderr, result.stderr + result.stdout
    assert "besides file cache" not in result.stderr


def test_limit_that_is_never_reached_proves_nothing(whyrss, recorded):
    result = proved_again(whyrss, "--memory-max", "1GiB", recorded("plain"))
    assert result.returncode == 1
    assert "never came up against the limit of 1024 MiB" in result.stderr, result.stderr + result.stdout


def test_limit_that_takes_nothing_of_the_process_proves_nothing(whyrss, recorded):
    result = proved_again(whyrss, "--memory-max", "176MiB", recorded("write"))
    assert result.returncode == 1, result.stdout
    assert "as much file cache at its peak as recorded" in unwrapped(result.stderr), result.stderr + result.stdout


def test_recording_without_file_cache(whyrss, recorded):
    result = whyrss.run("prove", recorded("plain", mib=4))
    assert result.returncode == 0, result.stderr
    assert "nothing to prove" in unwrapped(result.stdout)


def test_recording_of_a_living_process(whyrss, recording, tmp_path):
    (tmp_path / "data.bin").write_bytes(os.urandom(MIB) * 32)
    job = subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", "/usr/bin/python3", "-c", RECORDED,
                            tmp_path, "stay"])
    try:
        def mapped():
            found = whyrss.run("report", recording, "--format", "json")
            return found.returncode == 0 and "data.bin" in found.stdout
        wait_until(mapped, "the recording says that the file is mapped")
        report = whyrss.report(recording)
        main = report["processes"][0]["pid"]
        may_reclaim(whyrss, main)
        result = whyrss.run("prove", recording)
        assert f"(pid {main})" in unwrapped(result.stdout), result.stderr
    finally:
        (tmp_path / "end").touch()
        assert job.wait(60) == 0


def test_command_that_is_gone(whyrss, recorded, compile_c, recording, tmp_path):
    program = compile_c(r"""
#include <fcntl.h>
#include <sys/mman.h>
int main(int argc, char **argv) {
  volatile char *data = mmap(0, 96 << 20, PROT_READ, MAP_SHARED, open(argv[argc - 1], O_RDONLY), 0);
  int sum = 0;
  for (long at = 0; at < 96 << 20; at += 4096) sum += data[at];
  return sum == 1;
}
""")
    recorded("plain")
    result = whyrss.record(tmp_path / "gone.whyrss", [program, tmp_path / "data.bin"])
    assert result.returncode == 0, result.stderr
    whyrss.finished_report(tmp_path / "gone.whyrss")
    program.unlink()
    result = whyrss.run("prove", tmp_path / "gone.whyrss")
    assert result.returncode == 1
    assert f"{program} cannot be run again here" in result.stderr, result.stderr


def test_interrupt_leaves_nothing_behind(whyrss, recorded, tmp_path):
    recording = recorded("plain")
    proved_again(whyrss, recording)  # skips where it cannot be done
    place = tmp_path / "place"
    place.mkdir()
    (tmp_path / "data.bin").unlink()
    os.mkfifo(tmp_path / "data.bin")  # the program hangs when it opens it
    process = subprocess.Popen([whyrss.program, "prove", "--yes", recording], env={**os.environ, "TMPDIR": str(place)},
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: list(place.glob("*/again/manifest.json")), "it runs again")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "interrupted" in said
    assert not list(place.iterdir())
