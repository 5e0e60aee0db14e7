"""The heap, byte by byte: programs that know what is live in them, against the report, under every allocator.

`heap_truth` and `heap_lines` say at each stage what each of their functions keeps, by malloc_usable_size, and how much
anonymous memory smaps shows; a walk is made while they wait. `containers` counts its own allocations.
"""
import json
import math
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import ROOT
from expected.report_reading import assert_conserved, cause, read_report, verdicts
from test_conservation import ALLOCATORS, library

PROGRAMS = pathlib.Path(os.environ.get("WHYRSS_BUILD", ROOT / "build/release")) / "tests/programs"
HEAP = ("heap_live", "heap_slack", "heap_retained", "heap_metadata")
MODES = ("sampled", "exact")
PAGE, MIB = 4096, 1 << 20
# What the allocator keeps for others than the program (the C++ library's emergency pool, buffers of stdio), what it
# grew by while smaps was read, and pages of our own that smaps does not name.
FEW_PAGES = 64 * PAGE
DISTANCE = 64 * 1024
COARSEST = 16 * DISTANCE  # of a thread that allocates fast
LARGE = 32 * 1024


def preload(allocator):
    if ALLOCATORS[allocator] is None:
        return []
    path = library(ALLOCATORS[allocator])
    if path is None:
        pytest.skip(f"{ALLOCATORS[allocator]} is not installed")
    return ["--preload", path]


def record(whyrss, recording, allocator, mode, *command):
    result = whyrss.record(recording, command, "--mode", mode, *preload(allocator))
    assert (result.returncode, result.stderr) == (0, "")
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    lost = report["recording"]["lost"]
    assert (lost["events"], lost["notes"]) == (0, [])  # a snapshot that came too late was requested again
    process, = report["processes"]
    assert (process["traced"], process["allocator"]) == ("full", allocator)
    return result, process


def read_truth(path):
    return {stage["stage"]: stage for stage in map(json.loads, path.read_text().splitlines())}


def process_at(whyrss, recording, stage):
    """The process at the last walk of a stage."""
    result = whyrss.run("report", recording, "--format", "json", "--top", 1_000_000, "--small-sites", "--to", stage)
    assert result.returncode == 0, result.stderr
    report = read_report(result.stdout)
    assert_conserved(report)
    return report["processes"][0]


def last(process, *slugs):
    return sum(cause(process, slug)["rss"]["last"] for slug in slugs)


def sites_of(process, slug, function):
    """The sites of a cause that have this function in their stack."""
    return [site for site in cause(process, slug)["sites"]
            if any(re.search(rf"\b{function}\b", frame["function"]) for frame in site["stack"])]


def own_private(process):
    """Anonymous memory of our own: smaps may not tell it from the allocator's."""
    return sum(site["resident"] for site in cause(process, "whyrss")["sites"] if site["mapping"] is None)


def standard_error(sites):
    return math.hypot(*(site["standard_error"] for site in sites))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_heap_adds_up(whyrss, recording, tmp_path, allocator, mode):
    """At each stage: the heap's causes are the allocator's resident memory, and what is live is what the program says."""
    record(whyrss, recording, allocator, mode, PROGRAMS / "heap_truth", tmp_path / "truth", 24_000)
    truth = read_truth(tmp_path / "truth")
    processes = {name: process_at(whyrss, recording, name) for name in truth}
    start = processes["start"]
    for name, stage in truth.items():
        process = processes[name]
        grown = stage["allocator_bytes"] - truth["start"]["allocator_bytes"]
        if stage["whyrss_bytes"] == 0:  # a kernel without names for anonymous memory
            grown -= own_private(process) - own_private(start)
        found = last(process, *HEAP) - last(start, *HEAP)
        assert abs(found - grown) <= 0.001 * grown + FEW_PAGES, name
        assert last(process, "unknown") <= last(start, "unknown"), name
        live = sum(line["bytes"] for line in stage["lines"].values())
        assert abs(last(process, "heap_live") - last(start, "heap_live") - live) <= 0.01 * live + FEW_PAGES, name
        assert not cause(process, "heap_live").get("estimate")
        (assert_lines_exact if mode == "exact" else assert_lines_estimated)(process, stage["lines"], name)
    if allocator == "glibc":
        assert_retained(truth, processes)


