"""Frames of an extension stand between the Python frames that called it and those that it called. A thread of its own has
no Python frames: beside its stack stands where the Python thread is that waits in the extension."""
import itertools
import json
import os
import re
import subprocess
import sys

import pytest

import pool_reader
import whyrss_live
from conftest import PATIENCE_S, line_of
from expected.report_reading import cause
from figure_off import assert_near
from interpreters import EVERY_CASE
from zoo_runs import shown_frames

ARRAYS = """
import numpy

kept = []


def make(number):
    kept.append(numpy.ones(4 << 20))
    return number


def call_back():
    return numpy.fromiter((make(number) for number in range(3)), dtype=float)


call_back()

import ctypes
ctypes.CDLL(None).whyrss_snapshot()  # what ends within 1 MiB of its last look is not looked at again
"""
ARRAY_BYTES = 32 << 20


def test_extension_frames_stay_where_they_were(whyrss, recording, tmp_path):
    script = tmp_path / "arrays.py"
    script.write_text(ARRAYS)
    result = whyrss.record(recording, ["/usr/bin/python3", script])
    assert result.returncode == 0, result.stderr
    (process,) = whyrss.finished_report(recording)["processes"]
    (site,) = [site for site in cause(process, "heap_live")["sites"] if site["resident"] >= 3 * ARRAY_BYTES]
    frames = [frame for frame in site["stack"] if frame["kind"] == "python" or "numpy" in frame["module"]]
    runs = [(kind, list(run)) for kind, run in itertools.groupby(frames, key=lambda frame: frame["kind"])]
    assert [kind for kind, _ in runs] == ["native", "python", "native", "python"]
    assert all("_multiarray_umath" in os.path.basename(frame["module"]) for _, run in runs[::2] for frame in run)
    inner, outer = runs[1][1], runs[3][1]
    assert [frame["function"] for frame in inner] == ["ones", "make", "call_back.<locals>.<genexpr>"]
    assert [(frame["function"], frame["line"]) for frame in outer] == [("call_back", 13), ("<module>", 16)]
    assert {frame["file"] for frame in inner[1:] + outer} == {str(script)}


# A library with a thread of its own. One allocation at a time for who waits; or many, unasked.
AT_THE_END = 3 << 20
POOL = f"#define AT_THE_END {AT_THE_END}" + r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t wanted;
static int is_started;
static pid_t asking;
// On a busy machine it may not run for long between giving the mutex away and its wait.
static void wait_until_it_sleeps(pid_t tid) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    for (char state = 'R'; state != 'S'; usleep(100)) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t size = read(file, text, sizeof text - 1);
        close(file);
        const char *end = size > 0 ? strrchr(text, ')') : NULL;  // "tid (name) state ..."
        state = end ? end[2] : 'R';
    }
}
static void *keep(void *unused) {
    pthread_mutex_lock(&mutex);
    for (;;) {
        while (wanted == 0)
            pthread_cond_wait(&changed, &mutex);
        wait_until_it_sleeps(asking);
        memset(malloc(wanted), 1, wanted);
        wanted = 0;
        pthread_cond_broadcast(&changed);
    }
    return unused;
}
void start(void) {
    pthread_t thread;
    changed = (pthread_cond_t)PTHREAD_COND_INITIALIZER;  // after a fork the parent's thread waits no more
    pthread_create(&thread, 0, keep, 0);
    is_started = 1;
}
void grow(size_t size) {
    pthread_mutex_lock(&mutex);
    asking = gettid();
    wanted = size;
    pthread_cond_broadcast(&changed);
    while (wanted != 0)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}
// As a library's own threads end after the interpreter has.
__attribute__((destructor)) static void end(void) {
    if (is_started)
        grow(AT_THE_END);
}
static volatile int left;
static void *volatile last;  // or it is optimised away
static void *churn(void *unused) {
    for (; left > 0; --left) {
        free(malloc(1 << 20));
        usleep(50);
    }
    return unused;
}
void start_churning(int count) {
    pthread_t thread;
    left = count;
    pthread_create(&thread, 0, churn, 0);
}
int is_churning(void) {
    return left > 0;
}
static void *keep_one(void *size) {
    usleep(2000);
    last = memset(malloc((size_t)size), 1, (size_t)size);
    left = 0;
    return NULL;
}
// Its caller does not wait, but runs on.
void grow_beside(size_t size) {
    pthread_t thread;
    left = 1;
    pthread_create(&thread, 0, keep_one, (void *)size);
    while (left > 0)
        ;
    pthread_join(thread, 0);
}
void nap(int unused) {
    usleep(30);
}
"""
MOST_WAITING = 48

# Waits in every kind of frame.
FUNCTIONS = """
def plain():
    WAIT
    return [WAIT for _ in range(2)], sorted([1, 2], key=lambda value: WAIT or value)
