"""What the suite does with a case that fails: figures alone are repeated, everything else fails at once."""
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from conftest import ROOT
from expected.repeats import FIGURE_OFF, REPEATS

HERE = pathlib.Path(__file__).resolve().parent
CONFTEST = f"""
import sys
sys.path += [{str(HERE)!r}, {str(ROOT / "demos")!r}]
from repeat_hooks import (pytest_runtest_makereport, pytest_runtest_protocol, pytest_sessionfinish,
                          pytest_terminal_summary)
"""
# A case whose n-th run does the n-th of these, and then the last one of them for ever.
CASE = """
import json, os, pathlib, pytest
from figure_off import assert_near
STEPS, COUNT = {steps}, pathlib.Path(__file__).with_name("count")
@pytest.fixture(scope="module")
def number():
    number = int(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text(str(number + 1))
    return number
@pytest.mark.parametrize("name", ["a b::c"])
def test_case(number, name):
    step = STEPS[min(number, len(STEPS) - 1)]
    if step == "off": assert_near(10, 5, 2, "size")
    if step == "crash": os.abort()
    assert step != "fact"
"""
OFF = ["off"]


@pytest.fixture
def run_case(tmp_path):
    """run_case(steps) -> (exit status, output, how often it ran, lines of unsteady cases)."""
    def run(steps, *options):
        (tmp_path / "conftest.py").write_text(CONFTEST)
        (tmp_path / "test_case.py").write_text(CASE.format(steps=json.dumps(steps)))
        listed = tmp_path / "unsteady"
        environment = {name: value for name, value in os.environ.items() if name != "WHYRSS_REPEAT"}
        result = subprocess.run([sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_case.py"],
                                cwd=tmp_path, env={**environment, "WHYRSS_UNSTEADY": str(listed), **dict(options)},
                                capture_output=True, text=True, check=False)
        lines = listed.read_text().splitlines() if listed.exists() else []
        return result.returncode, result.stdout, int((tmp_path / "count").read_text()), lines
    return run


@pytest.mark.parametrize(("steps", "failed"), [(OFF + ["right"], 1), (OFF + 3 * ["right"] + OFF + ["right"], 2)])
def test_a_figure_that_is_off_once_or_twice_is_unsteady(run_case, steps, failed):
    status, output, count, lines = run_case(steps)
    assert (status, count) == (0, 1 + REPEATS)
    line, = lines
    assert line.startswith(f"unsteady: test_case.py::test_case[a b::c] failed {failed} of 11 (figure_off.FigureOff:")
    assert line in output and "1 passed" in output


@pytest.mark.parametrize("steps", [OFF, OFF + 8 * ["right"] + 2 * OFF])
def test_a_figure_that_is_off_again_fails(run_case, steps):
    status, output, _, lines = run_case(steps)
    assert status == 1 and lines == []
    assert re.search(r"a figure was off again in 2 of \d+ repeats", output) and "1 failed" in output


@pytest.mark.parametrize("steps", [["fact"], OFF + ["fact"], OFF + 5 * ["right"] + ["crash", "right"]])
def test_whatever_else_fails_at_once(run_case, steps):
    status, output, count, lines = run_case(steps)
    assert (status, lines, count) == (1, [], len([step for step in steps if step != "right"]) + 5 * ("crash" in steps))
    assert "1 failed" in output


def test_a_repeat_is_not_repeated(run_case):
    assert run_case(OFF, ("WHYRSS_REPEAT", "1"))[::2] == (FIGURE_OFF, 1)


def test_a_repeat_of_a_wrong_fact_is_no_figure(run_case):
    assert run_case(["fact"], ("WHYRSS_REPEAT", "1"))[0] == 1


SCENARIO = """
import pathlib
from expected.scenario import scenario
COUNT = pathlib.Path(__file__).with_name("count")
@scenario("counted", "A mystery", {program!r})
def counted(account):
    number = int(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text(str(number + 1))
    account.expect_close(10 if number in {off} else 5, 5, 0.1, "size")
    account.expect(number not in {wrong}, "a fact")
"""


@pytest.mark.parametrize(("off", "wrong", "status", "count"), [
    ([0], [], 0, 11), ([0, 4], [], 0, 11), ([0, 4, 5], [], 1, 6), ([], [0], 1, 1), ([0], [0], 1, 1), ([0], [3], 1, 4)])
def test_a_demo_is_repeated_alike(whyrss, tmp_path, off, wrong, status, count):
    (tmp_path / "counting.py").write_text(SCENARIO.format(program="/bin/true", off=off, wrong=wrong))
    listed = tmp_path / "unsteady"
    environment = {name: value for name, value in os.environ.items() if name != "WHYRSS_REPEAT"}
    result = subprocess.run([ROOT / "demos/run", "--brief", "--whyrss", whyrss.program, "--folder", tmp_path / "recordings",
                             "--more", tmp_path / "counting.py", "counted"], capture_output=True, text=True, check=False,
                            env={**environment, "WHYRSS_UNSTEADY": str(listed)})
    assert result.returncode == status, result.stdout + result.stderr
    assert int((tmp_path / "count").read_text()) == count
    assert [line for line in (listed.read_text().splitlines() if listed.exists() else []) if line.startswith("unsteady: ")] == [
        line for line in [f"unsteady: demo counted failed {len(off)} of 11 (size: 0.0 MiB (expected 0.0 ± 0.0))"] if status == 0]