def assert_retained(truth, processes):
    """What glibc keeps of dropped records is heap_retained, and goes with malloc_trim."""
    start, live, dropped, trimmed = (processes[name] for name in ("start", "records live", "records dropped", "trimmed"))
    freed = truth["records live"]["lines"]["make_record"]["bytes"] - truth["records dropped"]["lines"]["make_record"]["bytes"]
    assert last(live, "heap_live") - last(dropped, "heap_live") >= 0.99 * freed
    assert last(dropped, "heap_retained") - last(start, "heap_retained") >= 0.9 * freed
    assert last(trimmed, "heap_retained") <= 0.1 * freed


def assert_lines_exact(process, lines, stage):
    """What these functions keep stands in the report to the byte, but for a page whose count was just changing."""
    for function, line in lines.items():
        found = sum(site["resident"] for site in sites_of(process, "heap_live", function))
        assert abs(found - line["bytes"]) <= 0.001 * line["bytes"] + PAGE, (stage, function)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_blocks_handed_over(whyrss, recording, tmp_path, allocator):
    """Threads that free each other's blocks, whose addresses are used again at once: merged by time, all events stand in
    the order in which they happened.
    """
    record(whyrss, recording, allocator, "exact", PROGRAMS / "hand_over", tmp_path / "truth", 100_000)
    line = read_truth(tmp_path / "truth")["handed over"]["lines"]["make_block"]
    sites = sites_of(process_at(whyrss, recording, "handed over"), "heap_live", "make_block")
    assert sum(site["resident"] for site in sites) == line["bytes"]
    stream, = recording.glob("*/events.zst")
    result = subprocess.run([PROGRAMS / "event_order", stream], capture_output=True, text=True, check=True)
    events, out_of_order = re.fullmatch(r"(\d+) events, (\d+) out of order\n", result.stdout).groups()
    assert (int(events) >= 4 * 2 * 99_900, out_of_order) == (True, "0")


def assert_lines_estimated(process, lines, stage):
    for function, line in lines.items():
        sites = sites_of(process, "heap_live", function)
        found = sum(site["resident"] for site in sites)
        assert abs(found - line["bytes"]) <= 5 * tolerated_error(sites, line) + PAGE, (stage, function)


def tolerated_error(sites, line):
    """What is printed, or, where few samples may have made that too small, what samples of these blocks have."""
    if line["blocks"] == 0 or line["bytes"] >= line["blocks"] * LARGE:  # these are all known
        return standard_error(sites)
    mean_bytes = line["bytes"] / line["blocks"]
    chance = 1 - math.exp(-mean_bytes / DISTANCE)
    return max(standard_error(sites), math.sqrt(line["blocks"] * (1 - chance) / chance) * mean_bytes)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_larger_blocks_that_are_counted(whyrss, recording, tmp_path, allocator):
    """Blocks of more than 32 KiB, made so fast that most of them leave no record: what is live of them is known to the
    byte, their lines within the error, and what was freed is retained.
    """
    record(whyrss, recording, allocator, "sampled", "env", "MALLOC_ARENA_MAX=1", PROGRAMS / "counted_blocks",
           tmp_path / "truth", 150_000)
    truth = read_truth(tmp_path / "truth")
    processes = {name: process_at(whyrss, recording, name) for name in truth}
    start = processes["start"]
    for name, stage in truth.items():
        process = processes[name]
        live = sum(line["bytes"] for line in stage["lines"].values())
        assert abs(last(process, "heap_live") - last(start, "heap_live") - live) <= 0.01 * live + FEW_PAGES, name
        for function, line in stage["lines"].items():
            sites = sites_of(process, "heap_live", function)
            found, printed = sum(site["resident"] for site in sites), standard_error(sites)
            expected = math.sqrt(line["bytes"] * COARSEST)  # as printed, but where few samples have made that too small
            assert abs(found - line["bytes"]) <= 5 * max(printed, expected) + PAGE, (name, function)
    counters = processes["dropped"]["counters"]
    assert counters["small_allocations"] > 4 * counters["large_allocations"] > 0
    if allocator == "glibc":
        dropped = truth["live"]["lines"]["keep_often"]["bytes"]
        grown = last(processes["fewer"], "heap_retained") - last(processes["live"], "heap_retained")
        assert abs(grown - dropped) <= 0.1 * dropped