def nested(depth):
    return nested(depth - 1) if depth else WAIT
def produce():
    yield WAIT
    yield from (WAIT for _ in range(2))
class Thing:
    def __init__(self):
        WAIT
    def __eq__(self, other):
        return WAIT is None
async def inner():
    WAIT
    await asyncio.sleep(0)
    WAIT
async def outer():
    await asyncio.gather(inner(), inner())
called = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: WAIT or 0)
def everything(number):
    plain(), list(produce()), Thing() == Thing(), nested(3), nested(30), nested(100)
    asyncio.run(outer())
    WAIT, ctypes.CDLL(None).qsort((ctypes.c_int * 2)(1, 2), ctypes.c_size_t(2), ctypes.c_size_t(4), called)
    exec(compile("\\n" * (number % 7) + "def made():\\n  WAIT\\nmade()", "<made %d>" % number, "exec"))
"""
# The thread allocates at the line of which traceback says where it is.
CALLS = """
import asyncio, ctypes, json, os, sys, traceback
pool, python_pool = ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[1])
log = open(sys.argv[2], "w")
asked = 1 << 20
def say(depth=1):
    global asked
    asked += 4096
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._getframe(depth)), lookup_lines=False)
    print(json.dumps([asked, [[frame.filename, frame.name, frame.lineno] for frame in frames]]), file=log)
    return ctypes.c_size_t(asked)
""" + FUNCTIONS.replace("WAIT", "pool.grow(say())") + """
def work():
    for number in range(3):
        everything(number)
    held = say()
    python_pool.grow(held)
    print(json.dumps([held.value, []]), file=log)
    log.flush()
    child = os.fork()
    if child == 0:
        pool.start()
        plain(), nested(3)
        log.flush()
        os._exit(0)
    os.waitpid(child, 0)
pool.start()
"""
# Of the thread that waits, others do something else: wait in another library or in libc, run Python code, come and go.
OTHERS = """
import queue, select, socket, threading, time
other, tasks, done = ctypes.CDLL(sys.argv[3]), queue.Queue(), threading.Event()
def idle():
    other.wait()
def spin():
    while not done.is_set():
        json.dumps(list(range(1000)))
def come_and_go():
    while not done.is_set():
        one = threading.Thread(target=time.sleep, args=(0.001,))
        one.start()
        one.join()
ends = socket.socketpair()
targets = [idle, spin, come_and_go, tasks.get, lambda: select.select([ends[0]], [], []), lambda: ends[0].recv(1),
           lambda: time.sleep(1000), lambda: done.wait(1000)]
for target in targets:
    threading.Thread(target=target, daemon=True).start()
