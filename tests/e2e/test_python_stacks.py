"""Python stacks equal traceback's, for every CPython found: file, function, line, order and count."""
import os
import pathlib
import re
import subprocess
import sys

import pytest

import pool_reader
from conftest import PATIENCE_S
from interpreters import EVERY_CASE, MINORS, version_of
from zoo_runs import KEEPS_PAGES, MAX_PYTHON_FRAMES, run_zoo, shown_frames

PYMALLOC = 1
TABLES = pathlib.Path(__file__).resolve().parents[2] / "shim/stacks/python_tables.h"


def events_by_size(process):
    """Size as the program asked for it -> event; a bytearray takes a few bytes more."""
    found = {}
    for event in process.events:
        size = pool_reader.asked_pages(event.size_bytes)
        if size >= 1 << 20 and event.origin == 0:
            found.setdefault(size, []).append(event)
    return found


def compare(pool, expected):
    """(events equal, descriptions of those that are not, frames compared, frames placed)."""
    equal, wrong, frames, placed = 0, [], 0, 0
    by_pid = {pid: events_by_size(process) for pid, process in pool.items()}
    for (pid, size), wanted in expected.items():
        process, events = pool[pid], by_pid[pid].get(size, [])
        stacks = [process.stacks[event.stack_id] for event in events if event.stack_id]
        found = [shown_frames(process, stack.python) for stack in stacks]
        if len(wanted) > MAX_PYTHON_FRAMES:
            same = any(frames_ == wanted[:MAX_PYTHON_FRAMES] and stack.flags & pool_reader.STACK_TRUNCATED
                       for frames_, stack in zip(found, stacks))
        else:
            same = wanted in found
        equal += same
        if not same:
            wrong.append((pid, size, wanted[:4], found[0][:4] if found else None, len(wanted),
                          len(found[0]) if found else 0))
        for stack in stacks:
            assert not stack.flags & pool_reader.STACK_TORN
            indices = [frame.native_index for frame in stack.python if frame.native_index != pool_reader.NO_NATIVE_INDEX]
            assert indices == sorted(indices)
            assert all(index < len(stack.native) for index in indices)
            placed += len(indices)
            frames += len(stack.python)
    return equal, wrong, frames, placed


@pytest.mark.parametrize("python", EVERY_CASE)
def test_stacks_of_exact_mode_equal_traceback(whyrss, tmp_path, python):
    """With an event for each object most stacks are recalled: the native part by its words, Python frames where they are
    as at the event before."""
    pool, expected = run_zoo(whyrss.shim, python, tmp_path, chunk_count=16384, WHYRSS_OPTS="mode=exact", **KEEPS_PAGES)
    assert len(expected) > 500
    _, wrong, _, _ = compare(pool, expected)
    assert not wrong, f"{len(wrong)} of {len(expected)} differ, first: {wrong[0]}"


@pytest.mark.parametrize("python", EVERY_CASE)
def test_stacks_equal_traceback(whyrss, tmp_path, python):
    pool, expected = run_zoo(whyrss.shim, python, tmp_path, **KEEPS_PAGES)
    assert len(expected) > 500
    (main,) = [pool[pid] for pid in {pid for pid, _ in expected} if pool[pid].inherited == (0, 0)]  # the others forked
    version = subprocess.run([python, "-c", "import platform, sys; print(platform.python_version(), sys.hexversion)"],
                             capture_output=True, text=True, check=True).stdout.split()
    for process in pool.values():
        assert process.python.support == 0
        assert [process.python.version, str(process.python.version_hex)] == version
        start, end = process.python.eval_range
        assert process.python.runtime_range[0] <= start < end <= process.python.runtime_range[1]
        assert not process.notes
    equal, wrong, frames, placed = compare(pool, expected)
    print(f"{version[0]}: {equal} of {len(expected)} events, {frames} frames, {placed} placed", file=sys.stderr)
    assert not wrong, f"{len(wrong)} of {len(expected)} differ, first: {wrong[0]}"
    arenas = [event for event in main.events if event.origin == PYMALLOC]
    assert sum(event.size_bytes for event in arenas) > 16 << 20
    assert {event.size_bytes for event in arenas} <= {16 << 10, 256 << 10, 1 << 20, 2 << 20}


@pytest.mark.parametrize("python", EVERY_CASE)
def test_stacks_under_python_malloc(whyrss, tmp_path, python):
    """Without pymalloc every object goes through malloc: frames are walked inside the smallest steps."""
    pool, expected = run_zoo(whyrss.shim, python, tmp_path, PYTHONMALLOC="malloc", **KEEPS_PAGES)
    _, wrong, _, _ = compare(pool, expected)
    assert not wrong, f"{len(wrong)} of {len(expected)} differ, first: {wrong[0]}"


