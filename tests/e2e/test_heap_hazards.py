"""What programs do to allocators, under each of them and in both modes: nothing changes for the program, and the account
still adds up. `heap_hazards` keeps blocks of known sizes before and after.
"""
import os
import re
import signal
import subprocess

import pytest

from conftest import PATIENCE_S
from expected.report_reading import assert_conserved
from test_conservation import ALLOCATORS, library
from test_heap_account import MODES, PROGRAMS, assert_lines_exact, process_at, read_truth

HAZARDS = ("double_free", "double_free_large", "foreign_free", "middle_free", "edges", "too_much", "out_of_memory",
           "handlers", "jumps", "thread_ends", "many_threads", "after_main", "plugin_gone", "plugin_deep",
           "plugin_deep_crossed", "forks", "programs")
# A thread of the program is interrupted anywhere in the allocator, and in the library in front of it.
INTERRUPTED = ("handlers_anywhere", "jumps_anywhere")
MISTAKES = ("double_free", "double_free_large", "foreign_free", "middle_free", "plugin_deep_crossed")
BUMP = PROGRAMS / "bump_allocator.so"


def outcome(result, what):
    """What must be the same. Allocators print addresses, and how much a limit of address space left to them; tcmalloc
    refuses to tell the size of a foreign block, which it is asked for first, in other words than to release it.
    """
    errors = re.sub(r"(0x[0-9a-f]+|@|\s)+", " ", result.stderr)
    errors = re.sub(r"tcmalloc.cc:\d+\] Attempt to (free|get the size of an) ", "tcmalloc.cc: Attempt to free ", errors)
    return result.returncode, result.stdout, errors if what != "out_of_memory" else ""


def compare(whyrss, tmp_path, what, mode, allocator_library, program="heap_hazards"):
    command = [PROGRAMS / program, tmp_path / "truth", what, PROGRAMS / "heap_plugin.so"]
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "check": False}
    environment = dict(os.environ)
    if allocator_library:
        environment["LD_PRELOAD"] = str(allocator_library)
    bare = subprocess.run([str(part) for part in command], env=environment, **options)
    preload = ["--preload", allocator_library] if allocator_library else []
    recording = tmp_path / "recording.whyrss"
    recorded = whyrss.record(recording, command, "--mode", mode, *preload)
    assert outcome(recorded, what) == outcome(bare, what)
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    ended = report["recording"]["exit"]
    expected = signal.Signals(-bare.returncode).name if bare.returncode < 0 else None
    assert (ended["code"], ended["signal"]) == (None if expected else bare.returncode, expected)
    # A jump out of the middle of the library leaves it unaware of what follows at that depth of the stack.
    assert_stages(whyrss, recording, tmp_path, report, mode if what != "jumps_anywhere" else None)
    return bare, report


def assert_stages(whyrss, recording, tmp_path, report, mode):
    """Nothing is below 0, and what the program keeps is all there: large blocks always, every one in exact mode, unless
    events had to be dropped, which a busy machine may bring about, and which the report says.
    """
    for process in report["processes"]:
        for entry in process["causes"]:
            assert all(entry["rss"][moment] >= 0 for moment in ("first", "last", "peak", "at_peak"))
            assert all(site["resident"] >= 0 for site in entry["sites"])
    truth = read_truth(tmp_path / "truth")
    assert "before" in truth
    if report["recording"]["lost"]["events"] > 0 or mode is None:
        return
    for stage, known in truth.items():
        lines = known["lines"] if mode == "exact" else {"keep_large": known["lines"]["keep_large"]}
        assert_lines_exact(process_at(whyrss, recording, stage), lines, stage)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("what", HAZARDS)
def test_hazard(whyrss, tmp_path, what, allocator, mode):
    path = library(ALLOCATORS[allocator]) if ALLOCATORS[allocator] else None
    if ALLOCATORS[allocator] and path is None:
        pytest.skip(f"{ALLOCATORS[allocator]} is not installed")
    bare, report = compare(whyrss, tmp_path, what, mode, path)
    if what not in MISTAKES:
        assert report["recording"]["lost"]["notes"] == [] or report["recording"]["lost"]["events"] > 0
        assert bare.returncode == 7 or (what, allocator) == ("too_much", "mimalloc")  # whose operator new aborts


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("what", INTERRUPTED)
def test_interrupted_anywhere(whyrss, tmp_path, what, mode):
    bare, _ = compare(whyrss, tmp_path, what, mode, BUMP)
    assert bare.returncode == 7


@pytest.mark.parametrize("mode", MODES)
def test_program_with_its_own_malloc(whyrss, tmp_path, mode):
    """Its blocks are not seen, as its calls never leave it; what they lie on has a cause all the same."""
    command = [PROGRAMS / "heap_hazards_own", tmp_path / "truth", "many_threads"]
    recording = tmp_path / "recording.whyrss"
    recorded = whyrss.record(recording, command, "--mode", mode)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (7, "2000 threads\n", "")
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    process = process_at(whyrss, recording, "after")
    kept = sum(line["bytes"] for line in read_truth(tmp_path / "truth")["after"]["lines"].values())
    heap = sum(entry["rss"]["last"] for entry in process["causes"] if entry["cause"].startswith("heap_") or
               entry["cause"] in ("anonymous", "unknown"))
    assert heap >= kept


CROSSED = r"""
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int count, char **words) {
  static char *unseen[20000], *kept[20000];
  void *plugin = dlopen(words[1], RTLD_NOW | RTLD_DEEPBIND);
  void *(*make_block)(size_t) = (void *(*)(size_t))dlsym(plugin, "make_block");
  for (int i = 0; i < 20000; ++i) {
    memset(unseen[i] = make_block(900), 1, 900);
    memset(kept[i] = malloc(100), 1, 100);
  }
  for (int i = 0; i < 20000; ++i) free(unseen[i]);
  usleep(600000);
  return kept[count] == NULL;
}
"""


def test_blocks_that_no_hook_saw_are_missed_at_their_release(whyrss, recording, compile_c):
    """They are made by a library that has malloc to itself, and released by us, among blocks that are counted."""
    program = compile_c(CROSSED, "-ldl", name="crossed")
    assert whyrss.record(recording, [program, PROGRAMS / "heap_plugin.so"]).returncode == 0
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    notes = report["processes"][0]["notes"]
    assert any(re.search(r"on [1-9][0-9]{3} pages more was released than allocated", note) for note in notes), notes
