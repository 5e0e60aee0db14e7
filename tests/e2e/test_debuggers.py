"""A program under gdb or strace, recorded: the tool sees what it sees of a bare one, and nothing of whyrss's own."""
import os
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S, wait_until

PROGRAM = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int work(int n) { free(malloc(1 << 20)); return n + 1; }
static void* in_thread(void* unused) { work(1); return unused; }
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, NULL);
  pthread_join(thread, NULL);
  int status = 0;
  const pid_t child = fork();
  if (child == 0) _exit(work(2));
  if (waitpid(child, &status, 0) != child || wait(&status) != -1) return 1;
  printf("worked %d\n", work(3));
  return 7;
}
"""
# Two hits of the breakpoint, in the thread and in the main thread: the child is detached from at the fork.
STEPS = ["set breakpoint pending on", "break work", "run", "backtrace", "continue", "info threads", "continue",
         "print $_exitcode"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    folder = tmp_path_factory.mktemp("debugged")
    source = folder / "program.c"
    source.write_text(PROGRAM)
    subprocess.run(["gcc", "-O0", "-g", "-pthread", "-o", folder / "program", source], check=True)
    return folder / "program"


def run(command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          stdin=subprocess.DEVNULL, **options)


def gdb(*words, before=()):
    steps = [word for step in (*before, *STEPS) for word in ("-ex", step)]
    return ["gdb", "-nx", "-batch", *steps, *words]


def variables(whyrss, recording):
    return [f"LD_PRELOAD={whyrss.shim}", f"WHYRSS_OUTPUT={recording}"]


def by_set_environment(whyrss, recording, program):
    steps = ["set environment " + variable.replace("=", " ", 1) for variable in variables(whyrss, recording)]
    return gdb(program, before=steps)


# Commands by which gdb runs the program recorded. The first two record gdb too.
WAYS = {
    "env gdb": lambda *it: ["env", *variables(*it[:2]), *gdb(it[2])],
    "record gdb": lambda whyrss, recording, program:
        [whyrss.program, "record", "-q", "-o", recording, "--", *gdb(program)],
    "gdb --args env": lambda *it: gdb("--args", "env", *variables(*it[:2]), it[2]),
    "set exec-wrapper": lambda *it: gdb(it[2], before=["set exec-wrapper env " + " ".join(variables(*it[:2]))]),
    "set environment": by_set_environment,
}


def check_session(shown):
    assert shown.count("work (n=1)") >= 2 and "in_thread" in shown, "the breakpoint in the thread, and the backtrace"
    assert "work (n=3)" in shown
    assert "worked 4" in shown and "exited with code 07" in shown and "$1 = 7" in shown
    assert "[Detaching after fork from child process" in shown
    assert shown.count("[New Thread") == 1, "the program has one more thread"
    assert "is executing new program: /" not in shown.split("Breakpoint 1, ", 1)[1]
    threads = shown[shown.index("Target Id"):]
    assert threads.count("(LWP ") == 1, "the thread has ended when the main one is at the breakpoint"


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_gdb(whyrss, recording, program, way):
    if not shutil.which("gdb"):
        pytest.skip("gdb is not installed")
    result = run(way(whyrss, recording, program), env={**os.environ, "SHELL": "/bin/sh"})
    check_session(result.stdout + result.stderr)
    report = whyrss.finished_report(recording)
    of_program = [one for one in report["processes"] if one["command"] == [str(program)]]
    assert len(of_program) >= 2 and {one["traced"] for one in of_program} == {"full"}


@pytest.mark.parametrize("way", ["env-only", "record"])
def test_strace(whyrss, recording, program, tmp_path, way):
    """strace -f ends with the program, with its status, and shows no process that the program did not start."""
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    trace = tmp_path / "calls"
    strace = ["strace", "-f", "-qq", "-o", trace, "-e", "trace=process"]
    if way == "env-only":
        command = [*strace, "env", f"LD_PRELOAD={whyrss.shim}", f"WHYRSS_OUTPUT={recording}", program]
    else:
        command = [whyrss.program, "record", "-q", "-o", recording, "--", *strace, program]
    result = run(command)
    assert (result.returncode, result.stdout, result.stderr) == (7, "worked 4\n", "")
    calls = trace.read_text()
    assert "bin/whyrss" not in calls, "the collector is not followed"
    followed = {line.split()[0] for line in calls.splitlines()}
    assert len(followed) == 3, "the program, its thread and its child"
    wait_until(lambda: whyrss.run("report", recording).returncode == 0, "the recording reads")
    assert whyrss.finished_report(recording)["recording"]["lost"]["events"] == 0


def test_the_program_meets_no_stranger(whyrss, recording, program):
    """wait() of the program, also in the debugger's hands and as the first process of a pid namespace."""
    if os.geteuid() != 0:
        pytest.skip("pid namespaces need root")
    result = run(["unshare", "--pid", "--fork", "--mount-proc", "env", f"LD_PRELOAD={whyrss.shim}",
                  f"WHYRSS_OUTPUT={recording}", program])
    if "unshare" in result.stderr:
        pytest.skip(result.stderr.strip())
    assert (result.returncode, result.stdout) == (7, "worked 4\n"), result.stderr