@pytest.mark.parametrize("mode", MODES)
def test_every_allocation_is_seen(whyrss, tmp_path, mode):
    """A C++ program with containers: as many blocks under each allocator, and none that the program made is missing."""
    counted = {}
    for allocator in ALLOCATORS:
        if ALLOCATORS[allocator] and library(ALLOCATORS[allocator]) is None:
            continue
        result, process = record(whyrss, tmp_path / allocator, allocator, mode, PROGRAMS / "containers", 50_000)
        asked = int(result.stdout.split()[0])
        counted[allocator] = process["counters"]["small_allocations"] + process["counters"]["large_allocations"]
        assert asked <= counted[allocator] <= asked + 100, allocator  # the rest: start-up, the thread, stdio's buffer
    assert max(counted.values()) - min(counted.values()) <= 16, counted  # tcmalloc makes some by operator new itself


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_sampled_lines(whyrss, recording, tmp_path, allocator):
    """Lines of 50 % to 1 % of 100 MiB: right within the error that is printed, and that error is the expected one."""
    record(whyrss, recording, allocator, "sampled", PROGRAMS / "heap_lines", tmp_path / "truth", 100)
    process = process_at(whyrss, recording, "live")
    for function, line in read_truth(tmp_path / "truth")["live"]["lines"].items():
        sites = sites_of(process, "heap_live", function)
        printed, expected = standard_error(sites), tolerated_error([], line)
        assert abs(sum(site["resident"] for site in sites) - line["bytes"]) <= 5 * max(printed, expected), function
        if not function.startswith("make_rare"):  # few samples
            assert expected / 2 <= printed <= expected * 2, function


SEEDED = """
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *kept[3][40000];
__attribute__((noinline)) void *small_blocks(int i) { return malloc(50 + i % 100); }
__attribute__((noinline)) void *larger_blocks(int i) { return malloc(150 + i % 300); }
static void *fill(void *to) {
  void **blocks = to;
  for (int i = 0; i < 20000; i++) {
    memset(blocks[2 * i] = small_blocks(i), 1, 50);
    memset(blocks[2 * i + 1] = larger_blocks(i), 1, 150);
  }
  return 0;
}
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, fill, kept[0])) return 1;
  pthread_join(thread, 0);
  fill(kept[1]);
  pid_t child = fork();
  if (child == 0) { fill(kept[2]); _exit(0); }
  waitpid(child, 0, 0);
  return 0;
}
"""


def test_a_seed_samples_the_same_again(whyrss, tmp_path, compile_c):
    program = compile_c(SEEDED, "-pthread")

    def samples(number, *options):
        recording = tmp_path / f"{number}.whyrss"
        assert whyrss.record(recording, [program], *options).returncode == 0
        return [[(site["resident"], round(site["standard_error"])) for function in ("small_blocks", "larger_blocks")
                 for site in sites_of(process, "heap_live", function)]
                for process in whyrss.finished_report(recording)["processes"]]
    first, again, other = samples(1, "--seed", 7), samples(2, "--seed", 7), samples(3, "--seed", 8)
    assert first == again
    assert [a != b for a, b in zip(first, other)] == [True, True]
    assert first[1][-2:] != first[0][-2:]  # a child is sampled by a seed of its own


