"""Recording by LD_PRELOAD and WHYRSS_OUTPUT alone, for jobs whose command line cannot change."""
import os
import pathlib
import shutil
import signal
import subprocess

import pytest

import frame_reader
from conftest import PATIENCE_S, manifest_of, run, wait_until
from expected.report_reading import assert_conserved

JOB = r"""
import os, sys, time
kept = bytearray(48 << 20)
children = []
for _ in range(2):
    pid = os.fork()
    if pid == 0:
        kept[::4096] = bytes(len(kept) // 4096)
        time.sleep(0.5)
        os._exit(3)
    children.append(pid)
codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
print(codes)
try:
    os.waitpid(-1, 0)
    print("a child that is not ours")
except ChildProcessError:
    print("no other child")
sys.exit(4)
"""
EXPECTED = "[3, 3]\nno other child\n"


@pytest.fixture
def job(tmp_path):
    script = tmp_path / "job.py"
    script.write_text(JOB)
    return ["/usr/bin/python3", str(script)]


def test_children_join(whyrss, recording, job):
    result = run(*job, env=whyrss.env_only(recording))
    assert (result.returncode, result.stdout, result.stderr) == (4, EXPECTED, "")
    report = whyrss.finished_report(recording)
    assert len(report["processes"]) == 3
    main = report["processes"][0]
    assert {process["parent"] for process in report["processes"][1:]} == {main["pid"]}
    assert main["command"] == job
    assert main["rss"]["peak"] >= 48 << 20
    assert report["recording"]["lost"]["events"] == 0
    assert_conserved(report)
    pool = pathlib.Path(manifest_of(recording)["pool_path"])
    wait_until(lambda: not pool.exists(), "the shared memory is given back")


def test_who_starts_the_collector_is_no_process(whyrss, recording, job):
    """As on a busy machine, where the child between has no turn to leave."""
    slow_exits = whyrss.build / "tests/programs/slow_exits"
    recorded = ["env", f"LD_PRELOAD={whyrss.shim}", f"WHYRSS_OUTPUT={recording}", *job]
    result = run(slow_exits, *recorded)
    if result.returncode == 125:
        pytest.skip(f"this machine does not let us hold up processes: {result.stderr.strip()}")
    assert result.returncode == 4
    assert len(whyrss.finished_report(recording)["processes"]) == 3


def test_a_child_between_vfork_and_exec_is_no_process(whyrss, recording, forbid):
    """Also where kcmp cannot tell that it runs on its parent's memory, as in containers. strace delays its exec."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    slowed = [*forbid("eperm", "kcmp"), "strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=execve", "-e",
              "inject=execve:delay_enter=1500000"]
    program = "import subprocess; subprocess.run(['/bin/sleep', '0.3'])"
    recorded = ["env", f"LD_PRELOAD={whyrss.shim}", f"WHYRSS_OUTPUT={recording}", "/usr/bin/python3", "-c", program]
    assert run(*slowed, *recorded).returncode == 0
    report = whyrss.finished_report(recording)
    assert len(report["processes"]) == 2
    snapshots = frame_reader.snapshots(recording, report["processes"][1]["pid"])
    assert not [one for one in snapshots if isinstance(one, frame_reader.Walk) and one.trigger == frame_reader.FORK]


def test_a_second_run_makes_another_recording(whyrss, recording, job):
    for _ in range(3):
        assert run(*job, env=whyrss.env_only(recording)).returncode == 4
    for name in ("recording.whyrss", "recording.whyrss.1", "recording.whyrss.2"):
        assert len(whyrss.finished_report(recording.with_name(name))["processes"]) == 3


def test_tokens_and_relative_directory(whyrss, tmp_path, job):
    assert run(*job, cwd=tmp_path, env=whyrss.env_only("of-%h-%p.whyrss")).returncode == 4
    made = [path for path in tmp_path.iterdir() if path.name.startswith("of-")]
    assert len(made) == 1
    assert made[0].name.startswith(f"of-{os.uname().nodename}-") and "%" not in made[0].name
    main = whyrss.finished_report(made[0])["processes"][0]
    assert made[0].name == f"of-{os.uname().nodename}-{main['pid']}.whyrss"


def test_preload_of_the_user_is_kept(whyrss, recording, job):
    """LD_PRELOAD already set is extended by record, and children still get it."""
    jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    if not os.path.exists(jemalloc):
        pytest.skip("jemalloc is not installed")
    show = ["sh", "-c", "sh -c 'grep -c jemalloc /proc/self/maps >/dev/null && echo $LD_PRELOAD'"]
    result = whyrss.record(recording, show, env={**os.environ, "LD_PRELOAD": jemalloc})
    assert result.returncode == 0
    assert jemalloc in result.stdout and "libwhyrss.so" in result.stdout


def test_child_subreaper_meets_no_stranger(whyrss, recording, tmp_path):
    """A subreaper waits for all children until there is none: the collector must not be among them."""
    script = tmp_path / "subreaper.py"
    script.write_text(r"""
import ctypes, os, sys
PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
os.execv("/usr/bin/python3", ["/usr/bin/python3", sys.argv[1]])
""")
    reaper = tmp_path / "reaper.py"
    reaper.write_text(r"""
import os, time
own = os.fork()
if own == 0:
    if os.fork() == 0:
        time.sleep(0.3)
        os._exit(7)
    os._exit(6)
seen = []
while True:
    try:
        pid, status = os.wait()
    except ChildProcessError:
        break
    seen.append(os.waitstatus_to_exitcode(status))
