"""Short programs and trees of them: what they are spared, and that all of them are in the recording all the same."""
import pathlib
import platform
import subprocess
import sys

import pytest

from conftest import PATIENCE_S, manifest_of

# Blocks that are all logged, faster than anybody takes them in; with "guarded" under a filter that kills for a request
# of space (MADV_POPULATE_WRITE).
BURST = r"""
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void *volatile sink;

static void make_blocks(int count) {
  for (int i = 0; i < count; ++i) {
    sink = malloc(40000);
    free(sink);
  }
}

int main(int argc, char **argv) {
  struct sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
  make_blocks(10);
  if (argc > 1 && strcmp(argv[1], "guarded") == 0 &&
      (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0))
    return 77;
  make_blocks(30000);
  return 0;
}
"""

# Keeps a block, and ends.
KEEP = r"""
#include <stdlib.h>
#include <string.h>
void *volatile kept;
__attribute__((noinline)) void keep_it(void) { kept = memset(malloc(3 << 20), 1, 3 << 20); }
int main(void) { keep_it(); return 0; }
"""

FORKS = "import os\nfor _ in range(20):\n    pid = os.fork()\n    pid or os._exit(0)\n    os.waitpid(pid, 0)\n"


@pytest.fixture
def waiting(whyrss, recording):
    """A recording under way, of a shell that waits."""
    with subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", "sh", "-c", "echo ready; read end"],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as job:
        assert job.stdout.readline() == b"ready\n"
        yield recording
        job.stdin.close()
        job.wait(PATIENCE_S)


def test_shared_memory_is_taken_by_need(waiting):
    kernel = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
    pool = pathlib.Path(manifest_of(waiting)["pool_path"])
    if kernel < (5, 14) or pool.parent != pathlib.Path("/dev/shm"):
        pytest.skip("all of it is reserved before Linux 5.14, and where /dev/shm has no room")
    status = pool.stat()
    assert status.st_size > 16 << 20
    assert status.st_blocks * 512 < 2 << 20


def test_the_collector_is_named_as_such(waiting):
    words = pathlib.Path(f"/proc/{manifest_of(waiting)['collector']['pid']}/cmdline").read_bytes().split(b"\0")
    assert words[:2] == [b"whyrss", b"collect"]
    assert bytes(waiting) in words


@pytest.mark.parametrize("guard", ["free", "guarded"])
@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_a_burst_loses_nothing(whyrss, recording, compile_c, mode, guard):
    result = whyrss.record(recording, [compile_c(BURST), guard], "--mode", mode)
    if result.returncode == 77:
        pytest.skip("no filter can be installed here")
    assert result.returncode == 0, result.stderr
    assert whyrss.finished_report(recording)["recording"]["lost"]["events"] == 0


def test_every_command_of_a_tree_is_there(whyrss, recording):
    result = whyrss.record(recording, ["bash", "-c", "for ((i = 0; i < 40; i++)); do /bin/true; done; exit 0"])
    assert result.returncode == 0, result.stderr
    report = whyrss.finished_report(recording)
    main = manifest_of(recording)["target_pid"]
    commands = [process for process in report["processes"] if process["pid"] != main]
    assert [process["command"] for process in commands] == [["/bin/true"]] * 40
    assert {process["parent"] for process in commands} == {main}
    assert all(process["ended_s"] >= process["born_s"] for process in commands)


def test_every_fork_of_a_tree_is_there(whyrss, recording):
    command = [sys.executable, "-c", FORKS]
    result = whyrss.record(recording, command)
    assert result.returncode == 0, result.stderr
    report = whyrss.finished_report(recording)
    main = manifest_of(recording)["target_pid"]
    children = [process for process in report["processes"] if process["pid"] != main]
    assert len(children) == 20
    for child in children:
        assert (child["parent"], child["born"], child["command"]) == (main, "fork", command)


def test_names_of_a_brief_job_are_read_by_its_report(whyrss, recording, compile_c):
    program = compile_c(KEEP)
    assert whyrss.record(recording, [program]).returncode == 0
    whyrss.wait_until_complete(recording)
    manifest = manifest_of(recording)
    is_brief = manifest["ended_ns"] - manifest["started_ns"] < 100_000_000  # not on a machine with much other work
    assert (recording / "symbols.zst").exists() == (not is_brief)
    live = next(cause for cause in whyrss.report(recording)["processes"][0]["causes"] if cause["cause"] == "heap_live")
    assert any(frame["function"] == "keep_it" for site in live["sites"] for frame in site["stack"])
    assert (recording / "symbols.zst").exists()


RUNS_ON = """
import os, sys, time
while os.getppid() == int(sys.argv[2]) or not os.path.exists(sys.argv[3]):
    time.sleep(0.01)
"""


@pytest.mark.parametrize("word", ["multiprocessing.resource_tracker", "server"])
def test_what_outlives_the_command(whyrss, recording, tmp_path, word):
    """The tracker of a Pool that spawns ends some milliseconds after the job: it is waited for, a server is not."""
    ends, program = tmp_path / "ends", tmp_path / "runs_on.py"
    program.write_text(RUNS_ON)
    if word != "server":
        ends.touch()
    command = f"{sys.executable} -S {program} {word} $$ {ends} >/dev/null 2>&1 &"
    result = whyrss.run("record", "-o", recording, "--", "/bin/sh", "-c", command)
    ends.touch()
    assert result.returncode == 0
    assert ("1 process of it goes on" in result.stderr) == (word == "server"), result.stderr
    assert whyrss.finished_report(recording)["recording"]["complete"]
