"""CPython's own allocator: which pages are marked as its arenas, and what their pools then say, for every version.

The pools are read here as a reader outside does, from the memory of a program that waits, and compared with what the
interpreter counts itself.
"""
import math
import os
import re
import struct
import subprocess

import pytest

import pool_reader
from conftest import PATIENCE_S, wait_until
from expected.report_reading import cause
from interpreters import CASES, DEBIAN, version_of
from test_python_embedded import HOST, library_of

# Makes many small objects, drops half of them, and arenas with them; says what it counts, and waits.
PROGRAM = """
import os, sys
kept = [str(number) * 5 for number in range(300000)]
gone = [bytes(500) for _ in range(40000)]
del gone, kept[::2]
counted = sys._debugmallocstats() if hasattr(sys, "_debugmallocstats") else None
sys.stderr.flush()
os.write(1, b"ready\\n")
os.read(0, 1)
"""
MAGIC = b"whylive\n"
PAGE, LEAF_PAGES = 4096, 1 << 18
PYMALLOC_PAGE = 0xffff << 16


class Memory:
    """The memory of a waiting process."""

    def __init__(self, pid):
        self.file = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
        self.mapped = []
        with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
            for line in maps:
                span, access, _, _, _, *name = line.split()
                start, end = (int(number, 16) for number in span.split("-"))
                self.mapped.append((start, end, access, name))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.file)

    def read(self, address, size):
        return os.pread(self.file, size, address)

    def table(self):
        """Address of the LivenessTable."""
        for start, _, access, name in self.mapped:
            if access == "rw-p" and not name and self.read(start, 8) == MAGIC:
                return start
        pytest.fail("the program has no liveness table")

    def marked_pages(self):
        """Addresses of all pages that are marked as CPython's, and the size of its pools."""
        directory, pool_bytes = struct.unpack("<8xQI", self.read(self.table(), 20))
        pages = []
        for index, leaf in enumerate(struct.unpack(f"<{1 << 17}Q", self.read(directory, 8 << 17))):
            if leaf:
                counters = struct.unpack(f"<{LEAF_PAGES}I", self.read(leaf, 4 * LEAF_PAGES))
                pages += [(index * LEAF_PAGES + page) * PAGE for page, counter in enumerate(counters)
                          if counter == PYMALLOC_PAGE]
        return pages, pool_bytes

    def live_bytes(self):
        """Bytes of all blocks that are in use in the pools of marked pages."""
        pages, pool_bytes = self.marked_pages()
        marked = set(pages)
        live = 0
        for pool in pages:
            if pool % pool_bytes or not all(pool + at in marked for at in range(0, pool_bytes, PAGE)):
                continue
            count, size_class, last = struct.unpack("<I32xI4xI", self.read(pool, 48))
            size = (size_class + 1) * 16
            if size_class < 32 and 0 < count <= (pool_bytes - 48) // size and last == pool_bytes - size:
                live += count * size
        return live


def waiting(whyrss, recording, python, program, *options, **environment):
    """A recorded program, once it waits, and what it printed about its allocator."""
    command = [whyrss.program, "record", "-q", "-o", recording, *options, "--", python, "-c", program]
    job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                           env={**os.environ, **environment}, text=True)
    assert job.stdout.readline() == "ready\n", job.communicate(timeout=PATIENCE_S)
    return job


def child_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
        return int(children.read().split()[0])


def number_in(label, said):
    """The number behind a label in what sys._debugmallocstats() prints."""
    return int(re.search(label + r" +([\d,]+)", said)[1].replace(",", ""))


def finish(job):
    """What the program said of itself."""
    _, said = job.communicate("\n", timeout=PATIENCE_S)
    assert job.returncode == 0
    return said