# Lines that a report has to tell apart, of both programs below.
LINES_OF_TAKING = r"""
static __attribute__((noinline)) void* keep(size_t size) {
  return take(size);
}
static __attribute__((noinline)) void* drop(size_t size) {
  return take(size);
}
static __attribute__((noinline)) void* grow(void* block, size_t size) {
  return resize(block, size);
}
"""
ALLOCATING_LIBRARY = r"""
#include <stddef.h>
#include <string.h>
void* JE(mallocx)(size_t, int);
void* JE(calloc)(size_t, size_t);
void* JE(rallocx)(void*, size_t, int);
void JE(dallocx)(void*, int);
int JE(mallctl)(const char*, void*, size_t*, void*, size_t);
const char* JE(malloc_conf) = "dirty_decay_ms:-1,muzzy_decay_ms:-1";
void* take(size_t size) {
  return memset(JE(mallocx)(size, 0), 1, size);  // which jemalloc, only this library knows
}
void* take_zeroed(size_t size) { return memset(JE(calloc)(size / 64, 64), 1, size); }
void* resize(void* block, size_t size) { return memset(JE(rallocx)(block, size, 0), 2, size); }
void give(void* block) { JE(dallocx)(block, 0); }
static void see() {}
int occupy(void) {
  struct { void (*allocate)(), (*release)(), (*resize)(), *extra; } hooks = {see, see, see, 0};
  void* handle;
  size_t size = sizeof(handle);
  return JE(mallctl)("experimental.hooks.install", &handle, &size, &hooks, sizeof(hooks));
}
"""
TAKING = r"""
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void *(*take)(size_t), *(*take_zeroed)(size_t), *(*resize)(void*, size_t), (*give)(void*);
static int (*occupy)(void);
static void* library;
static void load(const char* path) {
  if (!(library = dlopen(path, RTLD_NOW | RTLD_LOCAL))) exit(10);
  take = dlsym(library, "take"), take_zeroed = dlsym(library, "take_zeroed"), resize = dlsym(library, "resize");
  give = dlsym(library, "give"), occupy = dlsym(library, "occupy");
}
static void see_event(void) {
  void* volatile block = malloc(1 << 20);
  free(block);
}
static void* do_nothing(void* argument) { return argument; }
static void start_thread(void) {
  pthread_t thread;
  if (pthread_create(&thread, 0, do_nothing, 0) == 0) pthread_join(thread, 0);
}
""" + LINES_OF_TAKING + r"""
int main(int argc, char** argv) {
  static void* dropped[32];
  const char* what = argv[2];
  load(*argv[1] ? argv[1] : 0);
  for (int i = 0; i < 4 && !strcmp(what, "occupied"); ++i) if (occupy()) return 11;
  give(take(64));
  if (!strcmp(what, "unloaded")) {
    dlclose(library);
    see_event();
    load(argv[1]);
    give(take(64));
    see_event();
    keep(8 << 20);
    dlclose(library);
    load(argv[1]);
    give(take(64));
  }
  if (!strcmp(what, "threaded")) start_thread();
  else if (strcmp(what, "uneventful")) see_event();
  for (int i = 0; i < 40; ++i) keep(1 << 20);
  take_zeroed(8 << 20);
  for (int i = 0; i < 32; ++i) dropped[i] = drop(1 << 20);
  for (int i = 0; i < 2048; ++i) keep(1 << 10);
  grow(take(1 << 20), 8 << 20);
  grow(take(6 << 20), 1 << 20);
  if (!strcmp(what, "walked")) ((void (*)(void))dlsym(RTLD_DEFAULT, "whyrss_snapshot"))();
  for (int i = 0; i < 32; ++i) give(dropped[i]);
  if (strcmp(what, "forked")) return 3;
  pid_t child = fork();
  if (child == 0) {
    keep(48 << 20);
    _exit(3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}
"""


