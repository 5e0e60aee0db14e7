"""Memory that no hook sees is not known: never the allocator's bookkeeping. Blocks that are got through libc's handle
are blocks like any other, and what is left of a block over which something was mapped stays live.
"""
import pathlib
import re
import tempfile
import time

import pytest

from conftest import compiled, line_of
from expected.report_reading import assert_conserved, cause, verdicts
from figure_off import assert_near

MIB = 1 << 20
FEW = MIB // 2
BY_HANDLE = """
import ctypes, sys
libc = ctypes.CDLL("libc.so.6")
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
size, mib = map(int, sys.argv[1:])
for _ in range((mib << 20) // size):
    libc.memset(libc.malloc(size), 1, size)  # kept
"""


def only_process(whyrss, recording, command, *options):
    result, report = whyrss.record_whole(recording, command, *options)
    assert (result.returncode, result.stderr) == (0, "")
    assert_conserved(report)
    process, = report["processes"]
    return process


def last(process, slug):
    return cause(process, slug)["rss"]["last"]


@pytest.mark.parametrize("options", [(), ("--mode", "exact"), ("--liveness", "off")],
                         ids=["sampled", "exact", "no table"])
def test_mapped_by_raw_instructions(whyrss, recording, tmp_path, options):
    process = only_process(whyrss, recording, [compiled(tmp_path, "unseen_memory"), "raw", "200"], *options)
    assert abs(last(process, "unknown") - 200 * MIB) <= FEW
    assert last(process, "heap_metadata") + last(process, "heap_retained") + last(process, "heap_live") <= FEW


def test_mapped_by_raw_instructions_among_blocks(whyrss, recording, tmp_path):
    """The kernel joins such memory with that of glibc's blocks into one mapping."""
    process = only_process(whyrss, recording, [compiled(tmp_path, "unseen_memory"), "raw_beside", "200"])
    assert abs(last(process, "unknown") - 200 * MIB) <= FEW
    assert abs(last(process, "heap_live") - 13 * (200 << 10)) <= FEW
    assert last(process, "heap_metadata") <= FEW


@pytest.mark.parametrize("mode", ["sampled", "exact"])
@pytest.mark.parametrize("size", [100, MIB])
def test_blocks_by_the_handle_of_libc(whyrss, recording, tmp_path, size, mode):
    script = tmp_path / "by_handle.py"
    script.write_text(BY_HANDLE)
    mib = 200 if size == MIB else 40
    process = only_process(whyrss, recording, ["/usr/bin/python3", script, size, mib], "--mode", mode)
    asked = mib * MIB
    lines = [site for site in cause(process, "heap_live")["sites"]
             if any(frame["file"].endswith("by_handle.py") and frame["line"] == 9 for frame in site["stack"])]
    assert 0.97 * asked <= sum(site["resident"] for site in lines) <= 1.15 * asked
    headers = asked // size * 8  # that glibc keeps beside each block
    assert last(process, "heap_metadata") + last(process, "unknown") <= headers + MIB


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_what_is_left_of_a_block_stays_live(whyrss, recording, tmp_path, mode):
    process = only_process(whyrss, recording, [compiled(tmp_path, "unseen_memory"), "cut", "64"], "--mode", mode)
    sites = [site for site in cause(process, "heap_live")["sites"]
             if any(frame["function"] == "make_block" for frame in site["stack"])]
    assert abs(sum(site["resident"] for site in sites) - (64 - 16 - 4) * MIB) <= 16 * 1024
    assert abs(last(process, "anonymous") - 16 * MIB) <= FEW


HOLD = """
import time
data = bytearray(40 << 20)
time.sleep(1.5)
"""
WITHOUT_US = {
    "cleared": ("exec env -i /usr/bin/python3 {}", "env -i", "its environment has no LD_PRELOAD"),
    "replaced": ("export LD_PRELOAD=libm.so.6; exec /usr/bin/python3 {}", "sh -c", "LD_PRELOAD of its environment lacks"),
}


