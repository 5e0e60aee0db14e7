"""Verbs under limits set low: either they do what they are for, or they say in one line why not. Never in silence,
with -q neither, whatever it is that fails: memory, threads, descriptors, files, the stack, a program's start."""
import os
import resource
import subprocess

import pytest

from conftest import PATIENCE_S

KIB, MIB = 1 << 10, 1 << 20
# Below these no C++ program gets past the loader, which dies or speaks for itself.
LIMITS = {
    "MEMLOCK": [0],
    "DATA": [1 * MIB, 2 * MIB, 3 * MIB, 4 * MIB, 6 * MIB, 8 * MIB, 12 * MIB, 16 * MIB, 30 * MIB, 100_000 * KIB],
    "AS": [16 * MIB, 24 * MIB, 28 * MIB, 32 * MIB, 40 * MIB, 48 * MIB, 64 * MIB, 100 * MIB, 300 * MIB],
    "NOFILE": [3, 4, 5, 6, 7, 8, 9, 10, 12, 16],
    "NPROC": [0, 1, 2],
    "FSIZE": [0, 1000, 5000, 100 * KIB, 1 * MIB, 20 * MIB],
    "STACK": [32 * KIB, 64 * KIB, 80 * KIB, 96 * KIB, 128 * KIB, 256 * KIB, 512 * KIB],
}
VERBS = [["record", "-q", "-o", "new", "--", "/bin/true"], ["record", "-o", "new", "--", "/bin/true"],
         ["report", "base"], ["report", "base", "--format", "json"], ["report", "base", "-o", "out"], ["prove", "base"],
         ["prove", "{pid}"], ["doctor"], ["env"], ["compare-allocators", "--repeat", "1", "-a", "glibc", "/bin/true"],
         ["--version"], ["--help"]]
USER = 54321


@pytest.fixture
def place(whyrss, open_folder):
    """A directory of a user without privileges, to whom limits apply, with a recording in it."""
    open_folder.chmod(0o755)
    place = open_folder / "home"
    place.mkdir()
    assert whyrss.record(place / "base", ["/usr/bin/python3", "-c", "kept = [bytes(1000) for _ in range(1000)]"]).returncode == 0
    if os.geteuid() == 0:
        for path in [place, *place.rglob("*")]:
            os.chown(path, USER, USER)
    return place


def run(whyrss, verb, place, kind, value):
    limit = getattr(resource, f"RLIMIT_{kind}")
    user = {"user": USER, "group": USER, "extra_groups": []} if os.geteuid() == 0 else {}
    words = [word.format(pid=os.getpid()) for word in verb]
    return subprocess.run([str(whyrss.program), *words], capture_output=True, text=True, timeout=PATIENCE_S, check=False,
                          cwd=place, stdin=subprocess.DEVNULL, env={**os.environ, "HOME": str(place)},
                          preexec_fn=lambda: resource.setrlimit(limit, (value, value)), **user)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
@pytest.mark.parametrize("kind", LIMITS)
def test_either_it_works_or_it_says_why_not(whyrss, place, kind, verb):
    for number, value in enumerate(LIMITS[kind]):
        (place / "base" / "symbols.zst").unlink(missing_ok=True)  # so that names are read again
        words = [word.replace("new", f"new-{number}") for word in verb]
        result = run(whyrss, words, place, kind, value)
        errors = result.stderr.splitlines()
        case = (kind, value, result.returncode, errors)
        if result.returncode == 0:
            assert result.stdout or "out" in verb or verb[0] == "record", case
            continue
        assert errors, case
        assert not any("terminate called" in line for line in errors), case
        # Where a command runs, what it says comes too: the loader of /bin/true, and the verdict on it.
        if verb[0] != "compare-allocators" and "-o new" not in " ".join(words).replace(f"new-{number}", "new"):
            assert len(errors) == 1, case
        if verb[0] == "record" and "-q" in verb and "loading shared libraries" not in result.stderr:
            assert len(errors) == 1 and errors[0].startswith("whyrss: "), case


def test_a_full_device_as_stdout(whyrss, place):
    for verb in (["report", "base"], ["--help"], ["--version"], ["env"]):
        with open("/dev/full", "w", encoding="utf-8") as full:
            result = subprocess.run([str(whyrss.program), *verb], stdout=full, stderr=subprocess.PIPE, text=True, cwd=place,
                                    timeout=PATIENCE_S, check=False)
        assert result.returncode == 1 and len(result.stderr.splitlines()) == 1, (verb, result.stderr)


def test_limits_do_not_reach_the_command(whyrss, place):
    """What whyrss does about SIGXFSZ and SIGSEGV is for itself: the command has them as ever."""
    bare = subprocess.run(["/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"], capture_output=True, text=True, check=True)
    result = whyrss.record(place / "signals", ["/bin/grep", "-E", "^Sig(Ign|Blk)", "/proc/self/status"], "--touch", "off")
    assert result.stdout == bare.stdout


# More threads at once than the pool has buffers for events, 1024.
MANY_THREADS = r"""
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <unistd.h>

static sem_t started;

static void *hold_a_buffer(void *unused) {
  free(malloc(100000));
  sem_post(&started);
  pause();
  return unused;
}

int main(void) {
  enum { kThreads = 1200 };
  sem_init(&started, 0, 0);
  for (int i = 0; i < kThreads; ++i) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, hold_a_buffer, NULL) != 0) return 1;
  }
  for (int i = 0; i < kThreads; ++i) sem_wait(&started);
  return 0;
}
"""


def test_more_threads_than_the_pool_has_buffers(whyrss, recording, compile_c):
    """Events are lost, and it is said which limit was reached."""
    assert whyrss.record(recording, [compile_c(MANY_THREADS, "-O1", "-pthread")]).returncode == 0
    assert whyrss.report(recording)["recording"]["lost"]["events"] >= 150
    lost = whyrss.run("report", recording).stdout.split("What was lost", 1)[1]
    assert "all 1024 buffers for events were taken" in " ".join(lost.split())
