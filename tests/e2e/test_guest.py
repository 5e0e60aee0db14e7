"""whyrss is a guest: the program's output, status, errno, fds, environment and terminal are its own."""
import os
import pathlib
import pty
import signal
import subprocess
import time

import pytest

from conftest import PATIENCE_S, wait_until

# Every signal whose default action ends a process.
DEADLY = [number for number in sorted(signal.valid_signals()) if number not in
          (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH, signal.SIGSTOP, signal.SIGTSTP,
           signal.SIGTTIN, signal.SIGTTOU)]

ERRNO_PROGRAM = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static volatile size_t huge = SIZE_MAX / 2;
#define SHOW(what, expression) do { errno = 42; long got = (long)(expression); printf("%s %ld %d\n", what, got, errno); } while (0)
int main(void) {
  void *block = malloc(100000), *small = malloc(10), *map;
  pid_t child;
  char *none[] = {"none", NULL};
  strcpy(block, "kept");
  SHOW("malloc ok", malloc(50000) != NULL);
  SHOW("malloc huge", malloc(huge));
  SHOW("malloc zero", malloc(0) != NULL);
  SHOW("calloc overflow", calloc(huge, 16));
  SHOW("realloc huge", realloc(block, huge));
  printf("%s\n", (char *)block);
  SHOW("realloc ok", (block = realloc(block, 200000)) != NULL);
  printf("%s\n", (char *)block);
  SHOW("realloc null", realloc(NULL, 40000) != NULL);
  SHOW("realloc zero", realloc(malloc(40000), 0));
  SHOW("reallocarray overflow", reallocarray(small, huge, 16));
  SHOW("memalign odd", posix_memalign(&map, 3, 100));
  SHOW("memalign ok", posix_memalign(&map, 4096, 100000));
  SHOW("memalign aligned", (uintptr_t)map % 4096);
  SHOW("aligned_alloc", (uintptr_t)aligned_alloc(64, 65536) % 64);
  SHOW("usable", malloc_usable_size(small) >= 10);
  SHOW("free", (free(block), 0));
  SHOW("free null", (free(NULL), 0));
  SHOW("mmap zero", mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  SHOW("mmap bad fd", mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, 77, 0));
  SHOW("mmap ok", (map = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) != MAP_FAILED);
  SHOW("mremap ok", (map = mremap(map, 1 << 20, 2 << 20, MREMAP_MAYMOVE)) != MAP_FAILED);
  SHOW("mremap bad", mremap((void *)1, 4096, 8192, 0));
  SHOW("mprotect", mprotect(map, 4096, PROT_READ));
  SHOW("mprotect bad", mprotect((void *)1, 4096, PROT_READ));
  SHOW("madvise", madvise(map, 4096, MADV_DONTNEED));
  SHOW("madvise bad", madvise(map, 4096, 12345));
  SHOW("posix_madvise", posix_madvise(map, 4096, POSIX_MADV_DONTNEED));
  SHOW("munmap", munmap(map, 2 << 20));
  SHOW("munmap bad", munmap((void *)1, 4096));
  SHOW("sbrk", sbrk(4096) != (void *)-1);
  SHOW("sbrk huge", sbrk((intptr_t)1 << 46));
  SHOW("brk bad", brk((void *)(uintptr_t)-4096));
  SHOW("execv", execv("/no/such/program", none));
  SHOW("execvp", execvp("no-such-program", none));
  SHOW("spawn", posix_spawn(&child, "/no/such/program", NULL, NULL, none, environ));
  fflush(stdout);
  errno = 42;
  child = fork();
  if (child == 0) _exit(errno == 42 ? 3 : 4);
  int status, kept = errno;
  waitpid(child, &status, 0);
  printf("fork %d %d\n", kept, WEXITSTATUS(status));
  fflush(stdout);
  errno = 42;
  child = vfork();
  if (child == 0) { execv("/no/such/program", none); _exit(errno == ENOENT ? 5 : 6); }
  waitpid(child, &status, 0);
  printf("vfork %d\n", WEXITSTATUS(status));
  printf("second wait %d\n", waitpid(-1, &status, 0) == -1 && errno == ECHILD);
  return 9;
}
"""


def both(whyrss, recording, command, **options):
    """The results of a command bare and recorded."""
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, **options}
    bare = subprocess.run([str(part) for part in command], check=False, **options)
    return bare, whyrss.record(recording, command, **options)


def assert_same(bare, recorded):
    assert recorded.stdout == bare.stdout
    assert recorded.stderr == bare.stderr
    assert recorded.returncode == bare.returncode


def test_output_and_code(whyrss, recording):
    script = "echo out; echo err >&2; read line; echo got $line; exit 7"
    bare, recorded = both(whyrss, recording, ["sh", "-c", script], input="text\n")
    assert bare.returncode == 7
    assert_same(bare, recorded)
    assert whyrss.finished_report(recording)["recording"]["exit"] == {"code": 7, "signal": None, "oom_killed": False}


def test_every_deadly_signal(whyrss, tmp_path, compile_c):
    program = compile_c("#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
                        "int main(int c, char **v) { (void)c; kill(getpid(), atoi(v[1])); return 0; }")
    for number in DEADLY:
        recording = tmp_path / f"signal-{number}"
        bare, recorded = both(whyrss, recording, [program, number], cwd=tmp_path)
        assert bare.returncode == -number
        assert_same(bare, recorded)
        assert whyrss.finished_report(recording)["recording"]["exit"]["code"] is None


def test_errno_and_results(whyrss, recording, compile_c):
    bare, recorded = both(whyrss, recording, [compile_c(ERRNO_PROGRAM)])
    assert bare.returncode == 9
    assert_same(bare, recorded)


def test_open_files(whyrss, recording):
    bare, recorded = both(whyrss, recording, ["ls", "/proc/self/fd"])
    assert bare.stdout.split() == ["0", "1", "2", "3"]
    assert_same(bare, recorded)


def test_open_files_of_a_child(whyrss, recording):
    bare, recorded = both(whyrss, recording, ["sh", "-c", "ls /proc/self/fd; (ls /proc/self/fd); exec ls /proc/self/fd"])
    assert_same(bare, recorded)


def test_environment(whyrss, recording):
    def own(text):
        return sorted(line for line in text.splitlines() if not line.startswith(("WHYRSS_", "LD_PRELOAD=")))
    bare, recorded = both(whyrss, recording, ["sh", "-c", "env; sh -c env"])
    assert own(recorded.stdout) == own(bare.stdout)
    assert recorded.stderr == bare.stderr


def test_closes_all_files_and_forks(whyrss, recording, tmp_path):
    """All fds closed, new ones taken from 0 on, forked twice: each step writes to the file that it opened."""
    script = tmp_path / "closing.py"
    script.write_text(f"""