worker = threading.Thread(target=work)
worker.start()
worker.join()
done.set()
log.flush()
os._exit(0)
"""


@pytest.fixture
def pool_library(compile_c):
    return compile_c(POOL, "-shared", "-fPIC", "-pthread", name="pool.so")


def run_with_pool(whyrss, tmp_path, command):
    environment = {**os.environ, "LD_PRELOAD": str(whyrss.shim), **pool_reader.make_pool(tmp_path / "pool")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return pool_reader.read_pool(tmp_path / "pool").values()


OTHER = """
#include <time.h>
#include <unistd.h>
void wait(void) { pause(); }
void compute(int ms) {
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do
        clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - from.tv_sec) * 1000 + (now.tv_nsec - from.tv_nsec) / 1000000 < ms);
}
"""


@pytest.fixture
def other_library(compile_c):
    return compile_c(OTHER, "-shared", "-fPIC", name="other.so")


@pytest.mark.parametrize("python", EVERY_CASE)
@pytest.mark.parametrize("rest", ["work()", OTHERS], ids=["main", "other threads"])
def test_where_the_calling_thread_waits(whyrss, tmp_path, pool_library, other_library, python, rest):
    script, log = tmp_path / "calls.py", tmp_path / "log"
    script.write_text(CALLS + rest)
    processes = run_with_pool(whyrss, tmp_path, [python, "-W", "ignore", script, pool_library, log, other_library])
    assert len(processes) == 2
    expected = {size: [tuple(frame) for frame in frames] for size, frames in map(json.loads, log.read_text().splitlines())}
    assert len(expected) > 30 and [] in expected.values()
    expected[AT_THE_END] = []
    found = {AT_THE_END: []}  # not in a process that ends by os._exit()
    for process in processes:
        for event in process.events:
            size = pool_reader.asked_pages(event.size_bytes)
            if size in expected and event.origin == 0 and event.kind == pool_reader.ALLOCATE:
                stack = process.stacks[event.stack_id]
                assert not stack.python
                found[size] = shown_frames(process, stack.waiting)
    assert found == {size: frames[:MOST_WAITING] for size, frames in expected.items()}


# The main thread goes on all the time, with new code where other code was before, while three threads have events.
MOVING = """
import asyncio, ctypes, json, sys
pool = ctypes.CDLL(sys.argv[1])
places = set()
def say():
    frame, place = sys._getframe(1), []
    while frame:
        place.append((frame.f_code.co_filename, frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    places.add(tuple(place))
    return 0
""" + FUNCTIONS.replace("WAIT", "pool.nap(say())") + """
for _ in range(3):
    pool.start_churning(6_000)
number = 0
while pool.is_churning():
    everything(number)
    number += 1
json.dump(sorted(places), open(sys.argv[2], "w"))
"""


@pytest.mark.parametrize("python", EVERY_CASE)
def test_a_main_thread_that_goes_on_is_shown_where_it_was(whyrss, tmp_path, pool_library, python):
    script, log = tmp_path / "moving.py", tmp_path / "log"
    script.write_text(MOVING)
    (process,) = run_with_pool(whyrss, tmp_path, [python, script, pool_library, log])
    places = {tuple(map(tuple, place[:MOST_WAITING])) for place in json.loads(log.read_text())}
    stacks = [process.stacks[event.stack_id] for event in process.events if event.kind == pool_reader.ALLOCATE]
    waiting = [shown_frames(process, stack.waiting) for stack in stacks if stack.waiting and not stack.python]
    own = [frames for frames in waiting if len(frames) > 1 and frames[0][0].startswith((str(script), "<made "))]
    assert not [frames for frames in own if tuple(frames) not in places]
    made = sum(frames[0][0].startswith("<made ") for frames in own)
    print(f"{python}: {len(own)} of {len(stacks)} with the main thread, {len(set(map(tuple, own)))} of {len(places)} places, "
          f"{made} in new code", file=sys.stderr)
    assert len(own) > 100 and made > 10


# Threads that run without the GIL while the pool allocates: in the library, and elsewhere.
RUNNING = """
import ctypes, sys, threading
pool, other = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])
def beside():
    pool.grow_beside(ctypes.c_size_t(5 << 20))
def unasked():
    pool.start_churning(200)
    other.compute(100)
    while pool.is_churning():  # on a busy machine
        other.compute(1)
beside()
unasked()
thread = threading.Thread(target=unasked)
thread.start()
thread.join()
"""


def allocations(process, size_bytes):
    return [event for event in process.events if event.kind == pool_reader.ALLOCATE and event.origin == 0
            and pool_reader.asked_pages(event.size_bytes) == size_bytes]


# Also where each block is an event: then the loader's and libc's, within the call, come after that of the library.
@pytest.mark.parametrize("python", EVERY_CASE)
@pytest.mark.parametrize("options", ["", "sample_bytes=1,python_objects=off"])
def test_a_thread_that_runs_is_the_caller_only_where_it_was_in_the_library(whyrss, tmp_path, monkeypatch, pool_library,
                                                                           other_library, python, options):
    monkeypatch.setenv("WHYRSS_OPTS", options)
    script = tmp_path / "running.py"
    script.write_text(RUNNING)
    (process,) = run_with_pool(whyrss, tmp_path, [python, script, pool_library, other_library])
    (beside,) = allocations(process, 5 << 20)
    assert [name for _, name, _ in shown_frames(process, process.stacks[beside.stack_id].waiting)] == ["beside", "<module>"]
    unasked = [process.stacks[event.stack_id] for event in allocations(process, 1 << 20)]
    assert len(unasked) == 400
    assert not [stack for stack in unasked if (str(script), "unasked", 8) in shown_frames(process, stack.waiting)]


# No thread of OpenMP waits: the caller works too.
REGION = """
#include <omp.h>
#include <stdlib.h>
#include <string.h>
void keep(size_t size) {
    #pragma omp parallel for num_threads(3) schedule(static, 1)
    for (int i = 0; i < 3; i++)
        memset(malloc(size), 1, size);
}
"""
REGIONS = """
import ctypes, os, sys, threading, time
omp, python_omp = ctypes.CDLL(sys.argv[1]), ctypes.PyDLL(sys.argv[1])
def alone():
    omp.keep(ctypes.c_size_t(5 << 20))