@pytest.mark.parametrize("python", CASES)
def test_pools_say_what_the_interpreter_counts(whyrss, recording, python):
    job = waiting(whyrss, recording, python, PROGRAM)
    try:
        with Memory(child_of(job.pid)) as memory:
            pages, pool_bytes = memory.marked_pages()
            live = memory.live_bytes()
    finally:
        said = finish(job)
    counted = number_in(r"bytes in allocated blocks +=", said)
    arena_bytes = number_in(r"arenas \* \d+ bytes/arena +=", said)
    assert pool_bytes == (4096 if version_of(python) < 10 else 16384)
    assert len(pages) * PAGE == arena_bytes, "all arenas, and none that was given back"
    assert live == pytest.approx(counted, rel=0.001)


@pytest.mark.parametrize("python", CASES)
def test_forked_child_has_its_own_marks(whyrss, recording, python):
    before = "import os\nkept_before = [str(number) * 9 for number in range(50000)]\n"
    fork = "pid = os.fork()\nif pid: os._exit(os.waitpid(pid, 0)[1])\ndel kept_before[::3]\n"
    job = waiting(whyrss, recording, python, before + fork + PROGRAM)
    try:
        with Memory(child_of(child_of(job.pid))) as memory:
            pages, live = memory.marked_pages()[0], memory.live_bytes()
    finally:
        said = finish(job)
    assert len(pages) * PAGE == number_in(r"arenas \* \d+ bytes/arena +=", said)
    assert live == pytest.approx(number_in(r"bytes in allocated blocks +=", said), rel=0.001)


@pytest.mark.parametrize("python", CASES)
def test_report_tells_live_objects_from_free_blocks(whyrss, recording, python):
    # What is freed moves no RSS: the program waits for a late snapshot, or the walk at its end has the same.
    snapshot = "import time, whyrss\nwhyrss.snapshot()\ntime.sleep(0.5)\n"
    job = waiting(whyrss, recording, python, PROGRAM.replace("counted =", snapshot + "counted ="),
                  "--allocator-stats", "on", PYTHONPATH=str(whyrss.shim.parent / "python"))
    said = finish(job)
    (process,) = whyrss.finished_report(recording)["processes"]
    (moment,) = process["allocator_stats"]["snapshots"]
    live, slack = (cause(process, slug)["rss"]["last"] for slug in ("heap_live", "heap_slack"))
    # Blocks of malloc may be only partly resident, and its pages have slack of their own; so may pools be.
    objects = number_in(r"bytes in allocated blocks +=", said)
    assert objects * 0.999 <= live <= (objects + moment["counted"]) * 1.001
    free = number_in(r"bytes in available blocks +=", said)
    assert free * 0.99 <= slack <= free * 1.02 + moment["counted"]


@pytest.mark.parametrize("python", CASES)
def test_library_that_is_loaded_later(whyrss, tmp_path, compile_c, python):
    library, host = library_of(python), compile_c(HOST, "-ldl")
    environment = {"LD_PRELOAD": str(whyrss.shim), "PYTHONHOME": str(python.parents[1]), "WHYRSS_OPTS": "touch=off",
                   "LD_LIBRARY_PATH": str(library.parent), **pool_reader.make_pool(tmp_path / "pool")}
    with subprocess.Popen([host, library, "local", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}) as job:
        assert job.stdout.readline() == "ready\n"
        with Memory(job.pid) as memory:
            pages, live = memory.marked_pages()[0], memory.live_bytes()
        said = job.communicate("\n", timeout=PATIENCE_S)[1]
    assert len(pages) * PAGE == number_in(r"arenas \* \d+ bytes/arena +=", said)
    assert live == pytest.approx(number_in(r"bytes in allocated blocks +=", said), rel=0.001)


@pytest.mark.parametrize("python", CASES)
def test_without_pymalloc_nothing_is_marked(whyrss, recording, python):
    job = waiting(whyrss, recording, python, PROGRAM, PYTHONMALLOC="malloc")
    try:
        with Memory(child_of(job.pid)) as memory:
            assert memory.marked_pages()[0] == []
    finally:
        finish(job)


