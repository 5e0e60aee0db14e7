"""Memory given up with MADV_FREE stays resident until the kernel needs it: the report against the kernel's own sum.

The programs print what their own smaps says (LazyFree) just before and after the snapshot that they request, and do
nothing more to the end.
"""
import json
import os

import frame_reader
import jsonschema
import pytest

from conftest import unwrapped
from expected.report_reading import assert_conserved, bytes_by_line, cause, lines_of, marked_line, verdicts
from test_heap_account import preload
from test_json_schema import SCHEMA

MIB = 1 << 20
# A CPU hands pages given up on in batches: those of the last one count later (PAGEVEC_SIZE, 31 from Linux 6.10 on).
IN_HAND = 31 * os.sysconf("SC_PAGE_SIZE") * os.cpu_count()
LAZY_FREE_FRAME = 18  # shim/trace/recording_format.h

PRELUDE = """
import json, mmap, os
import whyrss
MIB = 1 << 20
def lazy_free():
    with open("/proc/self/smaps") as smaps:
        return sum(int(line.split()[1]) * 1024 for line in smaps if line.startswith("LazyFree:"))
def look(name):
    before = lazy_free()
    whyrss.snapshot()
    print(json.dumps({"who": name, "pid": os.getpid(), "before": before, "after": lazy_free()}), flush=True)
"""
GIVES_UP = PRELUDE + """
def make(size):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # maps
    memory[:] = b"x" * size
    return memory
kept = make(8 * MIB)
memory = make(32 * MIB)
def early():
    memory.madvise(mmap.MADV_FREE, 0, 8 * MIB)  # gives up early
def late():
    memory.madvise(mmap.MADV_FREE, 8 * MIB, 16 * MIB)  # gives up late
early()
late()
memory[0:4 * MIB] = b"y" * (4 * MIB)
look("rewritten")
"""
FORKS = """
if (child := os.fork()) == 0:
    memory[8 * MIB:10 * MIB] = b"z" * (2 * MIB)
    look("child")
    os._exit(0)
os.waitpid(child, 0)
memory[12 * MIB:13 * MIB] = b"z" * MIB
look("parent")
"""
LEAVES = "\nos._exit(0)\n"
TAKES_AWAY = """
memory.madvise(mmap.MADV_DONTNEED)
look("gone")
"""


