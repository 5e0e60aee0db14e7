"""The allocator's own counters: read where it is safe, and never where a program would end otherwise than bare."""
import os
import pathlib
import re
import subprocess

import pytest

from conftest import PATIENCE_S, ROOT, wait_until

ALLOCATORS = {"glibc": None, "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4",
              "mimalloc": "libmimalloc.so.2"}
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
OWN_NAMES = {"glibc": "uordblks", "jemalloc": "stats.allocated", "tcmalloc": "generic.current_allocated_bytes",
             "mimalloc": "current_commit"}

# Says what it holds at its snapshot: usable bytes and blocks, of which every second small one was freed. Before that two
# threads make blocks that a third one frees: much more than a page holds comes and goes on each page.
HEAP = r"""
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "whyrss.h"
enum { kBlocks = 200000, kLarge = 30, kPassed = 1000, kRounds = 400 };
static char *small[kBlocks], *large[kLarge], *passed[2][kPassed];
static pthread_barrier_t turn;
static void *make(void *row) {
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kPassed; ++i) ((char **)row)[i] = malloc(20 + i % 100);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
  }
  return NULL;
}
static void *take(void *unused) {
  for (int round = 0; round < kRounds; ++round) {
    pthread_barrier_wait(&turn);
    for (int i = 0; i < 2 * kPassed; ++i) free(passed[i / kPassed][i % kPassed]);
    free(malloc(100000 + round));
    pthread_barrier_wait(&turn);
  }
  return unused;
}
int main(void) {
  size_t bytes = 0;
  pthread_t threads[3];
  pthread_barrier_init(&turn, NULL, 3);
  pthread_create(&threads[0], NULL, make, passed[0]);
  pthread_create(&threads[1], NULL, make, passed[1]);
  pthread_create(&threads[2], NULL, take, NULL);
  for (int i = 0; i < 3; ++i) pthread_join(threads[i], NULL);
  unsigned seed = 1;
  for (int i = 0; i < kBlocks; ++i) {
    seed = seed * 1664525u + 1013904223u;
    small[i] = malloc(16 + (seed >> 16) % 1500);
    small[i][0] = 1;
  }
  for (int i = 0; i < kLarge; ++i) memset(large[i] = malloc(40000 + i * 50000), 1, 40000);
  for (int i = 0; i < kBlocks; i += 2) { free(small[i]); small[i] = NULL; }
  for (int i = 0; i < kBlocks; ++i) if (small[i]) bytes += malloc_usable_size(small[i]);
  for (int i = 0; i < kLarge; ++i) bytes += malloc_usable_size(large[i]);
  printf("%zu %d\n", bytes, kBlocks / 2 + kLarge);
  WHYRSS_SNAPSHOT();
  return 0;
}
"""

# glibc holds the arena's lock (a thread has been started) as it finds the double free and ends by SIGABRT, whose
# handler exits: no call into malloc may follow.
EXIT_WHILE_LOCKED = r"""
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static void leave(int signal) { exit(signal + 30); }
static void *wait_for_ever(void *unused) { pause(); return unused; }
int main(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_ever, NULL);
  signal(SIGABRT, leave);
  char *volatile block = malloc(5000), *volatile behind = malloc(5000);
  free(block);
  free(block);
  return behind == NULL;
}
"""

# A handler that nothing is known about: what it interrupted may hold locks.
EXIT_IN_HANDLER = r"""
#include <signal.h>
#include <stdlib.h>
static void leave(int signal) { exit(signal); }
int main(void) { signal(SIGUSR1, leave); free(malloc(100)); raise(SIGUSR1); return 1; }
"""