def beside_another():
    python_omp.keep(ctypes.c_size_t(6 << 20))
alone()
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
beside_another()
os._exit(0)
"""


def test_threads_of_openmp_work_for_the_thread_that_takes_part(whyrss, tmp_path, compile_c):
    script = tmp_path / "regions.py"
    script.write_text(REGIONS)
    library = compile_c(REGION, "-shared", "-fPIC", "-fopenmp", name="libomp1.so")
    (process,) = run_with_pool(whyrss, tmp_path, ["/usr/bin/python3", script, library])
    for size, function, expected in ((5 << 20, "alone", ["alone", "<module>"]), (6 << 20, "beside_another", [])):
        stacks = [process.stacks[event.stack_id] for event in allocations(process, size)]
        own = [stack for stack in stacks if stack.python]
        assert len(stacks) == 3 and [shown_frames(process, stack.python)[0][1] for stack in own] == [function]
        for stack in stacks:
            if stack not in own:
                assert [name for _, name, _ in shown_frames(process, stack.waiting)] == expected


WARM_POOL = """
import ctypes, sys
pool = ctypes.CDLL(sys.argv[1])
def warm():
    pool.start()
def keep_some():
    pool.grow(ctypes.c_size_t(40 << 20))  # some
def keep_most():
    pool.grow(ctypes.c_size_t(100 << 20))  # most
warm()
keep_some()
keep_most()
ctypes.CDLL(None).whyrss_snapshot()
"""


def test_the_report_names_the_line_that_waited(whyrss, recording, tmp_path, pool_library):
    script = tmp_path / "warm.py"
    script.write_text(WARM_POOL)
    result = whyrss.record(recording, ["/usr/bin/python3", script, pool_library])
    assert result.returncode == 0, result.stderr
    report = whyrss.finished_report(recording)
    sites = {site["during"][0]["line"]: site for site in cause(report["processes"][0], "heap_live")["sites"]
             if "during" in site}
    for text, size in (("# most", 100 << 20), ("# some", 40 << 20)):
        site = sites[line_of(WARM_POOL, text)]
        assert_near(site["growth"], size, 1 << 20)
        assert {frame["kind"] for frame in site["stack"]} == {"native"}
        assert [frame["function"] for frame in site["during"]] == [f"keep_{text[2:]}", "<module>"]
    (grew,) = [verdict["headline"] for verdict in report["verdicts"] if verdict["id"] == "heap-growth"]
    most, some = line_of(WARM_POOL, "# most"), line_of(WARM_POOL, "# some")
    assert re.search(rf"\(most allocated while warm\.py:{most} in keep_most ran, by \S+ in keep: 100 MiB, "
                     rf"40 MiB while warm\.py:{some} in keep_some ran\)", grew), grew
    raw = json.loads(whyrss.report_text(recording, "--small-sites"))
    grown = whyrss_live.lines_of(raw["processes"], raw["stacks"], "heap_live")
    assert [line for _, _, line in grown[:2]] == [f"warm.py:{most} in keep_most", f"warm.py:{some} in keep_some"]
    text = whyrss.run("report", recording).stdout
    assert f"warm.py:{most} in keep_most, by other threads while it" in " ".join(text.split())


@pytest.mark.parametrize("action", ["eperm", "enosys", "kill"])
def test_where_copies_are_forbidden_the_line_is_that_which_started_the_thread(whyrss, recording, tmp_path, pool_library,
                                                                              forbid, action):
    script = tmp_path / "warm.py"
    script.write_text(WARM_POOL)
    command = [*forbid(action, "process_vm_writev"), "/usr/bin/python3", script, pool_library]
    result = whyrss.record(recording, command)
    assert result.returncode == 0, result.stderr
    report = whyrss.finished_report(recording)
    assert not any("during" in site for site in cause(report["processes"][0], "heap_live")["sites"])
    (grew,) = [verdict["headline"] for verdict in report["verdicts"] if verdict["id"] == "heap-growth"]
    assert re.search(r"\(allocated by a thread that warm\.py:\d+ in warm started, by \S+ in keep\)", grew), grew
