"""Whose lines made memory resident: three lines touch known parts of one mapping, and the samples of the default
period must say so within 5 %.
"""
import pathlib
import re

import pytest

from conftest import line_of
from expected.report_reading import assert_conserved, cause, lines_of
from fork_runs import assert_close, main_of

GIB, PAGE = 1 << 30, 4096
TURN = {"first": 50, "second": 30, "third": 20}  # pages of a turn, which goes round until the mapping is full
TURN_PAGES = sum(TURN.values())
TURNS = GIB // PAGE // TURN_PAGES + 1
WHOLE_BYTES = TURNS * TURN_PAGES * PAGE
WITHIN = 0.05

C_PROGRAM = r"""
#define _GNU_SOURCE
#include <stddef.h>
#include <sys/mman.h>
enum { kPage = 4096 };
static char *next;
__attribute__((noinline)) static void first(int pages) {
  for (; pages > 0; --pages, next += kPage) *next = 1;  // first
}
__attribute__((noinline)) static void second(int pages) {
  for (; pages > 0; --pages, next += kPage) *next = 2;  // second
}
__attribute__((noinline)) static void third(int pages) {
  for (; pages > 0; --pages, next += kPage) *next = 3;  // third
}
int main(void) {
  next = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);  // maps
  if (next == MAP_FAILED) return 1;
  for (int turn = 0; turn < TURNS; ++turn) { first(50); second(30); third(20); }
  return 0;
}
"""

PYTHON_PROGRAM = """
import mmap
import sys

def first(buffer, at, pages):
    for at in range(at, at + pages * 4096, 4096):
        buffer[at] = 1  # first

def second(buffer, at, pages):
    for at in range(at, at + pages * 4096, 4096):
        buffer[at] = 2  # second

def third(buffer, at, pages):
    for at in range(at, at + pages * 4096, 4096):
        buffer[at] = 3  # third

size, turns = int(sys.argv[2]), int(sys.argv[3])
if sys.argv[1] == "mmap":
    buffer = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # maps mmap
else:
    buffer = bytearray(size)  # maps bytearray
at = 0
for turn in range(turns):
    for touch, pages in ((first, 50), (second, 30), (third, 20)):
        touch(buffer, at, pages)
        at += pages * 4096
"""


@pytest.fixture(autouse=True)
def enough_memory():
    available = int(re.search(r"MemAvailable: +(\d+)", pathlib.Path("/proc/meminfo").read_text())[1]) << 10
    if available < 3 * GIB:
        pytest.skip(f"{available >> 20} MiB of memory are available, and 3 GiB are wanted")


def check(whyrss, recording, command, slug, site_line, name, program, shares=TURN):
    """`shares`: marked line -> pages of a turn that it is the first to touch."""
    result = whyrss.record(recording, command)
    assert result.returncode == 0, result.stderr
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    if report["recording"]["capabilities"]["touch"] != "user":
        pytest.skip("page faults cannot be sampled here")

    def lines(stack):
        return lines_of(stack) if name.endswith(".py") else [(pathlib.Path(frame["file"]).name, frame["line"]) for frame in stack]
    (site,) = [site for site in cause(main_of(report), slug)["sites"] if (name, site_line) in lines(site["stack"])]
    assert_close(site["resident"], WHOLE_BYTES, 0.001)
    assert sum(touch["growth"] for touch in site["touched_by"]) <= site["growth"]
    for marker, pages in shares.items():
        line = line_of(program, (f"# {marker}", f"// {marker}"))
        found = sum(touch["growth"] for touch in site["touched_by"] if lines(touch["stack"])[0] == (name, line))
        assert_close(found, TURNS * pages * PAGE, WITHIN)


def test_lines_of_c(whyrss, recording, compile_c):
    program = compile_c(C_PROGRAM, f"-DSIZE={WHOLE_BYTES}UL", f"-DTURNS={TURNS}")
    check(whyrss, recording, [program], "anonymous", line_of(C_PROGRAM, "// maps"), "program.c", C_PROGRAM)


# A bytearray is filled with zeros by the line that makes it.
@pytest.mark.parametrize("kind,slug,shares", [("mmap", "anonymous", TURN),
                                              ("bytearray", "heap_live", {"maps bytearray": TURN_PAGES, "first": 0})])
def test_lines_of_python(whyrss, recording, tmp_path, kind, slug, shares):
    script = tmp_path / "touches.py"
    script.write_text(PYTHON_PROGRAM)
    command = ["/usr/bin/python3", script, kind, str(WHOLE_BYTES), str(TURNS)]
    check(whyrss, recording, command, slug, line_of(PYTHON_PROGRAM, f"# maps {kind}"), script.name, PYTHON_PROGRAM, shares)
