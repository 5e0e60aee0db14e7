"""What the suite does with a case that fails: figures alone are repeated, everything else fails at once. And tests/soak,
which runs a case many times and counts.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from conftest import ROOT, is_running, wait_until
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


def write_case(folder, steps):
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_case.py").write_text(CASE.format(steps=json.dumps(steps)))


@pytest.fixture
def run_case(tmp_path):
    """run_case(steps) -> (exit status, output, how often it ran, lines of unsteady cases)."""
    def run(steps, *options):
        write_case(tmp_path, steps)
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


@pytest.fixture
def start_soak(tmp_path):
    """start_soak(steps, *words) -> a running tests/soak of such a case."""
    started = []

    def start(steps, *words):
        write_case(tmp_path, steps)
        command = [ROOT / "tests/soak", tmp_path / "test_case.py::test_case[a b::c]", "--load", "1", *words]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "TMPDIR": str(tmp_path)}))
        return started[-1]
    yield start
    for soak in started:
        soak.kill()
        soak.wait()


def test_soak_gives_a_bound_where_nothing_failed(start_soak, tmp_path):
    soak = start_soak(["right"], "--runs", "5")
    output, _ = soak.communicate()
    assert soak.returncode == 0 and ": 0 of 5 failed, at most 45.1 % (95 %)" in output and len(output.splitlines()) == 1
    assert (tmp_path / "count").read_text() == "5" and list(tmp_path.glob("whyrss-*")) == []


def test_soak_counts_what_failed_and_repeats_no_figure(start_soak, tmp_path):
    soak = start_soak(["fact", "right", "off", "fact", "right"], "--runs", "5")
    output, _ = soak.communicate()
    assert soak.returncode == 1 and ": 3 of 5 failed, at most 92.4 % (95 %)" in output
    assert '  2 x test_case[a b::c]: assert step != "fact": AssertionError' in output
    assert '  1 x test_case[a b::c]: if step == "off": assert_near(10, 5, 2, "size"): figure_off.FigureOff' in output
    assert (tmp_path / "count").read_text() == "5"
    folders = re.findall(r"the first is in (.*)", output)
    assert [pathlib.Path(folder).name for folder in folders] == ["1", "3"]
    assert re.findall(r"seeds (.*);", output) == ["1, 4", "3"]
    assert all("1 failed" in (pathlib.Path(folder) / "output").read_text() for folder in folders)


def test_soak_runs_nothing_where_a_name_does_not_exist(start_soak, tmp_path):
    soak = start_soak(["right"], "no-such-test")
    output, errors = soak.communicate()
    assert (soak.returncode, output, (tmp_path / "count").exists()) == (2, "", False)
    assert re.fullmatch(r"tests/soak: no-such-test is no [^\n]*\n", errors)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_of_soak_is_left_when_it_is_stopped(start_soak, tmp_path, number):
    soak = start_soak(["right"], "--runs", "100000")
    wait_until(lambda: (tmp_path / "count").read_text() > "1" if (tmp_path / "count").exists() else False, "two runs began")
    children = pathlib.Path(f"/proc/{soak.pid}/task/{soak.pid}/children").read_text().split()
    soak.send_signal(number)
    output, _ = soak.communicate()
    wait_until(lambda: not any(map(is_running, children)), "its processes are gone")
    assert children
    if number == signal.SIGINT:
        assert soak.returncode == 128 + number and re.search(r": 0 of [1-9]\d* failed", output)