import os, sys
os.closerange(0, 4096)
first = os.open({str(tmp_path / "seen")!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
os.write(first, b"fd %d\\n" % first)
for name in (b"child", b"second child"):
    pid = os.fork()
    if pid == 0:
        kept = [bytes(1000) for _ in range(10000)]
        os.write(first, name + b" %d\\n" % os.open("/dev/null", os.O_RDONLY))
        os._exit(3)
    os.write(first, b"left by %d\\n" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
os._exit(4)
""")
    seen = []
    for _ in range(2):
        result = subprocess.run(["/usr/bin/python3", script], check=False) if not seen else \
            whyrss.record(recording, ["/usr/bin/python3", script])
        assert result.returncode == 4
        seen.append((tmp_path / "seen").read_text())
        (tmp_path / "seen").unlink()
    assert seen[0] == seen[1] == "fd 0\nchild 1\nleft by 3\nsecond child 1\nleft by 3\n"
    assert len(whyrss.finished_report(recording)["processes"]) == 3


def test_daemon_outlives_the_job(whyrss, recording, tmp_path):
    """record ends with the job; the daemon is recorded on until it ends, and is its own session's leader."""
    script = tmp_path / "daemon.py"
    script.write_text(f"""
import os, time
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for fd in range(3):
    os.dup2(null, fd)
os.closerange(3, 4096)
open({str(tmp_path / "pid")!r} + ".new", "w").write(str(os.getpid()))
os.rename({str(tmp_path / "pid")!r} + ".new", {str(tmp_path / "pid")!r})
kept = bytearray(64 << 20)
while not os.path.exists({str(tmp_path / "stop")!r}):
    time.sleep(0.05)
open({str(tmp_path / "done")!r}, "w").write("done")
""")
    result = whyrss.record(recording, ["/usr/bin/python3", script])
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    pid = int(wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the daemon runs"))
    assert not whyrss.report(recording)["recording"]["complete"]
    (tmp_path / "stop").write_text("")
    report = whyrss.finished_report(recording)
    assert (tmp_path / "done").read_text() == "done"
    daemon = [process for process in report["processes"] if process["pid"] == pid]
    assert daemon and daemon[0]["rss"]["peak"] >= 64 << 20


def test_pipe_ends_with_the_job(whyrss, recording):
    """`record | cat` ends when the job ends, though a process of the job lives on."""
    job = "sleep 600 >/dev/null 2>&1 </dev/null & echo $!"
    pipe = f"{whyrss.program} record -q -o {recording} -- sh -c '{job}' | cat"
    result = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    sleeper = int(result.stdout)
    os.kill(sleeper, 0)  # still there: no process waited for it
    os.kill(sleeper, signal.SIGKILL)
    whyrss.finished_report(recording)


def test_interrupt_at_a_terminal_arrives_once(whyrss, recording, tmp_path):
    script = tmp_path / "counter.py"
    script.write_text("""
import signal, sys, time
seen = 0
def count(number, frame):
    global seen
    seen += 1
signal.signal(signal.SIGINT, count)
print("ready", flush=True)
while not seen:
    time.sleep(0.02)
time.sleep(1.5)
print("seen", seen, flush=True)
sys.exit(5)
""")
    try:
        pid, terminal = pty.fork()
    except OSError as error:
        pytest.skip(f"no pseudo terminal: {error}")
    if pid == 0:
        os.execv(whyrss.program, [str(whyrss.program), "record", "-q", "-o", str(recording), "--", "/usr/bin/python3", str(script)])
    text = b""
    deadline = time.monotonic() + PATIENCE_S
    while b"ready" not in text and time.monotonic() < deadline:
        text += os.read(terminal, 4096)
    os.write(terminal, b"\x03")
    while b"seen" not in text or not text.endswith(b"\n"):
        assert time.monotonic() < deadline
        text += os.read(terminal, 4096)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(terminal)
    assert b"seen 1" in text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2])
def test_signal_to_record_is_passed_on(whyrss, recording, tmp_path, number):
    script = tmp_path / "waiting.py"
    script.write_text(f"""
import signal, sys, time
signal.signal({int(number)}, lambda *_: sys.exit(6))
print("ready", flush=True)
while True:
    time.sleep(0.02)
""")
    command = [str(whyrss.program), "record", "-q", "-o", str(recording), "--", "/usr/bin/python3", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as record:
        assert record.stdout.readline() == "ready\n"
        record.send_signal(number)
        assert record.wait(PATIENCE_S) == 6


def test_cannot_start(whyrss, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program\n")
    for command, code in ((["/no/such/program"], 127), (["no-such-program"], 127), ([plain], 126), ([tmp_path], 126)):
        result = whyrss.record(tmp_path / f"recording-{code}", command)
        assert result.returncode == code
        assert len(result.stderr.splitlines()) == 1 and str(command[0]) in result.stderr
        assert result.stdout == ""


HELLO = r"""
#include <stdio.h>
#include <unistd.h>
int main(int c, char **v) { fprintf(stderr, "to err\n"); printf("hello %d %s\n", c, v[c - 1]); fflush(stdout); usleep(1200000); return 5; }
"""
KINDS = {"static": ("gcc", ["-static"]), "static-pie": ("gcc", ["-static-pie"]), "musl": ("musl-gcc", []),
         "32-bit": ("gcc", ["-m32"]), "setuid": ("gcc", []),
         "asan": ("gcc", ["-fsanitize=address"]), "tsan": ("gcc", ["-fsanitize=thread"])}


@pytest.mark.parametrize("as_child", [False, True], ids=["target", "child"])
@pytest.mark.parametrize("kind", KINDS)
def test_program_that_cannot_be_preloaded(whyrss, recording, compile_c, tmp_path, kind, as_child):
    """It starts and ends as without us, not a line more on stderr, and is followed from the kernel alone."""
    compiler, flags = KINDS[kind]
    program = compile_c(HELLO, *flags, compiler=compiler, name="hello")
    if kind == "musl" and not pathlib.Path("/lib/ld-musl-x86_64.so.1").exists():
        pytest.skip("the musl loader is not installed")
    if kind == "setuid":
        if os.geteuid() != 0:
            pytest.skip("only root can make a program of another user")
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
    if kind == "32-bit":
        try:
            subprocess.run([program], capture_output=True, check=False, timeout=PATIENCE_S)
        except OSError:
            pytest.skip("this kernel runs no 32-bit programs")
    command = ["sh", "-c", f"{program} x; exit $?"] if as_child else [program, "x"]
    bare, recorded = both(whyrss, recording, command)
    assert bare.returncode == 5
    assert_same(bare, recorded)
    report = whyrss.finished_report(recording)
    found = [process for process in report["processes"] if process["command"][:1] == [str(program)]]
    assert len(found) == 1, [(process["command"], process["traced"]) for process in report["processes"]]
    assert found[0]["traced"] == "kernel"
    assert found[0]["causes"] and found[0]["rss"]["peak"] > 0


def test_exceptions_through_hooked_frames(whyrss, recording, compile_c):
    """C++ exceptions thrown past operator new and by bad_alloc are caught as without us."""
    program = compile_c(r"""
#include <cstdio>
#include <new>
#include <stdexcept>
#include <vector>
struct Throwing { char room[100000]; Throwing() { throw std::runtime_error("made"); } };
int main() {
  int caught = 0;
  for (int round = 0; round < 1000; ++round) {
    try { delete new Throwing; } catch (const std::runtime_error&) { ++caught; }
    try { std::vector<char> big(std::size_t{1} << 62); std::printf("%p", static_cast<void*>(big.data())); } catch (const std::bad_alloc&) { ++caught; }
    catch (const std::length_error&) { caught += 2; }
  }
  std::printf("%d\n", caught);
  return 0;
}
""", compiler="g++")
    assert_same(*both(whyrss, recording, [program]))


def test_children_of_every_kind(whyrss, recording):
    """fork, vfork + exec, posix_spawn, forkserver and os._exit workers all work and are all seen."""
    script = r"""
import multiprocessing, os, subprocess, sys
def work(number):
    return sum(bytearray(1 << 20)) + number
if __name__ == "__main__":
    print(subprocess.run(["/bin/echo", "by subprocess"], capture_output=True, text=True).stdout, end="")
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 3"], os.environ)
    print("spawned", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            print(method, pool.map(work, range(4)))
    sys.exit(2)
"""
    file = recording.parent / "kinds.py"
    file.write_text(script)
    bare, recorded = both(whyrss, recording, ["/usr/bin/python3", file])
    assert bare.returncode == 2
    assert_same(bare, recorded)
    report = whyrss.finished_report(recording)
    assert len(report["processes"]) >= 1 + 1 + 1 + 3 * 2
    assert sum(process["born"] == "fork" for process in report["processes"]) >= 2 + 2


STOPS_ITS_COLLECTOR = """
import json, os, signal, sys
collector = json.load(open(sys.argv[1] + "/manifest.json"))["collector"]["pid"]
os.kill(collector, signal.SIGSTOP)
kept = [bytearray(b"x" * (1 << 20)) for _ in range(32)]
print(collector)
"""


def test_an_end_of_several_steps_waits_in_vain_once(whyrss, recording, tmp_path):
    """The script ends, then the interpreter, then the process: each asks for a snapshot, and the collector is stopped."""
    program = tmp_path / "stops.py"
    program.write_text(STOPS_ITS_COLLECTOR)
    result = whyrss.record(recording, ["bash", "-c", f"kill -CONT $(/usr/bin/python3 {program} {recording})"])
    assert (result.returncode, result.stderr) == (0, "")
    assert whyrss.finished_report(recording)["recording"]["lost"]["snapshots"] == 1