@pytest.mark.parametrize("way", WITHOUT_US)
def test_a_program_that_a_wrapper_starts_without_us(whyrss, recording, tmp_path, way):
    """It is named, and said not to be traced, since when and why: not its wrapper."""
    script = tmp_path / "hold.py"
    script.write_text(HOLD)
    shell, before, why = WITHOUT_US[way]
    process = only_process(whyrss, recording, ["sh", "-c", shell.format(script)])
    assert process["command"][-1] == str(script) and "python3" in process["exe"]
    assert process["traced"] == "kernel"
    note, = [note for note in process["notes"] if note.startswith("not traced since ")]
    assert f'when it was still "{before}' in note and why in note
    text = whyrss.run("report", recording).stdout
    assert text.startswith("python3 ") and "of a program that was not traced" in text
    assert "the recording is complete" not in text and "that no recorded call explains" not in text


def test_a_program_without_a_loader(whyrss, recording):
    """It cannot ask for a walk, and ends after 3 ms: with none it is a lost snapshot, and the call that started it names it."""
    result = whyrss.record(recording, ["sh", "-c", "exec /sbin/ldconfig -p"])
    report = whyrss.finished_report(recording)
    assert (result.returncode, result.stderr) == (0, "")
    process, = report["processes"]
    assert process["command"][0] == "/sbin/ldconfig" and process["traced"] == "kernel"
    assert report["recording"]["lost"]["snapshots"] == (process["rss"]["last"] is None)
    assert [note for note in process["notes"] if note.startswith("not traced since ") and "ldconfig -p" in note]


STATIC = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef GO  /* as Go's linker writes it */
asm(".pushsection .note.go.buildid, \\"a\\", @note; .long 4, 4, 4; .ascii \\"Go\\\\0\\\\0\\"; .long 0; .popsection");
#endif
int main(void) {
  memset(malloc(60 << 20), 1, 60 << 20);
  sleep(1);
  return 0;
}
"""


@pytest.mark.parametrize(("flags", "kind", "advice"),
                         [([], "is statically linked", "without -static"),
                          (["-DGO"], "is a statically linked Go program", "go tool pprof")])
def test_a_static_program_is_named_with_what_to_do(whyrss, recording, compile_c, flags, kind, advice):
    program = compile_c(STATIC, "-O0", "-static", *flags)
    whyrss.record(recording, [program])
    verdict = whyrss.report(recording)["verdicts"][0]
    assert f"of a program that was not traced (it {kind})" in verdict["headline"]
    assert kind in verdict["why"] and advice in verdict["advice"]


FREES_AS_IT_ENDS = """
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
int main(void) {
  enum { PARTS = 8, BYTES = 8 << 20 };
  char *parts[PARTS];
  for (int i = 0; i < PARTS; ++i) {
    parts[i] = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(parts[i], 1, BYTES);
    usleep(100000);
  }
  usleep(300000);
  for (int i = 0; i < PARTS; ++i) {
    munmap(parts[i], BYTES);
    usleep(25000);
  }
  return 0;
}
"""


def test_what_an_untraced_program_frees_as_it_ends_was_held(whyrss, recording, compile_c):
    """It does not say when it begins to end: polls in the middle of its exit showed memory that was "no leak"."""
    program = compile_c(FREES_AS_IT_ENDS, "-O1")
    process = only_process(whyrss, recording, ["env", "-i", program])
    assert process["traced"] == "kernel"
    held = 64 * MIB
    assert held <= process["rss"]["last"] <= held + 4 * MIB
    verdict = whyrss.report(recording)["verdicts"][0]
    assert verdict["id"] == "cause-growth" and abs(verdict["bytes"] - held) <= MIB
    assert "of a program that was not traced (its environment has no LD_PRELOAD)" in verdict["headline"]


THREAD_LOCALS = """
#include <pthread.h>
#include <unistd.h>
static __thread char buffer[4 << 20];
static void *work(void *_) { buffer[5] = 1; sleep(1); return _; }
int main(void) {
  pthread_t threads[8];
  for (int i = 0; i < 8; ++i) pthread_create(&threads[i], 0, work, 0);
  for (int i = 0; i < 8; ++i) pthread_join(threads[i], 0);
  usleep(100000);
  return buffer[7];
}
"""


def test_thread_local_variables_are_no_stacks(whyrss, recording, compile_c):
    program = compile_c(THREAD_LOCALS, "-O1", "-pthread")
    whyrss.record(recording, [program])
    report = whyrss.report(recording)
    if report["recording"]["capabilities"]["touch"] == "none":
        pytest.skip("no page-fault samples here: who filled them is not known")
    headlines = [verdict["headline"] for verdict in report["verdicts"]]
    assert any("MiB thread-local variables" in text for text in headlines), headlines


def test_a_program_that_replaces_itself_with_us_is_traced(whyrss, recording, tmp_path):
    script = tmp_path / "hold.py"
    script.write_text(HOLD)
    process = only_process(whyrss, recording, ["sh", "-c", f"exec env A=1 /usr/bin/python3 {script}"])
    assert process["traced"] == "full"
    assert not [note for note in process["notes"] if "not traced" in note]


# A file that is mapped, read and unmapped again and again, between two walks; `how` says where it is.
BRIEFLY = """
import mmap, os, sys, tempfile, time
how, mib = sys.argv[1], int(sys.argv[2])
if how == "memfd":
    fd = os.memfd_create("brief")
