"""Python processes that end at the hardest moment: they end as without us, and every block still has its line."""
import json

import pytest

import pool_reader
from hazard_zoo import KEPT
from hazards import ZOO, compare
from interpreters import CASES, version_of

EVERY_VERSION = pytest.mark.parametrize("python", CASES)
MAX_PYTHON_FRAMES = 512


def assert_descent(stacks, count, outermost):
    """Blocks made one frame deeper each."""
    assert len(stacks) == count
    for depth, names in enumerate(sorted(stacks, key=len)):
        assert names == ["keep"] + ["down"] * (depth + 1) + outermost


@EVERY_VERSION
@pytest.mark.parametrize("what, status, output", [("kill", -9, ""), ("exit", 5, ""), ("exec", 0, "the next program\n")])
def test_in_deep_recursion(whyrss, tmp_path, python, what, status, output):
    outcome = compare(whyrss, tmp_path, [python, ZOO, what])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (status, output)
    assert_descent(outcome.stacks(KEPT), 301, ["<lambda>", "<module>"])


@EVERY_VERSION
def test_of_a_forked_worker(whyrss, tmp_path, python):
    outcome = compare(whyrss, tmp_path, [python, ZOO, "worker"])
    assert outcome.bare.stdout == "worker 5\n"
    assert_descent(outcome.stacks(KEPT), 21, ["worker", "<module>"])
    assert len(outcome.report["processes"]) == 2


@EVERY_VERSION
def test_while_daemon_threads_allocate(whyrss, tmp_path, python):
    for round_number in range(3):
        folder = tmp_path / str(round_number)
        folder.mkdir()
        outcome = compare(whyrss, folder, [python, ZOO, "daemons"])
        assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "main is done\n")
        stacks = outcome.stacks(KEPT)
        assert [names for names in stacks if names[:2] == ["keep", "daemons"]] == [["keep", "daemons", "<module>"]] * 30
        # A finalising interpreter is not walked any more.
        assert all(names == [] or names[:2] in (["keep", "forever"], ["keep", "daemons"]) for names in stacks)


@EVERY_VERSION
def test_by_recursion_error(whyrss, tmp_path, python):
    """Tens of thousands of frames on a stack of 512 MiB: the innermost are kept, and the stack says that it was cut."""
    outcome = compare(whyrss, tmp_path, [python, ZOO, "recursion", 50_000])
    assert outcome.bare.stdout == "RecursionError\n"
    stacks = outcome.flagged_stacks(KEPT)
    deep = [(names, flags) for names, flags in stacks if names[1] == "endless"]
    assert len(deep) >= 49 and len(stacks) == len(deep) + 1
    for names, flags in deep:
        assert names == ["keep"] + ["endless"] * (MAX_PYTHON_FRAMES - 1)
        assert flags & pool_reader.STACK_TRUNCATED
    (after,) = [names for names, _ in stacks if names[1] != "endless"]
    assert after[:2] == ["keep", "run"] and after[-1] == "_bootstrap"


@EVERY_VERSION
def test_by_overflow_of_the_stack(whyrss, tmp_path, python):
    outcome = compare(whyrss, tmp_path, [python, ZOO, "overflow"])
    stopped_by_python = version_of(python) >= 12
    assert outcome.bare.returncode == (0 if stopped_by_python else -11)
    stacks = outcome.stacks(KEPT)
    assert len(stacks) > 1
    assert {tuple(names[:2]) for names in stacks} == {("keep", "__repr__")}


KEPT_BYTES = 32 << 20
FREED_AT_EXIT = f"""
import atexit, os, sys
kept = [b"x" * 480 + b"%08d" % number for number in range({KEPT_BYTES} // 520)]
atexit.register(kept.clear)
if sys.argv[1] == "fork":
    pid = os.fork()
    if pid:
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) if hasattr(os, "waitstatus_to_exitcode") else
                 os.waitpid(pid, 0)[1] >> 8)
    kept += [b"y" * 480 + b"%08d" % number for number in range({KEPT_BYTES} // 520)]
if sys.argv[1] != "end":
    sys.exit(5)
"""


def live_heap(process):
    return sum(entry["rss"]["last"] for entry in process["causes"] if entry["cause"] == "heap_live")


@EVERY_VERSION
@pytest.mark.parametrize("how, status", [("end", 0), ("exit", 5), ("fork", 5)])
def test_before_exit_functions_free(whyrss, tmp_path, python, how, status):
    """The last walk comes before functions of atexit run, and what comes after it is an interval of its own."""
    recording = tmp_path / "recording.whyrss"
    assert whyrss.record(recording, [python, "-c", FREED_AT_EXIT, how]).returncode == status
    process = whyrss.finished_report(recording)["processes"][-1]
    assert live_heap(process) > 0.9 * KEPT_BYTES
    assert process["teardown_s"] is not None and process["unseen_s"] == 0
    assert process["teardown_s"] <= process["ended_s"]
    result = whyrss.run("report", recording, "--format", "json", "--from", "teardown")
    after = json.loads(result.stdout)["processes"][-1]
    assert live_heap(after) < 0.2 * KEPT_BYTES  # with the interpreter's own
