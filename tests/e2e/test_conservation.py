"""Causes sum to RSS, and a walk equals what smaps says of a process that stands still.

Each program makes memory of several kinds, frees some, forks, and then stops itself; the test reads
smaps of the stopped process and compares it with the walk that the collector made meanwhile.
"""
import os
import pathlib
import re
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, is_running, wait_until
from expected.report_reading import assert_conserved, cause

ALLOCATORS = {"glibc": None, "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4",
              "mimalloc": "libmimalloc.so.2"}
MIB = 1 << 20

C_PROGRAM = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
static void *blocks[20000];
static void fill(void) {
  unsigned seed = 7;
  for (int i = 0; i < 20000; ++i) { size_t size = 16 + rand_r(&seed) % 4000; blocks[i] = malloc(size); memset(blocks[i], 1, size); }
  for (int i = 0; i < 20000; ++i) if (rand_r(&seed) % 3) { free(blocks[i]); blocks[i] = NULL; }
}
int main(int c, char **v) {
  char *big = malloc(24 << 20), *own = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char *shared = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  (void)c;
  fill();
  memset(big, 1, 24 << 20); memset(own, 1, 16 << 20); memset(shared, 1, 8 << 20);
  own = mremap(own, 16 << 20, 20 << 20, MREMAP_MAYMOVE);
  munmap(own, 4 << 20);
  madvise(own + (8 << 20), 2 << 20, MADV_DONTNEED);
  madvise(own + (12 << 20), 2 << 20, MADV_FREE);
  volatile char zero = 0;
  for (size_t at = 16 << 20; at < 20 << 20; at += 4096) zero += own[at];  /* zero pages: not in RSS */
  pid_t child = fork();
  if (child == 0) { memset(big, 2, 12 << 20); raise(SIGSTOP); _exit(v[0] == NULL); }
  raise(SIGSTOP);
  waitpid(child, NULL, 0);
  return 0;
}
"""
CXX_PROGRAM = r"""
#include <csignal>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>
int main() {
  std::map<int, std::string> texts;
  std::vector<std::unique_ptr<char[]>> blocks;
  auto fill = [](std::vector<std::unique_ptr<char[]>>& into) {
    for (int i = 0; i < 300; ++i) { into.emplace_back(new char[50000]); std::memset(into.back().get(), 1, 50000); }
  };
  for (int i = 0; i < 100000; ++i) texts[i] = std::string(static_cast<unsigned>(20 + i % 60), 'x');
  for (int i = 0; i < 100000; i += 3) texts.erase(i);
  std::vector<std::unique_ptr<char[]>> others;
  std::thread thread(fill, std::ref(others));
  fill(blocks);
  thread.join();
  pid_t child = fork();
  if (child == 0) { for (auto& [number, text] : texts) text[0] = 'y'; raise(SIGSTOP); _exit(0); }
  raise(SIGSTOP);
  waitpid(child, nullptr, 0);
}
"""
PYTHON_PROGRAM = r"""
import mmap, os, signal
kept = [bytes(200) + bytes(str(number), "ascii") for number in range(100_000)]
dropped = [dict(a=number) for number in range(50_000)]
big = bytearray(24 << 20)
own = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
own.write(b"x" * (16 << 20))
file = open(os.__file__, "rb")
text = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
total = sum(text[0:len(text):4096])
del dropped
child = os.fork()
if child == 0:
    total = sum(map(len, kept))
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
os.waitpid(child, 0)
"""


def library(name):
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib"):
        if (pathlib.Path(folder) / name).exists():
            return str(pathlib.Path(folder) / name)
    return None


def stopped_children(root_pid):
    """Pids of the stopped processes below `root_pid`."""
    found = []
    for task in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = task.read_text()
        except OSError:
            continue
        state, parent = text.rpartition(")")[2].split()[:2]
        if state == "T":
            found.append((int(text.split()[0]), int(parent)))
    own = {root_pid}
    for _ in range(3):
        own |= {pid for pid, parent in found if parent in own}
    return own - {root_pid}


def smaps_rss_bytes(pid):
    """Rss of the process, and the part of it in VMAs backed by files of a disk (but for our own library)."""
    total = files = 0
    is_file = False
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            fields = line.split(maxsplit=5)
            is_file = fields[4] != "0" and not re.match(r"/dev/(shm|zero)|/memfd|/SYSV|.*/libwhyrss\.so", fields[5])
        elif line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
            files += int(line.split()[1]) * 1024 if is_file else 0
    return total, files


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("language", ["c", "c++", "python"])
def test_causes_sum_to_rss_and_walk_equals_smaps(whyrss, recording, compile_c, tmp_path, language, allocator):
    if language == "python":
        script = tmp_path / "program.py"
        script.write_text(PYTHON_PROGRAM)
        command = ["/usr/bin/python3", script]
    else:
        source, compiler, flags = (C_PROGRAM, "gcc", []) if language == "c" else (CXX_PROGRAM, "g++", ["-std=c++17", "-pthread"])
        command = [compile_c(source, *flags, compiler=compiler)]
    options = []
    if ALLOCATORS[allocator]:
        path = library(ALLOCATORS[allocator])
        if path is None:
            pytest.skip(f"{ALLOCATORS[allocator]} is not installed")
        options = ["--preload", path]
    record = subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, *options, "--", *command])
    try:
        pids = wait_until(lambda: (lambda found: found if len(found) == 2 else None)(stopped_children(record.pid)),
                          "both processes have stopped")
        wanted = {pid: smaps_rss_bytes(pid) for pid in pids}
        report = wait_until(lambda: matching_report(whyrss, recording, wanted), "a walk of both equals smaps")
        for process in report["processes"]:
            if process["pid"] in wanted:
                assert process["allocator"] == allocator
                files = cause(process, "file_cache")["rss"]["last"] + cause(process, "file_cow")["rss"]["last"]
                # Relocated pages of files that a fork child inherited are fork_shared or fork_cow.
                assert files <= wanted[process["pid"]][1]
                if process["born"] == "exec":
                    assert files == wanted[process["pid"]][1]
        assert_conserved(report)
    finally:
        for pid in stopped_children(record.pid):
            os.kill(pid, signal.SIGCONT)
        assert record.wait(PATIENCE_S) == 0
    assert_conserved(whyrss.finished_report(recording))


def matching_report(whyrss, recording, wanted):
    """The report, once the last walk of each process in `wanted` counts the bytes that smaps does.

    Events reach a live recording within a second or so: until then a process counts as untraced. What a fork child
    copies moves no RSS: a walk from before that would do, if it did not show that.
    """
    report = whyrss.report(recording)
    last = {process["pid"]: process["rss"]["last"] for process in report["processes"] if process["traced"] == "full"}
    has_copied = all(cause(process, "fork_cow")["rss"]["last"] > 0 for process in report["processes"]
                     if process["born"] == "fork" and process["pid"] in wanted and process["causes"])
    return report if has_copied and all(last.get(pid) == total for pid, (total, _) in wanted.items()) else None


def test_short_processes_cost_no_wrong_figure(whyrss, recording):
    """Hundreds of processes too short to be walked: no causes, and they are counted as such."""
    result = whyrss.record(recording, ["sh", "-c", "i=0; while [ $i -lt 300 ]; do /bin/true; i=$((i+1)); done"])
    assert result.returncode == 0
    report = whyrss.finished_report(recording)
    assert report["processes"]
    for process in report["processes"]:
        if process["causes"]:
            assert sum(entry["rss"]["last"] for entry in process["causes"]) == process["rss"]["last"]
    assert not is_running(report["processes"][0]["pid"])