else:
    file = tempfile.TemporaryFile(dir={"tmpfs": "/dev/shm", "disk": sys.argv[3]}[how])
    fd = file.fileno()
for _ in range(mib):
    os.write(fd, b"x" * (1 << 20))
for _ in range(5):
    with mmap.mmap(fd, mib << 20, access=mmap.ACCESS_READ) as view:
        sum(view[::4096])
        time.sleep(0.02)
"""


@pytest.mark.parametrize("how", ["memfd", "tmpfs", "disk"])
def test_a_file_that_is_mapped_briefly(whyrss, recording, tmp_path, how):
    process = only_process(whyrss, recording, ["/usr/bin/python3", "-c", BRIEFLY, how, 48, tmp_path])
    at_peak = {slug: cause(process, slug)["rss"]["at_peak"] for slug in ("shared_memory", "file_cache")}
    held, other = ("file_cache", "shared_memory") if how == "disk" else ("shared_memory", "file_cache")
    code = 16 * MIB  # at most, of Python and its libraries; none before the first walk that found it
    read = 4 * MIB  # in the time between two polls
    assert_near(at_peak[held], (48 * MIB - read + 48 * MIB + code) // 2, (read + code) // 2, at_peak)
    assert at_peak[other] <= code


# Files in memory that no process maps, of so many MiB, for a second and a half; what is `mapped` is no such memory.
UNMAPPED = """
import ctypes, mmap, os, sys, time
how, mib = sys.argv[1], int(sys.argv[2])
def fill(fd, mib):
    for _ in range(mib):
        os.write(fd, bytes([3]) * (1 << 20))
    return fd
path = f"/dev/shm/left-{os.getpid()}"
if how in ("memfd", "mapped", "in part"):
    fd = os.memfd_create("kept")  # makes
    os.truncate(fd, mib << 20)
    if how != "memfd":
        view = mmap.mmap(fd, (mib << 20) // (2 if how == "in part" else 1), access=mmap.ACCESS_READ)
    fill(fd, mib)
elif how == "named":
    os.close(fill(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), mib))
elif how == "in a child":
    child = os.fork()
    if child == 0:
        fill(os.memfd_create("kept"), mib)  # makes in child
        time.sleep(1.5)
        os._exit(0)
elif how == "of a child that ended":
    fd = os.memfd_create("kept")
    child = os.fork()
    if child == 0:
        fill(fd, mib)
        time.sleep(0.3)
        os._exit(0)
elif how == "System V":
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    libc.shmat.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    libc.shmdt.argtypes = [ctypes.c_void_p]
    segment = libc.shmget(0, ctypes.c_size_t(mib << 20), 0o600 | 0o1000)
    address = libc.shmat(segment, None, 0)  # attaches
    ctypes.memset(address, 3, mib << 20)
    libc.shmdt(address)
time.sleep(1.5)
if "child" in how:
    os.waitpid(child, 0)
if how == "named":
    os.unlink(path)
if how == "System V":
    libc.shmctl(segment, 0, None)