def run_traced(shim, command, tmp_path):
    """The records of a command that ends well, by pid."""
    environment = {**os.environ, "LD_PRELOAD": str(shim), **pool_reader.make_pool(tmp_path / "pool")}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "fine\n", "")
    return pool_reader.read_pool(tmp_path / "pool")


OTHERS = [path for path in sorted(pathlib.Path.home().glob(".pyenv/versions/*/bin/python"))
          if not any(path.parents[1].name.startswith(f"3.{minor}.") for minor in MINORS)]


@pytest.mark.parametrize("python", OTHERS or [pytest.param(None, marks=pytest.mark.skip(reason="no older Python"))],
                         ids=lambda path: path.parents[1].name if path else "none")
def test_unknown_version_is_said(whyrss, tmp_path, python):
    """Pythons without a table run on with native stacks only."""
    (process,) = run_traced(whyrss.shim, [python, "-c", "x = bytearray(1 << 20); print('fine')"], tmp_path).values()
    assert process.python.support in (1, 3)
    assert process.python.version in ("", python.parents[1].name)
    assert process.python.runtime_range[0] < process.python.runtime_range[1]
    assert any(stack.native for stack in process.stacks.values())
    assert not any(stack.python for stack in process.stacks.values())
    assert [note for note in process.notes if "native frames only" in note] == process.notes != []


# Runs before the library under test: the last of the preloaded ones is initialised first.
ALTERATION = r"""
#include <dlfcn.h>
__attribute__((constructor)) static void alter(void) {
    unsigned long *runtime = dlsym(RTLD_DEFAULT, "_PyRuntime");
    if (runtime != 0)
        runtime[%d / 8] += 8;
}
"""


SELF_DESCRIBED = [case for case in EVERY_CASE if case.values[0] is None or version_of(case.values[0]) >= 13]


@pytest.mark.parametrize("at", [0, 8, 16, "last"], ids=["cookie", "version", "free_threaded", "last_offset"])
@pytest.mark.parametrize("python", SELF_DESCRIBED)
def test_self_description_is_believed(whyrss, tmp_path, compile_c, python, at):
    """CPython 3.13 and later say where their fields are: one that differs from the table switches frames off."""
    if at == "last":
        row = re.search(rf"// CPython 3\.{version_of(python)}\n(.*?)}}}}}}", TABLES.read_text(), re.DOTALL)[1]
        at = int(re.findall(r"{(\d+),\s*\d+}?", row)[-1])
    alteration = compile_c(ALTERATION % at, "-shared", "-fPIC")
    (process,) = run_traced(f"{whyrss.shim}:{alteration}", [python, "-c", "x = bytearray(1 << 20); print('fine')"],
                            tmp_path).values()
    assert process.python.support == 2
    assert not any(stack.python for stack in process.stacks.values())
    assert ["is not laid out as" in note for note in process.notes] == [True]


IMPOSTOR = r"""
#include <stdio.h>
#include <stdlib.h>
%s
int main(void) { void *volatile block = malloc(1 << 20); free(block); return puts("fine") < 0; }
"""
VERSION = "const unsigned long Py_Version = %s; char _PyRuntime[1024];"
TYPES = " ".join(f"char Py{name}_Type[1024];" for name in ("Code", "Gen", "Frame", "Unicode"))


@pytest.mark.parametrize("source, support, version", [
    ("", None, None),
    (VERSION % "0x036300f0", 1, "3.99.0"),
    (VERSION % "0x030c01c2", 2, "3.12.1rc2"),
    (VERSION % "0x030d00f0" + TYPES, 2, "3.13.0"),
    ("char PyPy_IsInitialized[8];", 3, ""),
    ("char _PyRuntime[1024];", 1, ""),
    ('char _PyRuntime[1024]; const char *Py_GetVersion(void) { return "3.9.7a3 (some, thing)"; }', 2, "3.9.7a3"),
])
def test_what_only_resembles_python(whyrss, tmp_path, compile_c, source, support, version):
    """Nothing is read by the tables before the interpreter was found to be laid out by them."""
    program = compile_c(IMPOSTOR % source, "-rdynamic")
    (process,) = run_traced(whyrss.shim, [program], tmp_path).values()
    if support is None:
        assert process.python is None
    else:
        assert (process.python.support, process.python.version) == (support, version)
    assert any(pool_reader.asked_pages(event.size_bytes) == 1 << 20 for event in process.events)
    assert not any(stack.python for stack in process.stacks.values())
