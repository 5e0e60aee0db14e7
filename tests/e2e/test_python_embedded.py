"""Interpreters and allocators that come and go: a program loads libpython by dlopen, runs Python and unloads it, or starts
it several times; interpreters within one; domains that others wrap while blocks live.
"""
import ast
import collections
import os
import pathlib
import subprocess

import pytest

import pool_reader
from conftest import PATIENCE_S
from interpreters import CASES
from zoo_runs import shown_frames

HOST = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int count, char **words) {
    void *python = dlopen(words[1], strcmp(words[2], "local") == 0 ? RTLD_NOW | RTLD_LOCAL : RTLD_NOW | RTLD_GLOBAL);
    if (count != 4 || python == NULL)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    void (*start)(int) = dlsym(python, "Py_InitializeEx");
    int (*run)(const char *) = dlsym(python, "PyRun_SimpleString");
    int (*stop)(void) = dlsym(python, "Py_FinalizeEx");
    start(0);
    const int failed = run(words[3]);
    stop();
    if (dlclose(python) != 0)
        return 2;
    void *volatile block = malloc(1 << 25);  /* with nothing of Python left, maybe */
    free(block);
    return failed != 0 || puts("fine") < 0;
}
"""

SCRIPT = r"""
import sys, traceback
kept = []
def here(size):
    frames = traceback.StackSummary.extract(traceback.walk_stack(sys._getframe(1)), lookup_lines=False)
    sys.stderr.write(repr((size, [(frame.filename, frame.name, frame.lineno) for frame in frames])) + "\n")
def inner(size):
    kept.append(bytearray(size)), here(size)
def outer(number):
    for size in range(2 << 20, (2 << 20) + number * 4096, 4096):
        list(map(inner, [size]))
objects = [[number] for number in range(200000)]
outer(20)
sorted([3 << 20, (3 << 20) + 4096], key=lambda size: [inner(size), here(size)][0] or 0)
"""


def library_of(python):
    """The interpreter's shared library; skips where it has none."""
    code = "import sysconfig; print(sysconfig.get_config_var('LIBDIR'), sysconfig.get_config_var('INSTSONAME'))"
    folder, name = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    library = pathlib.Path(folder) / name
    if not name.startswith("libpython") or ".so" not in name or not library.is_file():
        pytest.skip(f"{python} has no shared library")
    return library


