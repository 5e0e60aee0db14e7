"""Programs that define functions of libc themselves: their malloc, their setenv, their memcpy. Preloaded, env-only and
under record, in both modes, they print and return what they do without us.
"""
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import ROOT, run
from expected.report_reading import assert_conserved

STATIC_ALLOCATORS = {"jemalloc": "libjemalloc.a", "tcmalloc": "libtcmalloc_minimal.a"}
# Blocks of many sizes in four threads and a fork child; the sum does not depend on the allocator.
ALLOCATING = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void* work(void* sum) {
  for (size_t i = 1; i <= 3000; ++i) {
    char* block = realloc(calloc(1, i * 17), i * 29);
    memset(block, 1, i * 29);
    *(size_t*)sum += (size_t)block[i];
    free(block);
  }
  return NULL;
}

int main(void) {
  size_t sums[4] = {0};
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, &sums[i]);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  printf("%zu %zu\n", sums[0], sums[3]);
  fflush(stdout);
  int status = 0;
  if (fork() == 0) {
    work(&sums[0]);
    _exit(3);
  }
  wait(&status);
  char* kept = malloc(40 << 20);
  memset(kept, 1, 40 << 20);
  printf("child %d\n", WEXITSTATUS(status));
  return 7;
}
"""

# A program's own malloc, as wrappers that count or check are made: libc's by its handle, under a lock of their own.
WRAPPING = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

static char early[1 << 16];
static size_t early_used;
static __thread int inside;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *(*next_malloc)(size_t), *(*next_realloc)(void*, size_t);
static void (*next_free)(void*);

static void find_next(void) {
  if (next_free != NULL || inside) return;
  inside = 1;
  void* libc = dlopen("libc.so.6", RTLD_NOW);
  next_malloc = (void* (*)(size_t))dlsym(libc, "malloc");
  next_realloc = (void* (*)(void*, size_t))dlsym(libc, "realloc");
  next_free = (void (*)(void*))dlvsym(libc, "free", "GLIBC_2.2.5");
  inside = 0;
}

static int is_early(void* block) { return (char*)block >= early && (char*)block < early + sizeof(early); }

void* malloc(size_t size) {
  find_next();
  if (next_free == NULL) {
    size_t* block = (size_t*)(early + early_used);
    *block = size;
    early_used += (size + 31) / 16 * 16;
    return block + 2;
  }
  pthread_mutex_lock(&lock);
  void* block = next_malloc(size);
  pthread_mutex_unlock(&lock);
  return block;
}

void free(void* block) {
  if (block == NULL || is_early(block)) return;
  find_next();
  pthread_mutex_lock(&lock);
  next_free(block);
  pthread_mutex_unlock(&lock);
}

void* calloc(size_t count, size_t size) {
  void* block = malloc(count * size);
  return block == NULL ? NULL : memset(block, 0, count * size);
}

void* realloc(void* block, size_t size) {
  if (!is_early(block) && next_free != NULL) {
    pthread_mutex_lock(&lock);
    void* moved = next_realloc(block, size);
    pthread_mutex_unlock(&lock);
    return moved;
  }
  void* moved = malloc(size);
  return block == NULL ? moved : memcpy(moved, block, ((size_t*)block)[-2] < size ? ((size_t*)block)[-2] : size);
}
"""


def outcome(result):
    return result.returncode, result.stdout, result.stderr


def assert_unchanged(whyrss, tmp_path, command, expected_status=7):
    """Five ways to run it; every one of them ends as without us, and each recording is whole."""
    bare = run(*command)
    assert bare.returncode == expected_status, bare
    assert outcome(run(*command, env={**os.environ, "LD_PRELOAD": str(whyrss.shim)})) == outcome(bare)
    for mode in ("sampled", "exact"):
        alone = tmp_path / f"env-{mode}.whyrss"
        assert outcome(run(*command, env=whyrss.env_only(alone, WHYRSS_OPTS=f"mode={mode}"))) == outcome(bare)
        recording = tmp_path / f"record-{mode}.whyrss"
        assert outcome(whyrss.record(recording, command, "--mode", mode)) == outcome(bare)
        for each in (alone, recording):
            report = whyrss.finished_report(each)
            assert_conserved(report)
            assert report["recording"]["exit"]["code"] == bare.returncode
            assert report["processes"][0]["traced"] == "full"


def test_malloc_under_a_plain_lock(whyrss, tmp_path, compile_c):
    source = (ROOT / "tests/programs/locked_malloc.c").read_text()
    assert_unchanged(whyrss, tmp_path, [compile_c(source, "-pthread", "-fno-builtin")])