if sys.argv[3:]:
    os.kill(os.getpid(), 9)
"""

# Files that are open for milliseconds, and never mapped; nothing of their names says whose they are.
LEFT = """
import mmap, shutil, subprocess, sys
how, folder, source = sys.argv[1:]
if how == "a copied folder":
    shutil.copytree(source, f"{folder}/below/it")  # copies
elif how == "one that was there, and is mapped":
    with open(f"{folder}/1", "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        sum(view[::4096])
elif how == "a file that another program copies":
    subprocess.run(["cp", f"{source}/1", folder])
else:
    with open(f"{folder}/1", "ab" if how == "appended to" else "wb") as file:  # opens
        for _ in range(30):
            file.write(bytes([3]) * (1 << 20))
"""
LEFT_WAYS = {"a new file": (30, "opens"), "one that was there, and is emptied": (30, "opens"), "appended to": (0, None),
             "one that was there, and is mapped": (0, None),
             "a copied folder": (60, "copies"), "a file that another program copies": (30, None)}


@pytest.mark.parametrize("how", LEFT_WAYS)
def test_files_that_are_left_in_shared_memory(whyrss, recording, tmp_path, how):
    mib, marker = LEFT_WAYS[how]
    source = tmp_path / "source"
    source.mkdir()
    for name in "12":
        (source / name).write_bytes(bytes(30 * MIB))
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        if how not in ("a new file", "a copied folder", "a file that another program copies"):
            pathlib.Path(folder, "1").write_bytes(bytes((31 if "is mapped" in how else 1) * MIB))
            time.sleep(1.1)  # a program may be up to a second ahead of its collector
        result, report = whyrss.record_whole(recording, ["/usr/bin/python3", "-c", LEFT, how, folder, source])
        assert (result.returncode, result.stderr) == (0, "")
        assert sum(file.stat().st_size for file in pathlib.Path(folder).glob("**/[12]")) == (mib or 31) * MIB
    assert_conserved(report)
    assert report["family"]["shmem_unmapped"]["last"] == mib * MIB
    found = verdicts(report, "shared-memory-unmapped")
    if mib == 0:  # what it held before is not the job's, and how much was added is not known
        assert found == []
        return
    verdict, = found
    assert f"{mib} MiB" in verdict["headline"] and f"{folder}/" in verdict["headline"]
    assert verdict["headline"].endswith(f"; {mib} MiB stay after the end of the job")
    left = report["recording"]["left_shared_memory"]
    assert (left["files"], left["bytes"]) == (mib // 30, mib * MIB) and left["largest"].startswith(f"{folder}/")
    assert (f"made at <string>:{line_of(LEFT, '# ' + marker)}" if marker else "made in cp+0x") in verdict["headline"]


STAYS = """
import sys
from multiprocessing import resource_tracker, shared_memory
kept = [shared_memory.SharedMemory(create=True, size=10 << 20) for _ in range(4)]  # makes
for segment in kept:
    segment.buf[:] = bytes(10 << 20)
    resource_tracker.unregister(segment._name, "shared_memory")
    print(segment.name)
    if len(sys.argv) > 1:
        segment.unlink()
"""


@pytest.mark.parametrize("unlinked", [False, True])
def test_shared_memory_that_is_mapped_to_the_end_and_stays(whyrss, recording, unlinked):
    result = whyrss.record(recording, ["/usr/bin/python3", "-c", STAYS, *["unlink"] * unlinked])
    names = result.stdout.split()
    try:
        report = whyrss.finished_report(recording)
    finally:
        for name in names:
            pathlib.Path("/dev/shm", name).unlink(missing_ok=unlinked)
    left, found = report["recording"]["left_shared_memory"], verdicts(report, "shared-memory-left")
    if unlinked:
        assert left == {"files": 0, "bytes": 0, "largest": ""} and found == []
        return
    assert (left["files"], left["bytes"]) == (4, 40 * MIB) and pathlib.Path(left["largest"]).name in names
    verdict, = found
    assert verdict["severity"] == "warning" and verdict["bytes"] == 40 * MIB
    said = re.fullmatch(r"40 MiB shared memory left behind(.*), 4 files, the largest /dev/shm/psm_\w+: it stays until it is removed",
                        verdict["headline"])
    # A reading may come before the first is mapped.
    assert said and (said[1] == "" or said[1].startswith(f" (made at <string>:{line_of(STAYS, '# makes')} in <"))


UNMAPPED_PARTS = {"memfd": 1, "named": 1, "in a child": 1, "of a child that ended": 1, "System V": 1, "in part": 0.5,
                  "mapped": 0}


@pytest.mark.parametrize("how", UNMAPPED_PARTS)
def test_shared_memory_that_no_process_maps(whyrss, recording, how):
    mib, part = 60, UNMAPPED_PARTS[how]
    result, report = whyrss.record_whole(recording, ["/usr/bin/python3", "-c", UNMAPPED, how, str(mib)])
    assert (result.returncode, result.stderr) == (0, "")
    assert_conserved(report)
    family = report["family"]["shmem_unmapped"]
    assert family["first"] == 0 and family["peak"] == part * mib * MIB
    main, *children = report["processes"]
    at = children[0] if how == "in a child" else main
    given_back, gone = how in ("named", "System V"), how in ("named", "System V", "in a child")
    assert at["outside_rss"]["shmem_unmapped"] == (0 if given_back else part * mib * MIB)
    assert family["last"] == (0 if gone else part * mib * MIB)
    found = verdicts(report, "shared-memory-unmapped")
    if part == 0:
        assert found == []
        return
    verdict, = found
    assert verdict["pid"] == at["pid"] and verdict["evidence"]["peak_bytes"] == part * mib * MIB
    # A file that open() made says who made it as soon as it is mapped.
    line = {"memfd": "makes", "in part": "makes", "in a child": "makes in child", "System V": "attaches"}.get(how)
    if line:
        assert f"made at <string>:{line_of(UNMAPPED, '# ' + line)}" in verdict["headline"]
    name = {"named": f"/dev/shm/left-{main['pid']}", "System V": "/SYSV00000000"}.get(how, "memfd kept")
    assert name in verdict["headline"] and f"{round(part * mib)} MiB" in verdict["headline"]
    assert ("gone at the end" in verdict["headline"]) == gone


def test_shared_memory_that_no_process_maps_at_a_kill(whyrss, recording):
    whyrss.record(recording, ["/usr/bin/python3", "-c", UNMAPPED, "memfd", "60", "kill"])
    report = whyrss.finished_report(recording)
    assert report["family"]["shmem_unmapped"]["last"] == 60 * MIB
    verdict, = verdicts(report, "killed")
    held = verdict["evidence"]["held_by"][0]
    assert held["cause"] == "shared_memory"
    assert held["line"].startswith(f"mapped by no process, made at <string>:{line_of(UNMAPPED, '# makes')}")


UNMAPS_AT_ITS_END = """
import multiprocessing, time
from multiprocessing import shared_memory
MIB = 1 << 20

def read(name, until):
    segment = shared_memory.SharedMemory(name)
    sum(segment.buf[::4096])
    time.sleep(max(0, until - time.monotonic()))
    segment.close()

if __name__ == "__main__":
    context = multiprocessing.get_context("fork")
    segment = shared_memory.SharedMemory(create=True, size=150 * MIB)
    for at in range(0, 150 * MIB, MIB):
        segment.buf[at:at + MIB] = b"x" * MIB
    workers = [context.Process(target=read, args=(segment.name, time.monotonic() + 1)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    segment.close()
    segment.unlink()
"""


def test_what_is_unmapped_right_before_the_end_is_gone(whyrss, recording, tmp_path):
    """The kernel counts pages until it has freed them all, and workers that do so together hold each other up."""
    script = tmp_path / "job.py"
    script.write_text(UNMAPS_AT_ITS_END)
    result, report = whyrss.record_whole(recording, ["/usr/bin/python3", script])
    assert result.returncode == 0, result.stderr
    assert_conserved(report)
    workers = [process for process in report["processes"] if cause(process, "shared_memory")["rss"]["peak"] > 100 * MIB]
    assert len(workers) == 4  # with their parent
    for process in workers:
        assert last(process, "shared_memory") == 0, process["pid"]
