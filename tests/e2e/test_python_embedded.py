"""An interpreter that comes late: a program loads libpython by dlopen, runs Python and unloads it again."""
import ast
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