def test_names_of_libc(whyrss, tmp_path, compile_c):
    source = (ROOT / "tests/programs/libc_names.c").read_text()
    program = compile_c(source, "-pthread", "-fno-builtin", "-rdynamic", "-w")
    names = run("nm", "-D", "--defined-only", program).stdout
    assert " T setenv\n" in names and " T memcpy\n" in names and " _r_debug\n" in names  # they come before libc's
    assert_unchanged(whyrss, tmp_path, [program])


HEAP_NAMES = {"malloc", "calloc", "realloc", "reallocarray", "free", "posix_memalign", "aligned_alloc", "memalign",
              "valloc", "pvalloc", "free_sized", "free_aligned_sized"}


def test_lookups_are_libcs(whyrss, tmp_path):
    """Every name that libc defines, versions, special handles from programs and libraries, and the texts of errors: as
    without us, but for the malloc family on libc's own handle, which is ours.
    """
    sources = ROOT / "tests/programs"
    program = tmp_path / "lookups"
    for name in ("second", "first"):
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-fno-optimize-sibling-calls", f'-DNAME="{name}"',
                        "-o", tmp_path / f"lib{name}.so", sources / "lookups_next.c"], check=True)
    subprocess.run(["gcc", "-O1", "-fno-builtin", "-o", program, sources / "lookups.c", f"-L{tmp_path}",
                    "-Wl,--no-as-needed", "-lfirst", "-lsecond", f"-Wl,-rpath,{tmp_path}"], check=True)
    libc = run("gcc", "-print-file-name=libc.so.6").stdout.strip()
    defined = run("nm", "-D", "--defined-only", libc).stdout.split("\n")
    names = {line.split()[-1].partition("@")[0] for line in defined if line}
    assert "malloc" in names and len(names) > 1000
    (tmp_path / "names").write_text("\n".join(sorted(names | HEAP_NAMES)))
    bare = run(program, tmp_path / "names")
    assert (bare.returncode, bare.stderr) == (0, "")
    assert "first, then second\none malloc: 1\n" in bare.stdout
    for environment in ({**os.environ, "LD_PRELOAD": str(whyrss.shim)}, whyrss.env_only(tmp_path / "recording.whyrss")):
        ours = run(program, tmp_path / "names", env=environment)
        assert (ours.returncode, ours.stderr) == (0, "")
        bare_lines, our_lines = bare.stdout.split("\n"), ours.stdout.split("\n")
        assert len(bare_lines) == len(our_lines)
        differing = {(b, o) for b, o in zip(bare_lines, our_lines) if b != o}
        assert {b.split(":")[0].split()[-1] for b, _ in differing} == HEAP_NAMES & names
        assert all(b.split()[0] in ("libc", "versioned") and ": libwhyrss.so+" in o for b, o in differing), differing


def test_malloc_by_the_handle_of_libc(whyrss, tmp_path, compile_c):
    program = compile_c("#define _GNU_SOURCE\n" + WRAPPING + ALLOCATING, "-pthread", "-fno-builtin")
    assert " T malloc\n" in run("nm", "-D", "--defined-only", program).stdout
    assert_unchanged(whyrss, tmp_path, [program])


@pytest.mark.parametrize("allocator", STATIC_ALLOCATORS)
def test_static_allocator(whyrss, tmp_path, compile_c, allocator):
    archive = run("gcc", f"-print-file-name={STATIC_ALLOCATORS[allocator]}").stdout.strip()
    if not pathlib.Path(archive).is_absolute():
        pytest.skip(f"{STATIC_ALLOCATORS[allocator]} is not installed")
    program = compile_c(ALLOCATING, "-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-pthread", "-lstdc++",
                        "-lm", "-ldl", "-fno-builtin")
    assert " T malloc\n" in run("nm", "-D", "--defined-only", program).stdout
    assert_unchanged(whyrss, tmp_path, [program])


@pytest.mark.parametrize("shell", ["bash", "dash", "zsh"])
def test_first_program_is_a_shell(whyrss, tmp_path, recording, shell):
    """bash has a setenv of its own, and exports it."""
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = tmp_path / "script"
    script.write_text(f"#!{shutil.which(shell)}\necho \"hi $WORD\"\nWORD=two /usr/bin/printenv WORD\n(exit 4)\n")
    script.chmod(0o755)
    result = run(script, env=whyrss.env_only(recording, WORD="one"))
    assert outcome(result) == (4, "hi one\ntwo\n", "")
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    assert {process["traced"] for process in report["processes"]} == {"full"}
    assert any(process["command"][0] == "/usr/bin/printenv" for process in report["processes"])  # it joined
    assert not list(tmp_path.glob("recording.whyrss.*"))  # and no process began a recording of its own