# Objects of every kind of call: new, resized in place, moved, grown out of pymalloc and back, freed.
OBJECTS = """
import os
def keep(count):
    return [(number, number) for number in range(count)]
kept = keep(20000)
grown = []
for number in range(3000):
    grown.append([])
    for step in range(number % 80):
        grown[-1].append(step)
texts = [str(number) * (number % 200) for number in range(3000)]
del texts[::2], kept[::2]
for values in grown[::3]:
    del values[1:]
os.write(1, b"ready\\n")
os.read(0, 1)
"""


def live_by_log_and_pools(whyrss, tmp_path, python, program, mode="mode=exact", live_in=pool_reader.live_blocks, **environment):
    """(logged blocks that lie in arenas, as live_in(pool) finds them by address; live bytes by the pools)."""
    pool = tmp_path / "pool"
    options = {**pool_reader.make_pool(pool, 8192), "WHYRSS_OPTS": mode + ",touch=off", "LD_PRELOAD": str(whyrss.shim)}
    with subprocess.Popen([python, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env={**os.environ, **options, **environment}) as job:
        assert job.stdout.readline() == b"ready\n"
        with Memory(job.pid) as memory:
            marked = set(memory.marked_pages()[0])
            pools = memory.live_bytes()
        live = live_in(pool)
        job.communicate(b"\n", timeout=PATIENCE_S)
        assert job.returncode == 0
    return {address: said for address, said in live.items() if address // PAGE * PAGE in marked}, pools


@pytest.mark.parametrize("allocator", ["pymalloc", "pymalloc_debug"])
@pytest.mark.parametrize("python", CASES)
def test_every_object_is_logged_in_exact_mode(whyrss, tmp_path, python, allocator):
    live, pools = live_by_log_and_pools(whyrss, tmp_path, python, OBJECTS, PYTHONMALLOC=allocator)
    # The very first object came before anybody could be asked.
    assert pools - 512 <= sum(size for size, _ in live.values()) <= pools
    assert all(size % 16 == 0 and 0 < size <= 512 for size, _ in live.values())


def test_tracemalloc_on_top_changes_nothing(whyrss, tmp_path):
    live, pools = live_by_log_and_pools(whyrss, tmp_path, DEBIAN, OBJECTS, PYTHONTRACEMALLOC="3")
    assert pools - 512 <= sum(size for size, _ in live.values()) <= pools


def test_objects_have_their_lines(whyrss, tmp_path):
    live, _ = live_by_log_and_pools(whyrss, tmp_path, DEBIAN, OBJECTS)
    (process,) = pool_reader.read_pool(tmp_path / "pool").values()
    names = {code_id: code.name for code_id, code in process.codes.items()}
    in_keep = [size for size, stack_id in live.values()
               if any(names.get(frame.code) == "keep" for frame in process.stacks[stack_id].python)]
    assert sum(in_keep) >= 10000 * 48, "tuples of 40 bytes and their numbers"


SAMPLE_BYTES = 256  # so that samples are many


def assert_samples_tell(whyrss, tmp_path, python, program, **environment):
    """Each for those like it, the samples say what the pools say."""
    live, pools = live_by_log_and_pools(whyrss, tmp_path, python, program, f"python_objects=on,sample_bytes={SAMPLE_BYTES}",
                                        lambda pool: pool_reader.live_samples(pool, SAMPLE_BYTES), **environment)
    variance = sum((1 - 1 / weight) * (weight * size) ** 2 for size, weight in live.values())
    sampled = sum(size * weight for size, weight in live.values())
    assert abs(sampled - pools) <= 4 * math.sqrt(variance)
    assert math.sqrt(variance) < 0.05 * pools


@pytest.mark.parametrize("allocator", ["pymalloc", "pymalloc_debug"])
@pytest.mark.parametrize("python", CASES)
def test_samples_stand_for_all_objects(whyrss, tmp_path, python, allocator):
    assert_samples_tell(whyrss, tmp_path, python, OBJECTS, PYTHONMALLOC=allocator)


def test_samples_below_tracemalloc(whyrss, tmp_path):
    assert_samples_tell(whyrss, tmp_path, DEBIAN, OBJECTS, PYTHONTRACEMALLOC="3")


@pytest.mark.parametrize("allocator", ["malloc", "malloc_debug"])
def test_objects_of_malloc_are_logged_once(whyrss, tmp_path, allocator):
    live, pools = live_by_log_and_pools(whyrss, tmp_path, DEBIAN, OBJECTS, PYTHONMALLOC=allocator)
    assert (live, pools) == ({}, 0)


def labels_of_stats(command, **environment):
    """What sys._debugmallocstats() prints besides figures, and besides lines that depend on them."""
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S,
                            env={**os.environ, **environment})
    return [label for label in re.findall(r"^# [a-zA-Z ]+|^Total|^Small block threshold", result.stderr, re.MULTILINE)]


@pytest.mark.parametrize("options", ["python_objects=on", "mode=exact"])
@pytest.mark.parametrize("python", CASES)
def test_own_statistics_of_the_interpreter(whyrss, recording, python, options):
    """CPython prints them while no allocator but its own is set."""
    command = [python, "-c", "import sys; sys._debugmallocstats(); kept = [str(i) for i in range(9999)]; sys._debugmallocstats()"]
    bare = labels_of_stats(command)
    assert len(bare) > 8
    traced = {"LD_PRELOAD": str(whyrss.shim), "WHYRSS_OUTPUT": str(recording), "WHYRSS_OPTS": options}
    assert labels_of_stats(command, **traced) == bare
    silent = labels_of_stats(command, PYTHONTRACEMALLOC="1")
    assert labels_of_stats(command, PYTHONTRACEMALLOC="1", **traced) == silent != bare


# 100000 objects of 233 bytes (blocks of 240) from one line, half of them freed; as many that came and went.
ONE_LINE = """
import os, whyrss
kept = [None] * 100000
for number in range(100000):
    kept[number] = bytes(200)
for number in range(0, 100000, 2):
    kept[number] = None
for number in range(100000):
    bytes(100)
os.write(1, b"ready\\n")
whyrss.snapshot()
os.read(0, 1)
"""


def live_by_line(report):
    """Line of the program -> resident bytes of live blocks that it made."""
    lines = {}
    for site in cause(report["processes"][0], "heap_live")["sites"] if report["processes"] else []:
        innermost = next((frame for frame in site["stack"] if frame["kind"] == "python"), None)
        if innermost and innermost["file"] == "<string>":
            lines[innermost["line"]] = lines.get(innermost["line"], 0) + site["resident"]
    return lines


def test_exact_mode_tells_each_line_what_it_holds(whyrss, recording):
    job = waiting(whyrss, recording, DEBIAN, ONE_LINE, "--mode", "exact", PYTHONPATH=str(whyrss.shim.parent / "python"))
    held = 50000 * 240
    try:
        def reported_lines():  # once a walk has come after the last line
            lines = live_by_line(whyrss.report(recording))
            return lines if abs(lines.get(5, 0) - held) <= held / 100 else None
        lines = wait_until(reported_lines, f"line 5 is told to hold {held} bytes")
    finally:
        finish(job)
    assert lines.get(9, 0) < 10000
    assert whyrss.finished_report(recording)["recording"]["lost"]["events"] == 0


# Of blocks that lie among others most are freed right after a snapshot: that moves neither RSS nor faults.
FREED_AT_THE_END = """
import os, whyrss
kept, passing = [], []
for number in range(60000):
    (passing if number % 5 else kept).append(bytes(600))
whyrss.snapshot()
del passing
os._exit(0)
"""


def test_what_was_freed_just_before_the_end_is_in_a_walk(whyrss, recording):
    environment = {**os.environ, "PYTHONPATH": str(whyrss.shim.parent / "python")}
    result = whyrss.record(recording, [DEBIAN, "-c", FREED_AT_THE_END], env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    process = whyrss.finished_report(recording)["processes"][0]
    live, slack = (cause(process, slug)["rss"] for slug in ("heap_live", "heap_slack"))
    assert live["peak"] - live["last"] == pytest.approx(48000 * 640, rel=0.05)
    assert slack["last"] == pytest.approx(48000 * 640, rel=0.1)
