"""Python frames stand where their eval call stood between native frames, and those of extensions stay."""
import ast
import os
import pathlib
import subprocess

import pytest

import pool_reader
from conftest import PATIENCE_S
from expected.report_reading import cause
from interpreters import CASES, version_of

BLOCK_BYTES = 48 << 20

EXTENSION = r"""
#include <Python.h>
#include <string.h>

/* Native code that allocates, two calls deep. */
__attribute__((noinline)) static void *deep_block(size_t size) {
    void *block = malloc(size);
    if (block)
        memset(block, 1, size);
    return block;
}

__attribute__((noinline)) static void *native_block(size_t size) {
    void *block = deep_block(size);
    return block ? (char *)block + 1 : NULL;
}

static PyObject *keep(PyObject *self, PyObject *size) {
    (void)self;
    return PyLong_FromVoidPtr(native_block(PyLong_AsSize_t(size)));
}

/* Native code that calls Python. */
__attribute__((noinline)) static PyObject *native_call(PyObject *function, PyObject *size) {
    PyObject *result = PyObject_CallFunctionObjArgs(function, size, NULL);
    return result ? PyNumber_Long(result) : NULL;
}

static PyObject *call(PyObject *self, PyObject *words) {
    PyObject *function, *size;
    (void)self;
    return PyArg_ParseTuple(words, "OO", &function, &size) ? native_call(function, size) : NULL;
}

/* Where the functions are, so that a test finds them among return addresses. */
static PyObject *places(PyObject *self, PyObject *none) {
    (void)self, (void)none;
    return Py_BuildValue("{s:K,s:K,s:K}", "deep_block", (unsigned long long)deep_block, "native_block",
                         (unsigned long long)native_block, "native_call", (unsigned long long)native_call);
}

static PyMethodDef methods[] = {{"keep", keep, METH_O, ""},
                                {"call", call, METH_VARARGS, ""},
                                {"places", places, METH_NOARGS, ""},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "mixed", "", -1, methods, NULL, NULL, NULL, NULL};
PyMODINIT_FUNC PyInit_mixed(void) { return PyModule_Create(&definition); }
"""

SCRIPT = f"""
import mixed
def innermost(size): return mixed.keep(size)
def inner(size): return innermost(size)
def outer(size): return mixed.call(inner, size)
def outermost(size): return mixed.call(outer, size)
print(mixed.places())
kept = outermost({BLOCK_BYTES})
"""

# Innermost first; the same number: between the same two native frames.
EXPECTED = ["deep_block", "native_block", ("innermost", "inner"), "native_call", ("outer",), "native_call",
            ("outermost", "<module>")]


@pytest.fixture
def extension(tmp_path):
    """extension(PYTHON) -> the folder with its mixed.so; skips where its headers are not."""
    def build(python):
        code = "import sysconfig; print(sysconfig.get_path('include'))"
        include = pathlib.Path(subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip())
        if not (include / "Python.h").is_file():
            pytest.skip(f"no headers beside {python}")
        source = tmp_path / "mixed.c"
        source.write_text(EXTENSION)
        subprocess.run(["gcc", "-g", "-O1", "-w", "-shared", "-fPIC", f"-I{include}", f"-I{include.parent}", source, "-o",
                        tmp_path / "mixed.so"], check=True)
        return tmp_path
    return build


def sizes_of(library):
    lines = subprocess.run(["nm", "-S", library], capture_output=True, text=True, check=True).stdout.splitlines()
    return {words[3]: int(words[1], 16) for words in map(str.split, lines) if len(words) == 4}


@pytest.mark.parametrize("python", CASES)
def test_frames_stand_between_native_ones(whyrss, tmp_path, extension, python):
    folder = extension(python)
    environment = {**os.environ, "LD_PRELOAD": str(whyrss.shim), "PYTHONPATH": str(folder),
                   **pool_reader.make_pool(tmp_path / "pool")}
    result = subprocess.run([python, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
                            check=False)
    assert result.returncode == 0, result.stderr
    sizes = sizes_of(folder / "mixed.so")
    places = {name: range(start + 1, start + sizes[name] + 1) for name, start in ast.literal_eval(result.stdout).items()}
    (process,) = pool_reader.read_pool(tmp_path / "pool").values()
    (event,) = [event for event in process.events if BLOCK_BYTES <= event.size_bytes < BLOCK_BYTES + 4096 and event.kind == pool_reader.ALLOCATE]
    stack = process.stacks[event.stack_id]
    assert stack.flags == 0
    frames = {}
    for frame in stack.python:
        if not frame.flags & pool_reader.FRAME_INCOMPLETE:
            assert frame.native_index != pool_reader.NO_NATIVE_INDEX
            frames.setdefault(frame.native_index, []).append(process.codes[frame.code].name)
    assert version_of(python) < 11 or [len(names) for names in frames.values()] == [2, 1, 2]
    mixed = []
    for index, address in enumerate(stack.native):
        mixed += [name for name, place in places.items() if address in place]
        if index in frames:
            mixed.append(tuple(frames[index]))
    # Until 3.10 each Python frame has an eval call of its own.
    one_each = [entry for part in EXPECTED for entry in ([(name,) for name in part] if isinstance(part, tuple) else [part])]
    assert mixed == (EXPECTED if version_of(python) >= 11 else one_each)


def site_of(whyrss, recording, command, folder=None):
    """The frames of the largest native heap site, innermost first: (name, file name of its library or source)."""
    environment = {**os.environ, "PYTHONPATH": str(folder)} if folder else None
    result = whyrss.record(recording, command, env=environment)
    assert result.returncode == 0, result.stderr
    (process,) = whyrss.finished_report(recording)["processes"]
    site = max((site for slug in ("heap_live", "anonymous") for site in cause(process, slug)["sites"]),
               key=lambda found: found["growth"])
    return site["stack"]


@pytest.mark.parametrize("python", CASES)
def test_report_names_functions_and_library(whyrss, recording, extension, python):
    folder = extension(python)
    frames = site_of(whyrss, recording, [python, "-c", SCRIPT], folder)
    names = [frame["function"] for frame in frames]
    ours = [name for name in names if name in ("deep_block", "native_block", "innermost", "inner", "native_call", "outer",
                                               "outermost")]
    assert ours == ["deep_block", "native_block", "innermost", "inner", "native_call", "outer", "native_call", "outermost"]
    for frame in frames:
        if frame["function"] in ("deep_block", "native_block", "native_call"):
            assert (frame["kind"], pathlib.Path(frame["module"]).name) == ("native", "mixed.so")
    line = EXTENSION.splitlines().index("    void *block = malloc(size);") + 1
    verdict = whyrss.report(recording)["verdicts"][0]
    assert verdict["headline"].endswith(
        f" MiB live heap (allocated at <string>:3 in innermost, by mixed.c:{line} in deep_block)")
    assert verdict["evidence"]["lines"][0]["native_line"] == f"mixed.c:{line} in deep_block"