print(sorted(seen))
""")
    result = run("/usr/bin/python3", script, reaper, env=whyrss.env_only(recording))
    assert (result.returncode, result.stdout, result.stderr) == (0, "[6, 7]\n", "")
    assert len(whyrss.finished_report(recording)["processes"]) == 3


def test_pid_1(whyrss, recording, job):
    """As in a container whose entry point is the job."""
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or run(*namespace, "true").returncode != 0:
        pytest.skip("this machine does not let us make a PID namespace")
    inside = ["env", f"LD_PRELOAD={whyrss.shim}", f"WHYRSS_OUTPUT={recording}", *job]
    result = run(*namespace, *inside)
    assert (result.returncode, result.stdout, result.stderr) == (4, EXPECTED, "")
    report = whyrss.report(recording)  # the kernel kills the namespace with PID 1, the collector with it
    pids = [process["pid"] for process in report["processes"]]
    assert len(pids) == 3
    assert_conserved(report)


def test_record_as_pid_1(whyrss, recording, job):
    namespace = ["unshare", "--pid", "--fork", "--mount-proc"]
    if not shutil.which("unshare") or run(*namespace, "true").returncode != 0:
        pytest.skip("this machine does not let us make a PID namespace")
    result = run(*namespace, whyrss.program, "record", "-q", "-o", recording, "--", *job)
    assert (result.returncode, result.stdout, result.stderr) == (4, EXPECTED, "")
    assert len(whyrss.report(recording)["processes"]) == 3


def test_process_that_outlives_the_main_one(whyrss, recording, tmp_path):
    script = tmp_path / "leaving.py"
    script.write_text(f"""
import os, time
pid = os.fork()
if pid == 0:
    kept = bytearray(32 << 20)
    while not os.path.exists({str(tmp_path / "stop")!r}):
        time.sleep(0.02)
    os._exit(0)
print(pid)
""")
    with open(tmp_path / "out", "w", encoding="ascii") as out:  # no pipe: the child would keep it open
        result = subprocess.run(["/usr/bin/python3", script], stdout=out, env=whyrss.env_only(recording), timeout=PATIENCE_S,
                                check=False)
    assert result.returncode == 0
    child = int((tmp_path / "out").read_text())
    report = whyrss.report(recording)
    assert not report["recording"]["complete"]
    assert "still running" in whyrss.run("report", recording).stdout
    (tmp_path / "stop").write_text("")
    report = whyrss.finished_report(recording)
    found = [process for process in report["processes"] if process["pid"] == child]
    assert found and found[0]["rss"]["peak"] >= 32 << 20


def test_wrong_settings_never_stop_the_job(whyrss, job, tmp_path):
    (tmp_path / "file").write_text("")
    for wrong in ({"WHYRSS_OUTPUT": str(tmp_path / "file" / "below")}, {"WHYRSS_OUTPUT": "/proc/no/such"},
                  {"WHYRSS_OPTS": "mode=wrong"}, {"WHYRSS_OPTS": "no_such_key=1"}, {"WHYRSS_OPTS": "===,,,"}):
        result = run(*job, env=whyrss.env_only(tmp_path / "recording", **wrong))
        assert (result.returncode, result.stdout) == (4, EXPECTED), wrong
        assert len(result.stderr.splitlines()) == 1 and "whyrss" in result.stderr, wrong


def test_without_output_nothing_happens(whyrss, job, tmp_path):
    environment = {**os.environ, "LD_PRELOAD": str(whyrss.shim)}
    environment.pop("WHYRSS_OUTPUT", None)
    result = run(*job, env=environment, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (4, EXPECTED, "")
    assert [path.name for path in tmp_path.iterdir()] == ["job.py"]


def test_exec_keeps_recording(whyrss, recording):
    result = run("sh", "-c", "exec sh -c 'exec sleep 0.3'", env=whyrss.env_only(recording))
    assert result.returncode == 0
    report = whyrss.finished_report(recording)
    assert [process["command"] for process in report["processes"]] == [["sleep", "0.3"]]


def test_signal_death_is_the_jobs_own(whyrss, recording):
    result = run("sh", "-c", "kill -TERM $$", env=whyrss.env_only(recording))
    assert result.returncode == -signal.SIGTERM
    whyrss.finished_report(recording)
    assert pathlib.Path(recording).is_dir()


EARLY_LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) {
  char name[32];
  for (int i = 0; i < 40; ++i) {
    snprintf(name, sizeof(name), "EARLY_%d", i);
    setenv(name, "value", 1);
  }
}
int early(void) { return getenv("EARLY_39") != NULL; }
"""


@pytest.mark.parametrize("variables", [{}, {"ONE_MORE": "1"}])
def test_a_library_that_sets_variables_before_us(whyrss, recording, compile_c, tmp_path, variables):
    """As tcmalloc does: its constructor runs before ours, and setenv frees the array that `environ` still names."""
    library = compile_c(EARLY_LIBRARY, "-shared", "-fPIC", name="libearly.so")
    program = compile_c("int early(void); int main(void) { return early() + 2; }", str(library), f"-Wl,-rpath,{tmp_path}")
    result = run(program, env=whyrss.env_only(recording, **variables))
    assert (result.returncode, result.stdout, result.stderr) == (3, "", "")
    assert len(whyrss.finished_report(recording)["processes"]) == 1


@pytest.mark.parametrize("variables", [{}, {"ONE_MORE": "1"}])
def test_tcmalloc(whyrss, recording, variables):
    """Its blocks are no chunks of glibc's, and what it frees looks like an empty environment."""
    tcmalloc = pathlib.Path("/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4")
    if not tcmalloc.exists():
        pytest.skip("tcmalloc is not installed")
    environment = whyrss.env_only(recording, **variables)
    environment["LD_PRELOAD"] += f":{tcmalloc}"
    result = run("/bin/echo", "hi", env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, "hi\n", "")
    assert whyrss.finished_report(recording)["processes"][0]["allocator"] == "tcmalloc"
