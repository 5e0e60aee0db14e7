"""Python with other allocators, trace functions, signals and forks at work: unharmed, and every block has its line."""
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import ROOT
from hazard_zoo import FORKS, HANDLED, KEPT, ROUNDS, TRACED
from hazards import ZOO, compare
from interpreters import CASES, FOUND, version_of
from pool_reader import images_of

EVERY_VERSION = pytest.mark.parametrize("python", CASES)
NEWEST = pytest.mark.parametrize("python", [pytest.param(path, id=f"3.{minor}") for minor, path in [max(FOUND)]])
WORK = (["keep"] + ["down"] * 11 + ["work", "<module>"])


def assert_worked(outcome, output="worked\n"):
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, output)
    stacks = [names for names in outcome.stacks(KEPT) if names[0] == "keep"]
    assert len(stacks) == 50 * 12
    assert stacks.count(WORK) == 2 * 50  # the deepest call makes two
    assert all(names[0] == "keep" and names[1] == "down" and names[-2:] == ["work", "<module>"] for names in stacks)


@EVERY_VERSION
@pytest.mark.parametrize("allocator", ["malloc", "pymalloc_debug"])
def test_allocators_of_python(whyrss, tmp_path, python, allocator):
    assert_worked(compare(whyrss, tmp_path, [python, ZOO, "work"], PYTHONMALLOC=allocator))


@EVERY_VERSION
def test_development_mode(whyrss, tmp_path, python):
    assert_worked(compare(whyrss, tmp_path, [python, "-X", "dev", ZOO, "work"]))


@NEWEST
def test_tracemalloc(whyrss, tmp_path, python):
    assert_worked(compare(whyrss, tmp_path, [python, "-X", "tracemalloc=5", ZOO, "work"]))


@EVERY_VERSION
def test_perf_trampolines(whyrss, tmp_path, python):
    """Calls go through code that was made at run time and that no unwind table covers."""
    if version_of(python) < 12:
        pytest.skip("this version has no -X perf")
    outcome = compare(whyrss, tmp_path, [python, "-X", "perf", ZOO, "work"])
    for pid in [process["pid"] for process in outcome.report["processes"]] + list(outcome.pool):
        pathlib.Path(f"/tmp/perf-{pid}.map").unlink(missing_ok=True)
    assert_worked(outcome)


def stripped_copy(python, folder):
    """The interpreter, and the libpython that it loads, without symbol tables; (program, environment)."""
    def run(*command):
        return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout
    prefix = run(python, "-c", "import sys; print(sys.base_prefix)").strip()
    program = folder / python.name
    shutil.copy(python.resolve(), program)
    libraries = [line.split()[2] for line in run("ldd", python).splitlines() if "libpython" in line]
    for path in libraries:
        shutil.copy(path, folder)
    for path in [program, *(folder / pathlib.Path(path).name for path in libraries)]:
        run("strip", "--strip-all", path)
        assert ".symtab" not in run("readelf", "-SW", path)
    return program, {"PYTHONHOME": prefix, "LD_LIBRARY_PATH": str(folder)}


@EVERY_VERSION
def test_stripped(whyrss, tmp_path, python):
    if not shutil.which("strip"):
        pytest.skip("strip is not installed")
    (tmp_path / "copy").mkdir()
    program, environment = stripped_copy(python, tmp_path / "copy")
    if subprocess.run([program, "-c", ""], env={**os.environ, **environment}, capture_output=True, check=False).returncode:
        pytest.skip("strip makes this program useless")
    assert_worked(compare(whyrss, tmp_path, [program, ZOO, "work"], **environment))


@EVERY_VERSION
def test_trace_functions(whyrss, tmp_path, python):
    outcome = compare(whyrss, tmp_path, [python, ZOO, "traced"])
    assert outcome.bare.stdout == "worked\nworked\ntraced 2400\n"
    traced = outcome.stacks(TRACED)
    assert len(traced) == 2400
    assert {tuple(names[:3]) for names in traced} == {("tracer", "keep", "down")}
    kept = outcome.stacks(KEPT)
    assert len(kept) == 1200 and {tuple(names[:2]) for names in kept} == {("keep", "down")}


def check_handlers(whyrss, tmp_path, python, what):
    outcome = compare(whyrss, tmp_path, [python, ZOO, what])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "ticked\n")
    handled = outcome.stacks(HANDLED)
    assert len(handled) >= 50 and {names[0] for names in handled} == {"handler"}
    assert {names[-1] for names in handled} == {"<module>"}
    kept = outcome.stacks(KEPT)
    assert len(kept) >= ROUNDS * 22 and len(kept) % 22 == 0
    assert {tuple(names[:2]) for names in kept} == {("keep", "down")}


@EVERY_VERSION
def test_handlers_that_allocate(whyrss, tmp_path, python):
    """SIGALRM after each millisecond. Python runs its handler between two bytecodes; the kernel interrupts anywhere."""
    check_handlers(whyrss, tmp_path, python, "alarms")


@NEWEST
def test_own_profiler(whyrss, tmp_path, python):
    check_handlers(whyrss, tmp_path, python, "profiled")


@EVERY_VERSION
def test_own_trap_handler(whyrss, tmp_path, python):
    outcome = compare(whyrss, tmp_path, [python, ZOO, "trapped"])
    assert outcome.bare.stdout == "trapped 200\n"
    assert outcome.stacks(HANDLED) == [["<lambda>", "trapped", "<module>"]] * 200
    assert outcome.stacks(KEPT) == [["keep", "trapped", "<module>"]] * 200


@NEWEST
def test_forks_beside_allocating_threads(whyrss, tmp_path, python):
    outcome = compare(whyrss, tmp_path, [python, "-W", "ignore", ZOO, "forks"])
    assert outcome.bare.stdout == "forked {1536}\n"
    stacks = outcome.stacks(KEPT)
    assert stacks.count(["keep", "forks", "<module>"]) == FORKS
    assert {tuple(names[:2]) for names in stacks} == {("keep", "forks"), ("keep", "down")}
    assert len(outcome.report["processes"]) == 1 + FORKS


@EVERY_VERSION
def test_switched_stacks(whyrss, tmp_path, compile_c, python):
    if version_of(python) >= 14:
        pytest.skip("this version refuses to run on a stack that it does not know")
    library = compile_c((ROOT / "tests/programs/elsewhere.c").read_text(), "-shared", "-fPIC", name="elsewhere.so")
    outcome = compare(whyrss, tmp_path, [python, ZOO, "elsewhere", library])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "been elsewhere\n")
    stacks = outcome.stacks(KEPT)
    assert len(stacks) == 100 * 13
    end = ["outer", "elsewhere", "<module>"]
    assert stacks.count(["keep", *end]) == 100
    assert stacks.count(["keep"] + ["down"] * 11 + ["inner", *end]) == 200
    assert all(names[-3:] == end for names in stacks)


def test_other_implementations(whyrss, tmp_path):
    """Frames of PyPy are not CPython's: no Python stacks, and no harm."""
    pypy = shutil.which("pypy3")
    if pypy is None:
        pytest.skip("pypy3 is not installed")
    outcome = compare(whyrss, tmp_path, [pypy, ZOO, "work"], notes=None)
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "worked\n")
    assert not any(stack.python for process in images_of(outcome.pool) for stack in process.stacks.values())