@pytest.fixture(name="taking")
def fixture_taking(compile_c, tmp_path, monkeypatch):
    """A program, and link(PREFIX, *FLAGS, name) -> what takes memory for it from a jemalloc of its own."""
    archive = pathlib.Path("/usr/lib/x86_64-linux-gnu/libjemalloc_pic.a")
    if not archive.exists() or not shutil.which("objcopy"):
        pytest.skip("libjemalloc-dev or binutils is not installed")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.optional_static_tls=16384")  # its thread data are static
    libraries = ["-lpthread", "-ldl", "-lm", "-lstdc++"]

    def link(prefix, *flags, name):
        symbols = subprocess.run(["nm", "-g", "--defined-only", archive], capture_output=True, text=True, check=True).stdout
        public = {line.split()[2] for line in symbols.splitlines() if len(line.split()) == 3 and not re.search(" (je_|_Z|DW)", line)}
        (tmp_path / "names").write_text("".join(f"{symbol} {prefix}{symbol}\n" for symbol in public if prefix))
        own = tmp_path / f"{name}.a"
        subprocess.run(["objcopy", f"--redefine-syms={tmp_path / 'names'}", archive, own], check=True)
        return compile_c(ALLOCATING_LIBRARY, f"-DJE(name)={prefix and f'{prefix}##'}name", str(own), *flags, *libraries, name=name)

    program = compile_c(TAKING, "-ldl", "-lpthread", name="taking")
    return program, link


def own_allocator(process):
    """Of what is not malloc's."""
    malloc, own = process["allocators"]
    assert (malloc["name"], malloc["kind"], malloc["unsplit"]) == ("malloc", "glibc", 0)
    assert own["kind"] == "jemalloc"
    return own


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("prefix", "flags"), [("", ["-shared", "-fPIC", "-Wl,--exclude-libs,ALL"]), ("zz_je_", ["-shared", "-fPIC"])])
def test_jemalloc_inside_a_library_is_known_to_the_block(whyrss, recording, taking, prefix, flags, mode):
    """Its mallctl has a name in .symtab only, or is exported with a prefix."""
    program, link = taking
    whole = link(prefix, *flags, name="libtaking.so")
    assert whyrss.record(recording, [program, whole, ""], "--mode", mode).returncode == 3
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    process, = report["processes"]
    own = own_allocator(process)
    small = 2 if mode == "exact" else 0
    assert (own["name"], own["library"]) == ("the allocator in libtaking.so", str(whole))
    assert abs(own["live"] / MIB - (57 + small)) < 0.1, own
    assert abs(own["retained"] / MIB - 37) < 0.3, own
    assert own["unsplit"] / MIB < 3 - small, own
    for function, mib, slug in ("keep", 40 + small, "heap_live"), ("grow", 9, "heap_live"), ("take_zeroed", 8, "heap_live"), ("drop", 32, "heap_retained"):
        assert abs(sum(site["growth"] for site in sites_of(process, slug, function)) / MIB - mib) < 0.2, function
    verdict, = [verdict for verdict in verdicts(report, "heap-retained")]
    assert "MiB freed, but kept by the allocator in libtaking.so (jemalloc) (last allocated at libtaking.so.c:" in verdict["headline"]
    assert process["notes"] == []


def test_jemalloc_behind_a_prefix_in_the_program_itself(whyrss, recording, taking, compile_c):
    """All stacks pass through the program, but that of a thread that starts."""
    _, link = taking
    part = link("zz_je_", "-c", name="part.o")
    program = compile_c(TAKING, str(part), f"{part}.a", "-rdynamic", "-lpthread", "-ldl", "-lm", "-lstdc++", name="holding")
    assert whyrss.record(recording, [program, "", "threaded"]).returncode == 3
    process, = whyrss.finished_report(recording)["processes"]
    own = own_allocator(process)
    assert own["name"] == "the own allocator of holding"
    assert abs(own["live"] / MIB - 57) < 0.1 and abs(own["retained"] / MIB - 37) < 0.3, own


