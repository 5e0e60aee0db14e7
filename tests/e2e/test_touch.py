"""Page faults sampled inside the program: each at its address and with its stack, in the right numbers, and
the program none the wiser: its own SIGTRAP, masks, stacks and children are as without us.
"""
import collections
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

import pytest

import pool_reader
from conftest import PATIENCE_S, compiled
from fault_programs import FUNCTIONS_ON_STACKS, Functions

PAGE, PAGES = 4096, 64
# The kernel has page-fault events for us; a machine that lacks them skips what needs them, and says why.
ARMED = pool_reader.TouchState(True, "")


@pytest.fixture(scope="module")
def why_not(whyrss, tmp_path_factory):
    """Why page faults cannot be sampled on this machine; empty where they can."""
    pool = tmp_path_factory.mktemp("probe") / "pool"
    environment = {**os.environ, **pool_reader.make_pool(pool), "LD_PRELOAD": str(whyrss.shim)}
    subprocess.run(["/bin/true"], env=environment, timeout=PATIENCE_S, check=True)
    (process,) = pool_reader.read_pool(pool).values()
    (state,) = process.touch_states
    return state.why


@pytest.fixture
def touch(traced, why_not):
    """Like `traced`, where page-fault events can be had."""
    if why_not:
        pytest.skip(f"page faults cannot be sampled here: {why_not}")
    return traced


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("programs"), "touch_faults", *FUNCTIONS_ON_STACKS)


@pytest.fixture(scope="module")
def signals(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("programs"), "touch_signals")


def printed(result, name):
    (value,) = re.findall(rf"^{name} (\S+)$", result.stdout, re.M)
    return int(value, 0)


def within(process, start, pages):
    """Since the range was mapped: what lay there before is not meant."""
    since = max((before for address, size, before in process.mapped if address <= start < address + size), default=0)
    return [touch for touch in process.touches[since:] if start <= touch.address < start + pages * PAGE]


def assert_each_page_once(process, start, pages):
    found = collections.Counter(touch.address for touch in within(process, start, pages))
    assert found == {start + page * PAGE + 24: 1 for page in range(pages)}


def assert_made_in(functions, process, touches, *names):
    stacks = {tuple(functions.names(process, touch.stack_id)[:len(names)]) for touch in touches}
    assert stacks == {names}


