"""Where the machine allows less: a program runs as it does bare, the report says what it cannot know and how that
would be allowed, and the rest of it stays right.

Kernels that refuse perf_event_open by sysctl (perf_event_paranoid 3 and 4 of Debian and Ubuntu) answer EACCES or EPERM
to ordinary users; a seccomp filter, as container engines have it, stands for them here.
"""
import os
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S
from expected.report_reading import assert_conserved, cause

MIB = 1 << 20
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]

PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { kMiB = 1 << 20 };
__attribute__((noinline, noclone)) static char *held(void) {
  char *block = malloc(32 * kMiB);
  memset(block, 1, 32 * kMiB);
  return block;
}
__attribute__((noinline, noclone)) static char *mapped(void) {
  char *pages = mmap(NULL, 16 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  madvise(pages, 16 * kMiB, MADV_NOHUGEPAGE);
  memset(pages, 2, 16 * kMiB);
  return pages;
}
int main(void) {
  volatile char *block = held(), *pages = mapped();
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    usleep(500000);
    for (int at = 0; at < 4 * kMiB; at += 4096) pages[at] = 3;
    usleep(500000);
    _exit(pages[0] + block[5]);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("child %d, %d\n", WEXITSTATUS(status), block[5] + pages[5 * kMiB]);
  usleep(500000);
  return 9;
}
"""


class Place:
    """Where an ordinary user may read the programs and write a recording."""

    def __init__(self, whyrss, program, folder):
        self.folder, self.program, self.recording = folder, folder / "program", folder / "recording"
        shutil.copy(program, self.program)
        for name in ("bin", "lib"):
            (folder / name).mkdir()
        self.whyrss = shutil.copy(whyrss.program, folder / "bin" / "whyrss")
        shutil.copy(whyrss.shim, folder / "lib" / "libwhyrss.so")

    def record(self, prefix):
        words = [*prefix, self.whyrss, "record", "-q", "-o", self.recording, "--", self.program]
        return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=self.folder)


@pytest.fixture
def place(whyrss, compile_c, open_folder):
    return Place(whyrss, compile_c(PROGRAM, "-fno-inline", "-fno-optimize-sibling-calls"), open_folder)


@pytest.fixture
def nobody():
    if os.geteuid() != 0:
        return []  # an ordinary user already
    if shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    return NOBODY


def checked(whyrss, place, prefix):
    """Records; what holds whatever is refused. The JSON report, the report for people."""
    bare = subprocess.run([*prefix, place.program], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bare.returncode == 9, bare.stderr
    recorded = place.record(prefix)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (bare.returncode, bare.stdout, "")
    report = whyrss.finished_report(place.recording)
    assert_conserved(report)
    assert len(report["processes"]) == 2
    text = whyrss.run("report", place.recording)
    assert text.returncode == 0, text.stderr
    return report, text.stdout


def assert_lines_are_right(report):
    parent = report["processes"][0]
    for slug, function, size in (("heap_live", "held", 32 * MIB), ("anonymous", "mapped", 16 * MIB)):
        found = sum(site["growth"] for site in cause(parent, slug)["sites"]
                    if function in [frame["function"] for frame in site["stack"]])
        assert abs(found - size) <= 64 * 1024, (slug, found)


def assert_nobody_touched(report):
    capabilities = report["recording"]["capabilities"]
    assert capabilities["touch"] == "none"
    for process in report["processes"]:
        assert process["touch"]["samples"] == process["touch"]["faults"] == 0
        assert not any(site["touched_by"] for entry in process["causes"] for site in entry["sites"])


@pytest.mark.parametrize("action, reason", [
    ("eperm", "perf_event_open is not permitted: sysctl kernel.perf_event_paranoid=2"),
    ("enosys", "this kernel has no page-fault events")])
def test_a_container_that_refuses_all_of_it(whyrss, forbid, place, action, reason):
    report, text = checked(whyrss, place, forbid(action, "perf_event_open", "userfaultfd", "process_madvise"))
    assert_lines_are_right(report)
    assert_nobody_touched(report)
    assert all(process["touch"]["off_reason"].startswith(reason) for process in report["processes"])
    assert report["recording"]["capabilities"]["write_tracking"] is False
    assert "no page-fault samples" in text and "no write tracking" in text
    # From the pages' exclusive bits: of a pair both sides' pages turn exclusive when one of them copies.
    child = report["processes"][1]
    assert child["cow"]["copied"] >= 4 * MIB


@pytest.mark.parametrize("call", ["perf_event_open", "userfaultfd"])
def test_a_filter_that_kills_is_not_provoked(whyrss, forbid, place, call):
    """Only the program: who asks for the recording has the rights that he has."""
    prefix = forbid("kill", call)
    bare = subprocess.run([*prefix, place.program], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    words = [place.whyrss, "record", "-q", "-o", place.recording, "--", *prefix, place.program]
    result = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (bare.returncode, bare.stdout, "")
    report = whyrss.finished_report(place.recording)
    assert_conserved(report)
    assert_lines_are_right(report)
    reasons = [process["touch"]["off_reason"] for process in report["processes"]]
    if call == "perf_event_open":
        assert reasons == ["a seccomp filter kills for perf_event_open"] * 2


def test_an_ordinary_user(whyrss, place, nobody):
    report, text = checked(whyrss, place, nobody)
    assert_lines_are_right(report)
    assert "no pagemap" not in text
    assert report["processes"][1]["cow"]["copied"] >= 4 * MIB


def test_a_process_whose_pages_nobody_may_see(whyrss, place, nobody):
    """A program that its user may run but not read: /proc/PID/pagemap, maps and smaps are root's then."""
    place.program.chmod(0o111)
    recorded = place.record(nobody)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (9, "child 4, 3\n", "")
    report = whyrss.finished_report(place.recording)
    assert len(report["processes"]) == 2
    for process in report["processes"]:
        # Its size is public, and its events are ours; no walk reads the rest.
        assert process["moments"]["last"]["estimate"] and process["moments"]["peak"]["estimate"]
        assert process["rss"]["high_water"] - MIB < process["rss"]["peak"] <= process["rss"]["high_water"]
        assert cause(process, "heap_live")["rss"]["last"] >= 32 * MIB
        assert 0 < cause(process, "not_looked_at")["rss"]["at_peak"] < 8 * MIB
    assert_lines_are_right(report)
    assert any("pagemap cannot be read" in note for note in report["processes"][1]["notes"])
    text = whyrss.run("report", place.recording)
    assert text.returncode == 0, text.stderr
    assert "an estimate" in text.stdout