def test_jemalloc_in_a_stripped_library(whyrss, recording, taking):
    """It is known by its messages; where nothing exports its mallctl its blocks are not."""
    program, link = taking
    for prefix, flags in ("", ["-Wl,--exclude-libs,ALL"]), ("zz_je_", []):
        whole = link(prefix, "-shared", "-fPIC", "-s", *flags, name="libtaking.so")
        assert whyrss.record(recording, [program, whole, ""], "-f").returncode == 3
        report = whyrss.finished_report(recording)
        assert_conserved(report)
        process, = report["processes"]
        own = own_allocator(process)
        assert own["name"] == "the allocator in libtaking.so"
        if prefix:
            assert abs(own["live"] / MIB - 57) < 0.1 and abs(own["retained"] / MIB - 37) < 0.3, own
        else:
            assert own["live"] is None and 96 < own["unsplit"] / MIB < 99, own
            verdict, = verdicts(report, "allocator-growth")
            assert "of the allocator in libtaking.so (jemalloc), in use or free is not known" in verdict["headline"]


@pytest.mark.parametrize(("what", "live_mib"), [("unloaded", 65), ("walked", 57)])
def test_jemalloc_in_a_library_that_is_loaded_again_or_frees_after_the_last_walk(whyrss, recording, taking, what, live_mib):
    """What an unloaded one held stays in memory: it was not given back. Frees move neither RSS nor page faults: the end of
    the process is worth a walk all the same."""
    program, link = taking
    whole = link("", "-shared", "-fPIC", "-Wl,--exclude-libs,ALL", name="libtaking.so")
    assert whyrss.record(recording, [program, whole, what]).returncode == 3
    process, = whyrss.finished_report(recording)["processes"]
    own = own_allocator(process)
    assert abs(own["live"] / MIB - live_mib) < 0.1 and abs(own["retained"] / MIB - 37) < 0.3, own


def test_jemalloc_in_a_library_before_a_fork(whyrss, recording, taking):
    program, link = taking
    whole = link("", "-shared", "-fPIC", "-Wl,--exclude-libs,ALL", name="libtaking.so")
    assert whyrss.record(recording, [program, whole, "forked"]).returncode == 3
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    parent, child = report["processes"]
    assert abs(own_allocator(parent)["live"] / MIB - 57) < 0.1
    assert abs(sum(site["growth"] for site in sites_of(child, "heap_live", "keep")) / MIB - 48) < 0.1


@pytest.mark.parametrize("what", ["uneventful", "occupied"])
def test_an_allocator_whose_blocks_are_not_known(whyrss, recording, taking, what):
    """What it mapped is no program's mapping, and how much of it is live is not known. A recording says why, if there was
    a moment to try."""
    program, link = taking
    whole = link("", "-shared", "-fPIC", "-Wl,--exclude-libs,ALL", name="libtaking.so")
    assert whyrss.record(recording, [program, whole, what]).returncode == 3
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    process, = report["processes"]
    unsplit = cause(process, "heap_unsplit")["growth"]["rss"] / MIB
    assert 96 <= unsplit <= 99
    own = own_allocator(process)
    assert (own["live"], own["unsplit"]) == (None, cause(process, "heap_unsplit")["rss"]["last"])
    assert {site["allocator"] for site in cause(process, "heap_unsplit")["sites"]} == {own["name"]}
    verdict, = verdicts(report, "allocator-growth")
    assert "of the allocator in libtaking.so (jemalloc), in use or free is not known" in verdict["headline"]
    line = ALLOCATING_LIBRARY[:ALLOCATING_LIBRARY.index("mallocx)(size, 0)")].count("\n") + 1
    assert f"mapped at libtaking.so.c:{line} in take" in verdict["headline"]
    assert [re.sub("jemalloc [^ ]+ in .*/", "", note) for note in process["notes"]] == \
        (["blocks of libtaking.so are not followed: all of its hooks are taken"] if what == "occupied" else [])