def test_each_fault_has_its_address_and_its_stack(touch, faults, tmp_path):
    result, pool = touch([faults, "once"], cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    processes, functions = pool_reader.read_pool(pool), Functions(faults)
    parent, child = processes[printed(result, "parent")], processes[printed(result, "child")]
    assert parent.touch_states == [ARMED] and child.touch_states == [ARMED]

    fresh = printed(result, "first_touch")
    made = [touch for touch in within(parent, fresh, PAGES)
            if functions.names(parent, touch.stack_id)[0] == "first_touch"]
    assert [touch.address for touch in made] == [fresh + page * PAGE + 24 for page in range(PAGES)]
    assert_made_in(functions, parent, made, "first_touch", "once", "main")
    assert {touch.weight_faults for touch in parent.touches} == {1}

    copied = printed(result, "copy_of_file")
    assert_each_page_once(parent, copied, PAGES)
    assert_made_in(functions, parent, within(parent, copied, PAGES), "copy_of_file", "once", "main")

    # The kernel maps several cached file pages at one fault.
    read = within(parent, printed(result, "read_file_pages"), PAGES)
    assert 1 <= len(read) <= PAGES and all(touch.address % PAGE == 24 for touch in read)
    assert_made_in(functions, parent, read, "read_file_pages", "once", "main")


def test_copies_after_a_fork_are_seen_in_the_process_that_makes_them(touch, faults, tmp_path):
    result, pool = touch([faults, "once"], cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    processes, functions = pool_reader.read_pool(pool), Functions(faults)
    parent, child = processes[printed(result, "parent")], processes[printed(result, "child")]
    start, half = printed(result, "first_touch"), PAGES // 2
    assert_each_page_once(child, start, half)
    assert_made_in(functions, child, within(child, start, half), "copy_in_child", "once", "main")
    second = [touch for touch in within(parent, start + half * PAGE, half)
              if functions.names(parent, touch.stack_id)[0] != "first_touch"]
    assert [touch.address for touch in second] == [start + page * PAGE + 24 for page in range(half, PAGES)]
    assert_made_in(functions, parent, second, "copy_in_parent", "once", "main")


@pytest.mark.parametrize("period", ["7", "61", "auto"])
def test_threads_that_fault_about_as_often_as_the_period_are_counted_right(touch, faults, period):
    """4,000 threads of ten faults each, each 7th or 61st sampled: 6 standard deviations are 21 % at 61. A period that
    began anew in each thread would give nothing there, and 7 tenths of the truth at 7."""
    count = 4000
    result, pool = touch([faults, "threads", count], touch=period, chunks=3 * count)
    assert result.returncode == 0, result.stdout + result.stderr
    (process,) = pool_reader.read_pool(pool).values()
    samples = within(process, printed(result, "touch_in_thread"), count * 10)
    weights = {touch.weight_faults for touch in samples}
    assert weights == ({7, 61} if period == "auto" else {int(period)})
    chance = min(10 / max(weights), 0.5)
    six_sigma = 6 * (count * chance * (1 - chance)) ** 0.5 * max(weights)
    assert abs(sum(touch.weight_faults for touch in samples) - count * 10) < six_sigma
    assert_made_in(Functions(faults), process, samples, "touch_in_thread", "thread_of_ten")


def test_auto_begins_close_and_goes_on_wide(touch, compile_c):
    program = compile_c("""
#include <sys/mman.h>
int main(void) {
  enum { kPages = 20000 };
  volatile char *pages = mmap(0, kPages * 4096L, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise((void *)pages, kPages * 4096L, MADV_NOHUGEPAGE);
  for (long i = 0; i < kPages; ++i) pages[i * 4096] = 1;
  return 0;
}
""")
    result, pool = touch([program], touch="auto")
    assert result.returncode == 0, result.stderr
    (process,) = pool_reader.read_pool(pool).values()
    weights = [touch.weight_faults for touch in process.touches]
    assert weights == sorted(weights) and set(weights) == {7, 61}
    close = 7 * weights.count(7)
    # What was sampled but not recorded (a fault of ours) counts towards the change.
    missed = sum(touch.missed_faults for touch in process.touches)
    assert 2000 - missed <= close <= 2000 + 7
    # All faults but the part of a period at the beginning, at the change and at the end.
    assert abs(sum(weights) + missed - 20000) < 4 * 61 + 500


@pytest.mark.parametrize("what", ["small_stacks", "coroutines", "alternate_stack"])
def test_stacks_without_room_for_a_signal_are_left_alone(touch, faults, what):
    bare = subprocess.run([faults, what], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bare.returncode == 0, bare.stdout
    result, pool = touch([faults, what])
    assert (result.returncode, result.stdout, result.stderr) == (0, bare.stdout, "")
    (process,) = pool_reader.read_pool(pool).values()
    functions = Functions(faults)
    # The smallest alternate stack of some processors has no room to take a stack either: such a fault has none.
    may_lack = what == "alternate_stack"
    assert any("first_touch" in functions.names(process, touch.stack_id) or (may_lack and touch.stack_id == 0)
               for touch in process.touches)


def test_children_by_spawn_never_die_of_our_signal(touch, faults):
    result, _ = touch([faults, "spawn", 200], chunks=16384, slots=1024)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


def test_a_storm_of_faults_and_signals_does_no_harm(touch, faults):
    result, _ = touch([faults, "storm", 300])
    assert (result.returncode, result.stdout) == (0, ""), result.stderr


@pytest.mark.parametrize("what", ["handlers", "masks", "wait", "raw", "inherit", "die raise", "die kill", "die int3",
                                  "die blocked_int3", "die ignored_int3", "die once"])
@pytest.mark.parametrize("period", ["1", "auto"])
def test_sigtrap_is_the_programs_own(touch, signals, what, period):
    command = [signals, *what.split()]
    bare = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if what.startswith("die"):
        assert bare.returncode == -signal.SIGTRAP
    result, pool = touch(command, touch=period)
    assert (result.returncode, result.stdout, result.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    process = next(iter(pool_reader.read_pool(pool).values()))
    while process.earlier is not None:
        process = process.earlier
    assert process.touch_states[0] == ARMED


def test_python_handles_sigtrap_itself(touch):
    code = ("import os, signal, sys\n"
            "print(signal.getsignal(signal.SIGTRAP))\n"
            "signal.signal(signal.SIGTRAP, lambda number, frame: print('called', number, frame.f_code.co_name))\n"
            "def raised():\n  blocks = [bytearray(100000) for _ in range(50)]\n  os.kill(os.getpid(), signal.SIGTRAP)\n"
            "  return blocks\n"
            "raised()\n"
            "print(signal.sigtimedwait({signal.SIGTRAP}, 0))\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n"
            "raised()\n"
            "print(sorted(signal.sigpending()))\n"
            "signal.signal(signal.SIGTRAP, signal.SIG_DFL)\n"
            "sys.stdout.flush()\n"
            "signal.pthread_sigmask(signal.SIG_UNBLOCK, range(1, 65))\n"
            "print('not reached')\n")
    command = ["/usr/bin/python3", "-c", code]
    bare = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bare.returncode == -signal.SIGTRAP and "called 5 raised" in bare.stdout
    result, _ = touch(command)
    assert (result.returncode, result.stdout, result.stderr) == (bare.returncode, bare.stdout, bare.stderr)


def states_of(pool):
    return [state for process in pool_reader.read_pool(pool).values() for state in process.touch_states]


def test_off_means_off(traced, faults, tmp_path):
    result, pool = traced([faults, "once"], touch="off", cwd=tmp_path)
    assert result.returncode == 0
    assert states_of(pool)[0] == pool_reader.TouchState(False, "switched off by touch=off")
    assert not any(process.touches for process in pool_reader.read_pool(pool).values())


def test_a_parent_that_ignores_sigtrap_is_obeyed(touch, signals):
    def ignore():
        signal.signal(signal.SIGTRAP, signal.SIG_IGN)
    result, pool = touch([signals, "die", "raise"], preexec_fn=ignore)
    assert (result.returncode, result.stdout) == (0, "alive\n")
    assert states_of(pool) == [pool_reader.TouchState(False, "the program ignores SIGTRAP")]


@pytest.mark.parametrize("action, why", [("eperm", "perf_event_open is not permitted"), ("kill", "seccomp filter"),
                                         ("enosys", "has no page-fault events")])
def test_a_filter_that_forbids_the_event_does_no_harm(traced, forbid, signals, action, why):
    command = [*forbid(action, "perf_event_open"), signals, "handlers"]
    bare = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    result, pool = traced(command)
    assert (result.returncode, result.stdout, result.stderr) == (bare.returncode, bare.stdout, "")
    last = states_of(pool)[-1]
    assert not last.armed and why in last.why


@pytest.mark.parametrize("tool", ["gdb", "strace"])
def test_a_tracer_has_sigtrap_to_itself(whyrss, faults, recording, tmp_path, tool):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    words = {"gdb": ["gdb", "-nx", "-batch", "-ex", "set startup-with-shell off", "-ex", "break copy_of_file",
                     "-ex", "run", "-ex", "backtrace 1", "-ex", "continue", "--args"],
             "strace": ["strace", "-o", str(tmp_path / "calls")]}[tool]
    result = whyrss.record(recording, [*words, faults, "once"], "--touch", "1", cwd=tmp_path)
    if "ptrace" in result.stderr and "not permitted" in result.stderr:
        pytest.skip("nobody may trace here")
    assert result.returncode == 0, result.stderr
    if tool == "gdb":
        assert "#0  copy_of_file" in result.stdout and "SIGTRAP" not in result.stdout
        assert "exited normally" in result.stdout
    report = whyrss.finished_report(recording)
    traced = [process for process in report["processes"] if pathlib.Path(process["exe"]).name == "touch_faults"]
    assert traced and all("tracer" in process["touch"]["off_reason"] for process in traced)


def test_the_report_counts_what_was_sampled(touch, whyrss, faults, recording, tmp_path):
    result = whyrss.record(recording, [faults, "once"], "--touch", "1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    report = whyrss.finished_report(recording)
    assert report["recording"]["capabilities"]["touch"] == "user"
    parent, child = report["processes"]
    for process, least in ((parent, 2 * PAGES + PAGES // 2), (child, PAGES // 2)):
        assert process["touch"]["off_reason"] is None
        assert process["touch"]["samples"] == process["touch"]["faults"] >= least


def test_the_report_says_why_nothing_was_sampled(whyrss, recording):
    assert whyrss.record(recording, ["/bin/true"], "--touch", "off").returncode == 0
    report = whyrss.finished_report(recording)
    assert report["recording"]["capabilities"]["touch"] == "none"
    (process,) = report["processes"]
    assert process["touch"]["off_reason"] == "switched off by touch=off"
    assert all(process["touch"][key] == 0 for key in ("samples", "faults", "missed", "kernel_faults_by_line"))
    assert process["touch"]["kernel_faults"] is None and process["touch"]["kernel_share"] is None  # of nothing sampled


PYTHON = """\
import ctypes, mmap
pages = mmap.mmap(-1, 64 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
pages.madvise(mmap.MADV_NOHUGEPAGE)
print(ctypes.addressof(ctypes.c_char.from_buffer(pages)))
def inner(page):
  pages[page * 4096 + 24] = 1
def outer(page):
  for _ in range(1):
    inner(page)
for page in range(64):
  outer(page)
"""


def test_python_frames_of_a_fault_are_those_of_its_line(touch, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PYTHON)
    result, pool = touch(["/usr/bin/python3", script])
    assert result.returncode == 0, result.stderr
    (process,) = pool_reader.read_pool(pool).values()
    start = int(result.stdout)
    assert_each_page_once(process, start, PAGES)
    shown = set()
    for fault in within(process, start, PAGES):
        frames = process.stacks[fault.stack_id].python
        codes = [process.codes[frame.code] for frame in frames]
        shown.add(tuple((code.name, pool_reader.line_of(process.python.version_hex, code, frame.last_instruction))
                        for code, frame in zip(codes, frames)))
    assert shown == {(("inner", 6), ("outer", 9), ("<module>", 11))}


QUIET_STATIC = """
#include <string.h>
#include <stdio.h>
static char pages[4 << 20];
int main(void) { memset(pages, 1, sizeof pages); puts("static"); return pages[77] + 3; }
"""
EXECUTES = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char **words;
static void *work(void *none) { for (;;) { char *block = malloc(1 << 20); memset(block, 1, 1 << 20); free(block); } return none; }
static void *leave(void *none) { usleep(20000); execv(words[1], words + 1); _exit(99); return none; }
int main(int count, char **given) {
  pthread_t thread;
  words = given;
  for (int i = 0; i < 3; ++i) pthread_create(&thread, NULL, work, NULL);
  if (count > 2) leave(NULL);
  pthread_create(&thread, NULL, leave, NULL);
  work(NULL);
}
"""


@pytest.mark.parametrize("more", [(), ("main",)])
def test_exec_ends_it_in_the_middle_of_faults(touch, compile_c, more):
    """A new program has no handler: one more SIGTRAP would kill it. It is static, so that it never gets one."""
    static = compile_c(QUIET_STATIC, "-static", name="static")
    program = compile_c(EXECUTES, "-pthread", name="executes")
    for _ in range(10):
        result, _ = touch([program, static, *more])
        assert (result.returncode, result.stdout, result.stderr) == (4, "static\n", "")


DESCRIPTORS = r"""
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
enum { kPage = 4096, kPages = 64 };
static void list(const char *who) {
  DIR *folder = opendir("/proc/self/fd");
  printf("%s:", who);
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
    if (entry->d_name[0] != '.') printf(" %s", entry->d_name);
  closedir(folder);
  puts("");
  fflush(stdout);
}
__attribute__((noinline)) static void touch_pages(const char *who, char *pages) {
  for (int i = 0; i < kPages; ++i) ((volatile char *)pages)[i * kPage + 24] = 1;
  fprintf(stderr, "%s %p\n", who, (void *)pages);
}
static char *fresh(void) {
  char *pages = mmap(NULL, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pages, kPages * kPage, MADV_NOHUGEPAGE);
  return pages;
}
static void *in_thread(void *none) {
  list("thread");
  syscall(SYS_close_range, 3, ~0U, 0);
  touch_pages("thread", fresh());
  return none;
}
int main(void) {
  list("main");
  const pid_t child = fork();
  if (child == 0) {
    list("child");
    closefrom(3);
    touch_pages("child", fresh());
    _exit(0);
  }
  list("parent");
  waitpid(child, NULL, 0);
  for (int fd = 3; fd < 4096; ++fd) close(fd);
  touch_pages("main", fresh());
  pthread_t thread;
  pthread_create(&thread, NULL, in_thread, NULL);
  pthread_join(thread, NULL);
  return 0;
}
"""


def test_no_descriptor_is_seen_and_none_is_needed(touch, compile_c):
    program = compile_c(DESCRIPTORS, "-pthread")
    bare = subprocess.run([program], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if bare.returncode != 0:
        pytest.skip("this libc has no closefrom()")
    result, pool = touch([program])
    assert result.returncode == 0
    assert sorted(result.stdout.splitlines()) == sorted(bare.stdout.splitlines())  # parent and child race
    processes = pool_reader.read_pool(pool).values()
    for who, address in re.findall(r"^(\w+) (0x\w+)$", result.stderr, re.M):
        start = int(address, 16)
        assert any({touch.address for touch in within(process, start, PAGES)} ==
                   {start + page * PAGE + 24 for page in range(PAGES)} for process in processes), who


GO = '__asm__(".pushsection .note.go.buildid, \\"a\\", @note\\n.long 4, 4, 4\\n.asciz \\"Go\\"\\n.byte 0\\n.long 0\\n.popsection");'


@pytest.mark.parametrize("kind, why", [("go", "Go programs"), ("java", "Java and .NET"), ("dotnet", "Java and .NET"),
                                       ("libjvm.so", "Java and .NET"), ("program", "")])
def test_runtimes_with_signals_of_their_own_are_left_alone(touch, compile_c, tmp_path, kind, why):
    """By what they are known by: a note of Go's linker, the launcher's name, a library."""
    flags = []
    if kind == "libjvm.so":
        library = compile_c("int nothing(void) { return 0; }", "-shared", "-fPIC", name=kind)
        flags = ["-Wl,--no-as-needed", library, f"-Wl,-rpath,{tmp_path}"]
    program = compile_c((GO if kind == "go" else "") + "int main(void) { return 5; }", *map(str, flags),
                        name="program" if kind == "libjvm.so" else kind)
    result, pool = touch([program])
    assert (result.returncode, result.stderr) == (5, "")
    (state,) = states_of(pool)
    assert state.armed == (why == "") and state.why.startswith(why)


def test_a_debugger_that_attaches_later_can_work(touch, whyrss, compile_c, recording, tmp_path):
    """It sees our signals, and its commands keep them from the program (nopass). Passed on, those of its breakpoints
    would reach the program too, which would die."""
    if shutil.which("gdb") is None:
        pytest.skip("gdb is not installed")
    program = compile_c(ATTACHED, name="attached")
    job = subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--touch", "1", "--", program],
                           stdout=subprocess.PIPE, text=True)
    try:
        pid = job.stdout.readline().strip()
        commands = ["handle SIGTRAP nostop noprint nopass", "break seldom", "continue", "backtrace 2", "continue",
                    "delete", "set var stop = 1", "detach"]
        words = [word for command in commands for word in ("-ex", command)]
        shown = subprocess.run(["gdb", "-nx", "-batch", "-p", pid, *words], capture_output=True, text=True,
                               timeout=PATIENCE_S, check=False)
        if "ptrace" in shown.stderr and "not permitted" in shown.stderr:
            pytest.skip("nobody may trace here")
        assert len(re.findall(r"^Breakpoint 1, (?:0x\w+ in )?seldom", shown.stdout, re.M)) == 2, shown.stdout + shown.stderr
        assert re.search(r"^#1 .* main ", shown.stdout, re.M), shown.stdout
        assert job.wait(timeout=PATIENCE_S) == 6
    finally:
        if job.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
            job.wait()
    report = whyrss.finished_report(recording)
    assert report["processes"][0]["touch"]["samples"] > 0


ATTACHED = """
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
volatile int stop, calls;
__attribute__((noinline)) void seldom(void) { ++calls; }
int main(void) {
  prctl(0x59616d61 /* PR_SET_PTRACER */, -1, 0, 0, 0);
  printf("%d\\n", getpid());
  fflush(stdout);
  volatile char *pages = mmap(0, 64 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  while (!stop) {
    for (int i = 0; i < 64; ++i) pages[i * 4096] = 1;
    madvise((void *)pages, 64 * 4096, MADV_DONTNEED);
    seldom();
    usleep(1000);
  }
  return 6;
}
"""