FAMILY = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int count, char **arguments) {
  int status;
  (void)count;
  for (int i = 0; i < 40000; ++i) if (malloc(100) == NULL) return 2;
  pid_t child = strcmp(arguments[1], "fork") == 0 ? fork() : strcmp(arguments[1], "_Fork") == 0 ? _Fork() :
      (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (child == 0) { char *block = malloc(100000); memset(block, 1, 100000); _exit(block == NULL); }
  return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
"""

# Grows by 5 MiB a second until its standard input ends.
GROWING = r"""
#include <poll.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
  struct pollfd end = {.fd = 0, .events = POLLIN};
  while (poll(&end, 1, 20) == 0) { char *block = malloc(100000); if (block == NULL) return 1; memset(block, 1, 100000); }
  return 0;
}
"""

# Writes into a block after it was freed, as many programs do without harm.
WRITES_AFTER_FREE = r"""
#include <stdlib.h>
#include <string.h>
int main(void) {
  for (int i = 0; i < 10; ++i) {
    char *volatile block = malloc(2000), *volatile behind = malloc(100);
    free(block);
    if (i == 9) memset(block, 'x', 64);
    if (behind == NULL || malloc(2000 + 16 * i) == NULL) return 1;
  }
  char *volatile block = malloc(30 << 20);
  memset(block, 1, 30 << 20);
  return 7;
}
"""

NEW_HANDLER = r"""
#include <cstdint>
#include <cstdlib>
#include <new>
static volatile std::size_t huge = SIZE_MAX / 4;
static void *volatile made;
int main() { std::set_new_handler([] { std::exit(5); }); made = operator new(huge); return made == nullptr; }
"""


def preload(allocator):
    """What record needs, for this allocator to be asked."""
    name = ALLOCATORS[allocator]
    if name is None:
        return ["--allocator-stats", "on"]
    if not (LIBRARIES / name).exists():
        pytest.skip(f"{name} is not installed")
    return ["--preload", LIBRARIES / name]


def record_as_bare(whyrss, recording, program, *arguments, options=("--allocator-stats", "on")):
    """Records a program that must end as it does alone (with its allocator); returns what it printed and its report."""
    env = {**os.environ, "LD_PRELOAD": str(options[1])} if "--preload" in options else None
    bare = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=env)
    recorded = whyrss.record(recording, [program, *arguments], *options)
    assert (recorded.returncode, recorded.stderr) == (bare.returncode, bare.stderr)
    return recorded.stdout, whyrss.finished_report(recording)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_its_count_is_the_programs(whyrss, recording, compile_c, allocator):
    options = preload(allocator)
    program = compile_c(HEAP, f"-I{ROOT}/shim", "-pthread")
    output, report = record_as_bare(whyrss, recording, program, options=options)
    (process,) = report["processes"]
    stats = process["allocator_stats"]
    assert process["allocator"] == allocator
    (snapshot,) = stats["snapshots"]
    assert stats["start"]["values"][OWN_NAMES[allocator]] >= 0  # a C program may have allocated nothing before main
    for moment in (snapshot, stats["end"]):
        assert moment["values"][OWN_NAMES[allocator]] > 0
    assert stats["start"]["time_s"] <= snapshot["time_s"] <= stats["end"]["time_s"]
    held_bytes = int(output.split()[0])
    if allocator == "mimalloc":
        assert snapshot["allocated"] is None and snapshot["values"]["current_commit"] > held_bytes
    else:
        assert snapshot["allocated"] == pytest.approx(held_bytes, rel=0.02)
        assert abs(snapshot["difference"]) <= 0.02 and abs(stats["difference"]) <= 0.02
    # Its output's buffer, and what libraries made before main: 72 KiB of the C++ runtime, at most.
    assert 0 <= snapshot["counted"] - held_bytes < 200_000
    assert snapshot["counted_blocks"] == pytest.approx(int(output.split()[1]), rel=0.01)
    text = whyrss.run("report", recording).stdout
    # In a program that takes a second, the allocator was also asked when it held more: before it freed half.
    assert re.search(f"\nWhat the allocators say themselves\n.*(snapshot|peak): {allocator} ", text)
    assert not [note for note in process["notes"] if "allocator" in note]


def test_exit_out_of_the_allocator(whyrss, recording, compile_c):
    _, report = record_as_bare(whyrss, recording, compile_c(EXIT_WHILE_LOCKED, "-pthread"))
    (process,) = report["processes"]
    assert report["recording"]["exit"]["code"] == 36
    assert process["allocator_stats"]["end"] is None and process["allocator_stats"]["start"] is not None
    assert any("not read at the end: a signal handler" in note for note in process["notes"])


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_exit_in_a_handler(whyrss, recording, compile_c, allocator):
    _, report = record_as_bare(whyrss, recording, compile_c(EXIT_IN_HANDLER), options=preload(allocator))
    (process,) = report["processes"]
    assert process["allocator_stats"]["end"] is None
    assert any("not read at the end: a signal handler" in note for note in process["notes"])


@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("birth", ["fork", "_Fork", "clone"])
def test_children_that_may_hold_locks_are_not_asked(whyrss, recording, compile_c, birth, allocator):
    program = compile_c(FAMILY)
    _, report = record_as_bare(whyrss, recording, program, birth, options=preload(allocator))
    parent, child = report["processes"]
    assert parent["allocator_stats"]["end"] is not None
    stats = child["allocator_stats"]
    if birth == "fork":
        assert stats["start"] is None and stats["end"]["values"][OWN_NAMES[allocator]] > 0
        assert stats["end"]["counted"] >= 4_000_000 and stats["end"]["counted_blocks"] >= 40_000, "what it inherited counts"
    else:
        assert stats is None
        assert any("may hold locks" in note for note in child["notes"])


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_it_is_asked_at_a_peak(whyrss, recording, compile_c, allocator):
    command = [whyrss.program, "record", "-q", "-o", recording, *preload(allocator), "--", compile_c(GROWING)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as job:
        def peak():
            processes = whyrss.report(recording)["processes"] if (recording / "manifest.json").exists() else []
            stats = processes[0]["allocator_stats"] if processes else None
            return stats and stats["peak"]
        found = wait_until(peak, "the allocator was asked at a peak")
        job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0
    assert found["values"][OWN_NAMES[allocator]] > 0 and found["counted"] > 1_000_000


def test_without_liveness_nothing_is_asked(whyrss, recording, compile_c):
    _, report = record_as_bare(whyrss, recording, compile_c(EXIT_IN_HANDLER))
    assert report["processes"][0]["allocator_stats"] is not None
    other = recording.with_name("other")
    assert whyrss.record(other, ["true"], "--liveness", "off", "--allocator-stats", "on").returncode == 0
    assert whyrss.finished_report(other)["processes"][0]["allocator_stats"] is None


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_a_damaged_free_list_is_not_read(whyrss, recording, compile_c, mode):
    """Unless it is asked for: the program ends before it meets what it has written over."""
    program = compile_c(WRITES_AFTER_FREE)
    _, report = record_as_bare(whyrss, recording, program, options=["--mode", mode])
    stats = report["processes"][0]["allocator_stats"]
    assert stats["start"] is not None and stats["peak"] is None and stats["end"] is None


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_exit_in_a_new_handler(whyrss, recording, compile_c, allocator):
    program = compile_c(NEW_HANDLER, compiler="g++")
    record_as_bare(whyrss, recording, program, options=preload(allocator))