FOREIGN = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
int lone_mallctl(const char* name) { abort(); }
#ifdef PAIR
int other_mallctl(const char* name) { return 0; }
int other_mallctlnametomib(const char* name) { abort(); }
#endif
void take(void) {
  memset(mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 1, 8 << 20);
}
"""
TAKING_FROM_FOREIGN = r"""
#include <stdlib.h>
void take(void);
int main(void) {
  take();
  void* volatile block = malloc(1 << 20);
  free(block);
  return 3;
}
"""


@pytest.mark.parametrize("pair", [False, True])
def test_functions_of_that_name_with_another_meaning(whyrss, recording, compile_c, pair):
    foreign = compile_c(FOREIGN, "-shared", "-fPIC", *["-DPAIR"] * pair, name="libforeign.so")
    program = compile_c(TAKING_FROM_FOREIGN, str(foreign), f"-Wl,-rpath,{foreign.parent}")
    assert whyrss.record(recording, [program]).returncode == 3
    process, = whyrss.finished_report(recording)["processes"]
    assert 8 <= cause(process, "anonymous")["growth"]["rss"] / MIB < 8.3
    assert [note.split(": ")[1] for note in process["notes"]] == ["its mallctl() has no version"] * pair


# As libarrow's mimalloc since Arrow 25: three exported names, called through the PLT. It gives nothing back.
ARROW_POOL = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
static char *next, *end;
static long live;
long pool_live(void) { return live; }
static __attribute__((noinline)) void* mi_os_map(size_t size) {
  return mmap(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}
void* arrow_mi_malloc_aligned(size_t size, size_t alignment) {
  if (size > 1L << 40) return errno = EDOM, (void*)0;
  if (!next) end = (next = mi_os_map(256 << 20)) + (256 << 20);
  char* block = (char*)(((unsigned long)next + 64 + alignment - 1) & -alignment);
  if (block + size > end) return 0;
  next = block + size;
  ((size_t*)block)[-1] = size;
  live += size;
  return block;
}
void arrow_mi_free(void* block) {
  if (block) live -= ((size_t*)block)[-1];
}
void* arrow_mi_realloc_aligned(void* block, size_t size, size_t alignment) {
  void* moved = arrow_mi_malloc_aligned(size, alignment);
  if (moved && block) memcpy(moved, block, ((size_t*)block)[-1] < size ? ((size_t*)block)[-1] : size), arrow_mi_free(block);
  return moved;
}
void* pool_take(size_t size) {
  void* block = arrow_mi_malloc_aligned(size, 64);
  return block ? memset(block, 1, size) : 0;
}
void* pool_resize(void* block, size_t size) {
  void* moved = arrow_mi_realloc_aligned(block, size, 64);
  return moved ? memset(moved, 2, size) : 0;
}
void pool_give(void* block) {
  arrow_mi_free(block);
  __asm__ volatile("");  // no tail jump
}
void pool_give_by_jump(void* block) { arrow_mi_free(block); }
"""
WITH_POOL = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
static void *(*take)(size_t), *(*resize)(void*, size_t), (*give)(void*), (*give_by_jump)(void*);
static long (*live)(void);
static void* library;
static void load(const char* path) {
  if (!(library = dlopen(path, RTLD_NOW | RTLD_LOCAL))) exit(10);
  take = dlsym(library, "pool_take"), resize = dlsym(library, "pool_resize"), give = dlsym(library, "pool_give");
  give_by_jump = dlsym(library, "pool_give_by_jump"), live = dlsym(library, "pool_live");
}
""" + LINES_OF_TAKING + r"""
static int is_found(void) {
  void* program = dlopen(0, RTLD_NOW);
  return (dlsym(RTLD_DEFAULT, "arrow_mi_free") != 0) + (dlsym(RTLD_NEXT, "arrow_mi_free") != 0) + (dlsym(program, "arrow_mi_free") != 0);
}
int main(int argc, char** argv) {
  static void* dropped[32];
  if (is_found()) return 11;
  load(argv[1]);
  for (int i = 0; i < 48; ++i) keep(1 << 20);
  for (int i = 0; i < 32; ++i) dropped[i] = drop(1 << 20);
  for (int i = 0; i < 2048; ++i) keep(1 << 10);
  void* grown = grow(take(1 << 20), 8 << 20);
  if (resize(grown, 1L << 50) || errno != EDOM) return 12;  // stays as it is
  for (int i = 0; i < 32; ++i) (i % 2 ? give : give_by_jump)(dropped[i]);
  void (*by_name)(void*) = dlsym(library, "arrow_mi_free");
  by_name(keep(1 << 20));
  long held = live();
  if (held != 58L << 20) return 13;
  if (argc > 2) {  // a second one, with blocks of its own
    load(argv[2]);
    void* other = take(4 << 20);
    give(take(4 << 20));
    if (live() != 4 << 20) return 14;
    give(other);
    if (live() != 0) return 15;
  }
  return 3;
}
"""


@pytest.fixture(name="pool")
def fixture_pool(compile_c):
    """Of a library with Arrow's three names, and a program that loads it for itself."""
    arrow = compile_c(ARROW_POOL, "-O2", "-shared", "-fPIC", name="libarrow.so.9999")
    return arrow, compile_c(WITH_POOL, "-ldl", name="with_pool")