@pytest.mark.parametrize("scope", ["local", "global"])
@pytest.mark.parametrize("python", CASES)
def test_library_loaded_later(whyrss, tmp_path, compile_c, python, scope):
    library = library_of(python)
    host = compile_c(HOST, "-ldl")
    environment = {**os.environ, "LD_PRELOAD": str(whyrss.shim), "PYTHONHOME": str(python.parents[1]),
                   "LD_LIBRARY_PATH": str(library.parent), **pool_reader.make_pool(tmp_path / "pool")}
    result = subprocess.run([host, library, scope, SCRIPT], env=environment, capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
    (process,) = pool_reader.read_pool(tmp_path / "pool").values()
    assert process.python is not None and process.python.support == 0
    found = {event.size_bytes // 4096 * 4096: shown_frames(process, process.stacks[event.stack_id].python)
             for event in process.events if event.size_bytes >= 2 << 20 and event.stack_id}
    expected = {}
    for line in result.stderr.splitlines():
        size, frames = ast.literal_eval(line)
        expected.setdefault(size, frames)
    assert len(expected) == 22
    assert {size: found.get(size) for size in expected} == expected
    assert any(event.origin == 1 for event in process.events), "no arena was recognised"
    assert not process.notes


COUNT, BLOCK = 50000, 144  # objects of a line, and what each takes: bytes(100) has 133
MIB = 1 << 20


def live_by_line(process):
    """(basename, line) of the innermost Python frame -> resident bytes of live blocks."""
    lines = collections.Counter()
    for site in next(cause for cause in process["causes"] if cause["cause"] == "heap_live")["sites"]:
        frame = next((frame for frame in site["stack"] if frame["kind"] == "python"), None)
        if frame is not None:
            lines[pathlib.Path(frame["file"]).name, frame["line"]] += site["resident"]
    return lines


def assert_holds(lines, line, objects):
    """With the list that they are in."""
    assert objects * BLOCK * 0.97 <= lines[line] <= objects * (BLOCK + 10) * 1.02, (line, lines.most_common(5))


AGAIN = r"""
#include <dlfcn.h>
#include <stdio.h>

int main(int count, char **words) {
    void *python = dlopen(words[1], RTLD_NOW | RTLD_GLOBAL);
    if (python == NULL)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    void (*start)(int) = dlsym(python, "Py_InitializeEx");
    int (*run)(const char *) = dlsym(python, "PyRun_SimpleString");
    int (*stop)(void) = dlsym(python, "Py_FinalizeEx");
    for (int i = 2; i < count; ++i) {
        start(0);
        if (run(words[i]) != 0)
            return 2;
        if (i + 1 < count)
            stop();
    }
    return puts("fine") < 0;
}
"""


@pytest.mark.parametrize("mode", ["sampled", "exact"])
@pytest.mark.parametrize("python", CASES)
def test_interpreter_started_again(whyrss, recording, compile_c, python, mode):
    """What the first two held is gone when the third one runs, which is recorded to its end."""
    library = library_of(python)
    host = compile_c(AGAIN, "-ldl")
    earlier = f"kept = [bytes(100) for _ in range({2 * COUNT})]"
    last = f"import os\n\n\nkept = [bytes(100) for _ in range({COUNT})]"
    environment = {**os.environ, "PYTHONHOME": str(python.parents[1]), "LD_LIBRARY_PATH": str(library.parent)}
    result = whyrss.record(recording, [host, library, earlier, earlier, last], "--mode", mode, env=environment)
    assert (result.returncode, result.stdout) == (0, "fine\n"), result.stderr
    process, = whyrss.finished_report(recording)["processes"]
    live = next(cause for cause in process["causes"] if cause["cause"] == "heap_live")["rss"]
    assert COUNT * BLOCK <= live["last"] <= COUNT * BLOCK + 7 * MIB  # an interpreter's own: 2 to 5 MiB
    assert 2 * COUNT * BLOCK <= live["peak"]
    if mode == "exact":
        assert_holds(live_by_line(process), ("<string>", 4), COUNT)


SUBINTERPRETER = f"""
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
inner = interpreters.create()
interpreters.run_string(inner, "kept = [bytes(100) for _ in range({2 * COUNT})]")
kept = [bytes(100) for _ in range({COUNT})]
"""


@pytest.mark.parametrize("python", CASES)
def test_interpreter_within_another(whyrss, recording, tmp_path, python):
    """The end of its script is not that of the program."""
    program = tmp_path / "outer.py"
    program.write_text(SUBINTERPRETER)
    result = whyrss.record(recording, [python, program], "--mode", "exact")
    assert result.returncode == 0, result.stderr
    process, = whyrss.finished_report(recording)["processes"]
    lines = live_by_line(process)
    assert_holds(lines, ("outer.py", 8), COUNT)
    assert_holds(lines, ("<string>", 1), 2 * COUNT)


# Wraps the domain of objects, and unwraps it again.
WRAPPER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

struct allocator {
    void *context;
    void *(*allocate)(void *, size_t);
    void *(*allocate_zeroed)(void *, size_t, size_t);
    void *(*resize)(void *, void *, size_t);
    void (*release)(void *, void *);
};
static struct allocator below;
static void *allocate(void *context, size_t size) { return below.allocate(below.context, size); }
static void *allocate_zeroed(void *context, size_t count, size_t size) {
    return below.allocate_zeroed(below.context, count, size);
}
static void *resize(void *context, void *block, size_t size) { return below.resize(below.context, block, size); }
static void release(void *context, void *block) { below.release(below.context, block); }

void put_on(void) {
    void (*get)(int, struct allocator *) = dlsym(RTLD_DEFAULT, "PyMem_GetAllocator");
    void (*set)(int, struct allocator *) = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    struct allocator ours = {NULL, allocate, allocate_zeroed, resize, release};
    get(2, &below);
    set(2, &ours);
}
void take_off(void) {
    void (*set)(int, struct allocator *) = dlsym(RTLD_DEFAULT, "PyMem_SetAllocator");
    set(2, &below);
}
"""

WRAPPED = f"""
import ctypes, sys, tracemalloc
wrapper = ctypes.PyDLL(sys.argv[1])
before = [bytes(100) for _ in range({2 * COUNT})]
wrapper.put_on()
del before[::2]
during = [bytes(100) for _ in range({2 * COUNT})]
tracemalloc.start()
traced = [bytes(100) for _ in range({COUNT})]
del during[::2]
tracemalloc.stop()
wrapper.take_off()
after = [bytes(100) for _ in range({COUNT})]
"""


@pytest.mark.parametrize("python", CASES)
def test_domain_wrapped_while_blocks_live(whyrss, recording, tmp_path, compile_c, python):
    program = tmp_path / "wraps.py"
    program.write_text(WRAPPED)
    wrapper = compile_c(WRAPPER, "-shared", "-fPIC", "-ldl")
    result = whyrss.record(recording, [python, program, wrapper], "--mode", "exact")
    assert result.returncode == 0, result.stderr
    process, = whyrss.finished_report(recording)["processes"]
    lines = live_by_line(process)
    for line in (4, 7, 9, 13):
        assert_holds(lines, ("wraps.py", line), COUNT)