def recorded(whyrss, recording, tmp_path, source, *options):
    """What the script said by name, its path, and the report."""
    script = tmp_path / "program.py"
    script.write_text(source)
    environment = {**os.environ, "PYTHONPATH": str(whyrss.shim.parent / "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    result, report = whyrss.record_whole(recording, ["/usr/bin/python3", script], *options, env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    assert_conserved(report)
    jsonschema.validate(json.loads(whyrss.report_text(recording)), SCHEMA)
    return {line["who"]: line for line in map(json.loads, result.stdout.splitlines())}, script, report


def lazy_of(process, figure="last"):
    return cause(process, "lazy_free")["rss"][figure]


def assert_as_kernel(process, said, used_again=0):
    low, high = sorted((said["before"], said["after"]))
    assert low - used_again <= lazy_of(process) <= high + IN_HAND


def advised_bytes(process, line):
    return sum(advice["growth"] for site in cause(process, "lazy_free")["sites"] for advice in site["advised_by"]
               if line in lines_of(advice["stack"]))


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_pages_given_up_and_the_call_that_did(whyrss, recording, tmp_path, mode):
    said, script, report = recorded(whyrss, recording, tmp_path, GIVES_UP + LEAVES, "--mode", mode)
    process, = report["processes"]
    assert said["rewritten"]["before"] == pytest.approx(20 * MIB, abs=MIB)
    assert_as_kernel(process, said["rewritten"])
    sites = cause(process, "lazy_free")["sites"]
    assert bytes_by_line(sites, "growth", marked_line(script, "maps")) == lazy_of(process)
    assert sum(advice["growth"] for site in sites for advice in site["advised_by"]) == lazy_of(process)
    # What was given up last is what counts: all of it, and of the call before what is left.
    assert advised_bytes(process, marked_line(script, "gives up late")) == 16 * MIB
    assert advised_bytes(process, marked_line(script, "gives up early")) == lazy_of(process) - 16 * MIB
    mapped = bytes_by_line(cause(process, "anonymous")["sites"], "resident", marked_line(script, "maps"))
    assert mapped == 40 * MIB - lazy_of(process)
    verdict, = verdicts(report, "lazy-free-growth")
    assert (verdict["severity"], verdict["bytes"]) == ("ok", lazy_of(process))
    assert "gives up" not in verdict["headline"]
    assert f"called at {script.name}:{marked_line(script, 'gives up late')[1]} in late" in verdict["headline"]
    text = whyrss.run("report", recording).stdout
    assert f"given up at {script.name}:{marked_line(script, 'gives up late')[1]}" in unwrapped(text)


def test_a_fork_child_has_what_its_parent_gave_up(whyrss, recording, tmp_path):
    said, script, report = recorded(whyrss, recording, tmp_path, GIVES_UP + FORKS + LEAVES)
    parent, child = report["processes"]
    assert_as_kernel(parent, said["parent"])
    assert_as_kernel(child, said["child"])
    # Two of the child's MiB were written and so copied: the kernel cannot take them.
    assert lazy_of(child) == pytest.approx(18 * MIB, abs=MIB)
    assert lazy_of(parent) == pytest.approx(19 * MIB, abs=MIB)
    assert bytes_by_line(cause(child, "lazy_free")["sites"], "growth", marked_line(script, "maps")) == lazy_of(child)
    own = sum(cause(child, slug)["rss"]["last"] for slug in ("fork_cow", "fork_shared", "anonymous"))
    assert own >= 40 * MIB - lazy_of(child)


def test_nothing_is_left_of_what_was_taken_away(whyrss, recording, tmp_path):
    _, _, report = recorded(whyrss, recording, tmp_path, GIVES_UP + TAKES_AWAY + 3 * 'look("again")\n' + LEAVES)
    process, = report["processes"]
    assert 19 * MIB <= lazy_of(process, "peak") <= 24 * MIB  # a walk may come before, or while, some is rewritten
    assert lazy_of(process) == 0
    pages, = recording.glob("*/pages.zst")
    kinds = [kind for kind, _ in frame_reader.frames(pages) if kind in (frame_reader.WALK, LAZY_FREE_FRAME)]
    assert LAZY_FREE_FRAME in kinds
    assert kinds[-4:] == 4 * [frame_reader.WALK]


SHORT_PROGRAM = r"""
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
int main(void) {
  char *memory = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(memory, 1, 64 << 20);
  madvise(memory, 48 << 20, MADV_FREE);
  memset(memory, 2, 8 << 20);
  return 0;
}
"""


def test_a_program_that_ends_at_once(whyrss, recording, compile_c):
    """What it gave up moves neither RSS nor faults, and is seen at its end all the same."""
    result, report = whyrss.record_whole(recording, [compile_c(SHORT_PROGRAM)])
    assert (result.returncode, result.stderr) == (0, "")
    assert_conserved(report)
    process, = report["processes"]
    assert lazy_of(process) == pytest.approx(40 * MIB, abs=MIB)
    mapped = cause(process, "anonymous")["rss"]["last"]
    assert mapped == pytest.approx(24 * MIB, abs=MIB)


C_PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char *blocks[4096];
static void *fill(size_t size) {
  return memset(malloc(size), 1, size);
}
static long lazy_free(void) {  /* allocates nothing: an allocator gives pages back when it is called */
  static char smaps[1 << 20];
  ssize_t length = 0, part;
  long sum = 0;
  int fd = open("/proc/self/smaps", O_RDONLY);
  while ((part = read(fd, smaps + length, sizeof smaps - 1 - length)) > 0) length += part;
  close(fd);
  smaps[length] = 0;
  for (char *at = smaps; (at = strstr(at, "LazyFree:")) != NULL;) sum += strtol(at += 9, NULL, 10) * 1024;
  return sum;
}
int main(void) {
  void (*snapshot)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "whyrss_snapshot");
  for (int i = 0; i < 4096; ++i) blocks[i] = fill(12 << 10);
  char *large = fill(6 << 20), *kept = fill(4 << 20);
  for (int i = 0; i < 4096; ++i) free(blocks[i]);
  free(large);
  while (lazy_free() < 24 << 20) {  /* jemalloc gives up what is free by and by, while it is called */
    usleep(10000);
    for (int j = 0; j < 100; ++j) free(fill(40 << 10));
  }
  long before = lazy_free();
  if (snapshot != NULL) snapshot();
  dprintf(1, "{\"before\": %ld, \"after\": %ld}\n", before, lazy_free());
  _exit(kept == NULL);
}
"""


@pytest.mark.parametrize("mode", ["sampled", "exact"])
@pytest.mark.parametrize(("allocator", "setting"), [("jemalloc", "MALLOC_CONF=dirty_decay_ms:10,muzzy_decay_ms:-1"),
                                                    ("mimalloc", "MIMALLOC_PAGE_RESET=1")])
def test_what_an_allocator_gives_up_is_not_retained(whyrss, recording, compile_c, monkeypatch, allocator, setting, mode):
    monkeypatch.setenv(*setting.split("=", 1))
    result = whyrss.record(recording, [compile_c(C_PROGRAM, "-ldl")], "--mode", mode, *preload(allocator))
    assert (result.returncode, result.stderr) == (0, "")
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    process, = report["processes"]
    said = json.loads(result.stdout)
    assert said["before"] >= 24 * MIB
    assert_as_kernel(process, said, used_again=IN_HAND)  # the end asks the allocator for its statistics
    kept = {slug: cause(process, slug)["rss"]["last"] for slug in ("heap_live", "heap_retained")}
    assert kept["heap_live"] == pytest.approx(4 * MIB, abs=MIB)
    assert kept["heap_retained"] <= 58 * MIB - said["before"]
    assert verdicts(report, "lazy-free-growth")
    functions = {frame["function"] for site in cause(process, "lazy_free")["sites"] for advice in site["advised_by"]
                 for frame in advice["stack"]}
    assert "main" in functions