def pool_of(process):
    return [allocator for allocator in process["allocators"] if allocator["name"] == "Arrow's memory pool"]


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_arrows_memory_pool_is_known_to_the_block(whyrss, recording, pool, mode):
    arrow, program = pool
    bare = subprocess.run([program, arrow], check=False)
    assert whyrss.record(recording, [program, arrow], "--mode", mode).returncode == bare.returncode == 3
    report = whyrss.finished_report(recording)
    assert_conserved(report)
    process, = report["processes"]
    figures, = pool_of(process)
    assert (figures["kind"], figures["library"]) == ("mimalloc", str(arrow))
    small = 2 if mode == "exact" else 0
    assert abs(figures["live"] / MIB - (56 + small)) < 0.2, figures
    assert abs(figures["retained"] / MIB - 34) < 0.5, figures
    assert figures["unsplit"] / MIB < 2.3 - small, figures
    for line, mib, at in ("keep", 48 + small, "heap_live"), ("grow", 8, "heap_live"), ("drop", 32, "heap_retained"):
        assert abs(sum(site["growth"] for site in sites_of(process, at, line)) / MIB - mib) < 0.2, line
    verdict, = [verdict for verdict in report["verdicts"] if verdict["id"] == "heap-retained"]
    assert re.search(r"^3[345] MiB freed, but kept by Arrow's memory pool \(mimalloc\) \(last allocated at .*in pool_take", verdict["headline"])
    assert "release_unused()" in verdict["advice"]


def test_two_pools_keep_their_blocks_apart(whyrss, recording, pool, tmp_path):
    arrow, program = pool
    other = pathlib.Path(shutil.copy(arrow, tmp_path / "libarrow.so.8888"))
    assert whyrss.record(recording, [program, arrow, other]).returncode == 3
    process, = whyrss.finished_report(recording)["processes"]
    assert {figures["library"] for figures in pool_of(process)} == {str(arrow), str(other)}
    assert abs(sum(figures["live"] for figures in pool_of(process)) / MIB - 56) < 0.2
