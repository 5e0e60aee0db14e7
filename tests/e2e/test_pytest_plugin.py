"""pytest --whyrss: limits that fail a test, the tests with the most growth, and a pytest that is otherwise as ever."""
import importlib.util
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import PATIENCE_S
from interpreters import CASES, DEBIAN

MIB = 1 << 20

LIMITED = """
import mmap
import pytest
KEPT = []

def test_small():
    print("small")

@pytest.mark.whyrss(limit="20 MiB")
def test_leaks():
    KEPT.append([bytes(1000) for _ in range(60000)])   # line 11

@pytest.mark.whyrss(limit="20 MiB")
def test_frees():
    assert len([bytes(1000) for _ in range(60000)]) == 60000

@pytest.mark.whyrss(limit="20 MiB", cause="anonymous")
@pytest.mark.whyrss("100 MiB", "rss")
def test_maps():
    KEPT.append(mmap.mmap(-1, 30 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
    KEPT[-1].write(b"x" * (30 << 20))

@pytest.mark.whyrss(limit=100 << 20)
def test_has_room():
    KEPT.append(bytearray(50 << 20))

@pytest.mark.whyrss(limit="1 MiB")
def test_fails_anyway():
    KEPT.append(bytearray(40 << 20))
    assert KEPT == 0, "its own reason"

def test_is_free():
    KEPT.append(bytearray(70 << 20))
"""


@pytest.fixture
def folder(whyrss):
    """Where the plugin lies."""
    return whyrss.shim.parent / "python"


@pytest.fixture
def suite(whyrss, folder, tmp_path):
    """suite(TEXT, *OPTIONS, ...) -> finished pytest over a file of that text, in a folder of its own."""
    def run(text, *options, python=DEBIAN, start=("-B", "-m", "pytest"), **more):
        (tmp_path / "test_it.py").write_text(text)
        environment = {**os.environ, "PYTHONPATH": str(folder), **more}
        return subprocess.run([str(python), *start, "-p", "no:cacheprovider", "--junitxml", "result.xml", *map(str, options)],
                              cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert whyrss.program.is_file()
    return run


def outcomes(tmp_path):
    """Name of a test -> the text of its failure, or None."""
    cases = xml.etree.ElementTree.parse(tmp_path / "result.xml").iter("testcase")
    found = {}
    for case in cases:
        failure = case.find("failure")
        assert case.find("error") is None
        found[case.get("name")] = None if failure is None else failure.text
    return found


def only_recording(tmp_path):
    (found,) = tmp_path.glob("whyrss-pytest-*")
    return found


def growth(whyrss, recording, phase, cause):
    result = whyrss.run("report", recording, "--format", "json", "--from=" + phase, "--to=" + phase)
    assert result.returncode == 0, result.stderr
    (found,) = [process for process in json.loads(result.stdout)["processes"] if "pytest" in process["command"]]
    return sum(one["growth"]["rss"] for one in found["causes"] if one["cause"] == cause)


def test_limits_fail_the_tests_that_break_them(whyrss, suite, tmp_path):
    result = suite(LIMITED, "--whyrss", "--strict-markers")
    assert result.returncode == 1, result.stdout + result.stderr
    found = outcomes(tmp_path)
    assert {name for name, failure in found.items() if failure} == {"test_leaks", "test_maps", "test_fails_anyway"}

    leak = re.match(r"whyrss: heap_live grew by (\d+) MiB(?: \((?:exact|an estimate)\)| ± \S+ \S+), limit 20 MiB\n",
                    found["test_leaks"])
    assert leak, found["test_leaks"]
    assert "test_it.py:11 in test_leaks" in found["test_leaks"]
    assert found["test_maps"].startswith("whyrss: anonymous grew by 30 MiB"), found["test_maps"]
    assert "rss grew" not in found["test_maps"]
    assert "its own reason" in found["test_fails_anyway"] and "grew by" not in found["test_fails_anyway"]
    assert "- whyrss -" in result.stdout and "heap_live grew by 40 MiB" in result.stdout

    recording = only_recording(tmp_path)
    report = whyrss.finished_report(recording)
    assert {phase["name"] for phase in report["phases"]} == {f"test_it.py::{name}" for name in found}
    # The figure that the test was judged by is the one that the report has later.
    assert int(leak[1]) == round(growth(whyrss, recording, "test_it.py::test_leaks", "heap_live") / MIB)
    assert 58 * MIB <= growth(whyrss, recording, "test_it.py::test_leaks", "heap_live") <= 66 * MIB
    assert abs(growth(whyrss, recording, "test_it.py::test_frees", "heap_live")) <= 2 * MIB


def test_the_summary_names_the_largest_tests(suite):
    result = suite(LIMITED, "--whyrss")
    summary = result.stdout[result.stdout.index("whyrss: tests with the most growth of RSS"):]
    named = re.findall(r"^ *\+(\d+) MiB  test_it.py::(\w+)(?:: over its limit, as above)?$", summary, re.MULTILINE)
    assert [name for _, name in named] == ["test_is_free", "test_leaks", "test_has_room", "test_fails_anyway", "test_maps"]
    for (size, _), known in zip(named, (70, 60, 50, 40, 30)):
        assert known - 2 <= int(size) <= known + 8
    assert "test_it.py:33 in test_is_free" in summary
    assert "test_it.py::test_leaks: over its limit, as above\n" in summary
    for line in (11, 20, 25, 29, 33):  # of the tests that grow: once each, whether they fail or not
        assert len(re.findall(rf"test_it\.py:{line}\b", result.stdout)) == 1, result.stdout
    assert re.search(r"^all: whyrss report whyrss-pytest-\d+$", summary, re.MULTILINE)


def test_without_the_option_marks_do_nothing(suite, tmp_path):
    result = suite(LIMITED, "--strict-markers")
    assert result.returncode == 1
    assert {name for name, failure in outcomes(tmp_path).items() if failure} == {"test_fails_anyway"}
    assert "whyrss: " not in result.stdout + result.stderr and not list(tmp_path.glob("whyrss-*"))


STATUSES = {
    0: "def test_a(): pass",
    1: "def test_a(): assert 0",
    2: "def test_a(): raise KeyboardInterrupt",
    5: "A = 1",
}


@pytest.mark.parametrize("status", STATUSES)
def test_exit_statuses_are_pytests_own(suite, status):
    assert suite(STATUSES[status]).returncode == status
    assert suite(STATUSES[status], "--whyrss").returncode == status


def test_streams_are_pytests_own(suite, tmp_path):
    text = "import sys\ndef test_a():\n    print('to stdout', sys.stdin.read())\n    print('to stderr', file=sys.stderr)\n"
    bare = suite(text, "-s", "-q")
    result = suite(text, "-s", "-q", "--whyrss")
    assert result.stderr == bare.stderr == "to stderr\n"

    def without_times(output):
        return re.sub(r"in [0-9.]+s", "", output)
    kept = re.sub(r"=+ whyrss: tests .*?all: whyrss report \S+\n", "", result.stdout, flags=re.DOTALL)
    assert without_times(kept) == without_times(bare.stdout)


def test_a_killed_pytest_leaves_its_recording(whyrss, suite, tmp_path):
    result = suite("import os\nK = []\ndef test_a():\n    K.append(bytearray(60 << 20))\n    os.kill(os.getpid(), 9)\n", "--whyrss")
    assert result.returncode == -signal.SIGKILL
    report = whyrss.finished_report(only_recording(tmp_path))
    assert report["recording"]["exit"]["signal"] == "SIGKILL"
    assert any(verdict["id"] == "heap-growth" and "test_it.py:4" in verdict["headline"] for verdict in report["verdicts"])


def test_a_place_for_the_recording(whyrss, suite, tmp_path):
    assert suite("def test_a(): pass", "--whyrss", "--whyrss-output", tmp_path / "here").returncode == 0
    assert whyrss.finished_report(tmp_path / "here")["recording"]["command"][1:4] == ["-B", "-m", "pytest"]


def test_below_whyrss_record_it_joins(whyrss, folder, tmp_path):
    (tmp_path / "test_it.py").write_text(LIMITED)
    result = whyrss.record(tmp_path / "outer", [DEBIAN, "-B", "-m", "pytest", "-p", "no:cacheprovider", "--whyrss"], cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(folder)})
    assert result.returncode == 1 and "heap_live grew by" in result.stdout
    assert not list(tmp_path.glob("whyrss-pytest-*"))


def test_the_script_and_the_plugin_by_name(whyrss, suite, tmp_path):
    """`pytest`, and `-p whyrss_pytest` where there is no metadata."""
    script = shutil.which("pytest", path="/usr/bin")
    if script is None:
        pytest.skip("no /usr/bin/pytest")
    assert suite(LIMITED, "--whyrss", start=(script,)).returncode == 1
    assert outcomes(tmp_path)["test_leaks"]
    bare = tmp_path / "prefix" / "lib" / "python"
    bare.mkdir(parents=True)
    for module in (whyrss.shim.parent / "python").glob("*.py"):
        shutil.copy(module, bare)
    (tmp_path / "result.xml").unlink()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "whyrss").symlink_to(whyrss.program)
    result = suite(LIMITED, "-p", "whyrss_pytest", "--whyrss", PYTHONPATH=str(bare),
                   PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert result.returncode == 1, result.stdout + result.stderr
    assert outcomes(tmp_path)["test_leaks"]


def test_workers_of_xdist_judge_their_own_tests(whyrss, suite, tmp_path):
    if subprocess.run([DEBIAN, "-c", "import xdist"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no pytest-xdist for Debian's python3 (python3-pytest-xdist)")
    result = suite(LIMITED, "--whyrss", "-n", "2")
    assert result.returncode == 1, result.stdout + result.stderr
    found = outcomes(tmp_path)
    assert {name for name, failure in found.items() if failure} == {"test_leaks", "test_maps", "test_fails_anyway"}
    assert found["test_leaks"].startswith("whyrss: heap_live grew by")
    summary = result.stdout[result.stdout.index("whyrss: tests with the most growth of RSS"):]
    assert "test_it.py:33 in test_is_free" in summary and "test_it.py::test_leaks: over its limit, as above" in summary
    report = whyrss.finished_report(only_recording(tmp_path))
    assert {phase["name"].split()[0] for phase in report["phases"]} <= {"gw0", "gw1"}
    assert len(report["phases"]) == len(found)


@pytest.mark.parametrize("mark, complaint", [
    ("", 'limit="100 MiB" is missing'),
    ('limit="many"', "not a size: 'many'"),
    ("limit=-1", "not a size: -1"),
    ('limit="1 MiB", cause="leaks"', "cause='leaks': not one of file_cache, "),
    ('limit="1 MiB", peak=3', "unexpected keyword argument 'peak'"),
])
@pytest.mark.parametrize("option", [(), ("--whyrss",)])
def test_a_mark_that_says_nothing_fails_its_test(suite, tmp_path, mark, complaint, option):
    result = suite(f"import pytest\n@pytest.mark.whyrss({mark})\ndef test_a(): pass\ndef test_b(): pass\n", *option)
    assert result.returncode == 1
    cases = {case.get("name"): [part.get("message", "") + (part.text or "") for part in case if part.tag in ("error", "failure")]
             for case in xml.etree.ElementTree.parse(tmp_path / "result.xml").iter("testcase")}
    assert cases["test_b"] == [] and len(cases["test_a"]) == 1
    assert "@pytest.mark.whyrss: " in cases["test_a"][0] and complaint in cases["test_a"][0]


def test_children_that_live_on_count_and_others_do_not(suite, tmp_path):
    text = """
import subprocess, sys, pytest
HOLD = "x = bytearray(40 << 20); print('ready', flush=True); "
KEPT = []

@pytest.mark.whyrss(limit="20 MiB")
def test_ended():
    subprocess.run([sys.executable, "-c", HOLD], check=True)

@pytest.mark.whyrss(limit="20 MiB")
def test_lives():
    KEPT.append(subprocess.Popen([sys.executable, "-c", HOLD + "input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    KEPT[-1].stdout.readline()
    import ctypes, time
    time.sleep(1)  # until the child has been walked: nobody else asks for that

def test_end():
    KEPT[-1].communicate()
"""
    result = suite(text, "--whyrss")
    found = outcomes(tmp_path)
    assert found["test_ended"] is None, found
    assert result.returncode == 1 and "heap_live grew by" in found["test_lives"], result.stdout


def test_one_name_twice_is_two_phases(whyrss, suite, tmp_path):
    text = ("import pytest\nK = []\n@pytest.mark.parametrize('a', ['x, y: %0A', '\\x1b[31m', '--from', '1.5'])\n"
            "@pytest.mark.whyrss(limit='8 MiB')\ndef test_a(a): K.append(bytearray((1 + 19 * (a == '1.5')) << 20))\n")
    plugin = "def pytest_collection_modifyitems(items): items.extend(list(items))\n"
    (tmp_path / "conftest.py").write_text(plugin)
    result = suite(text, "--whyrss")
    assert result.returncode == 1
    assert result.stdout.count("heap_live grew by 20 MiB") == 2, result.stdout
    names = [phase["name"] for phase in whyrss.finished_report(only_recording(tmp_path))["phases"]]
    assert len(names) == len(set(names)) == 8


def test_what_cannot_be_done_is_one_line(whyrss, suite, folder, tmp_path):
    (tmp_path / "main.py").write_text("import sys, pytest\nsys.exit(pytest.main(sys.argv[1:]))\n")
    result = suite("def test_a(): pass", "--whyrss", start=("-B", "main.py"))
    assert (result.returncode, result.stderr) == (
        4, "ERROR: --whyrss: pytest was called by a program: start that one by `whyrss record -- ...`\n\n")

    result = suite("def test_a(): pass", "--whyrss", WHYRSS_PYTEST="1")  # as it is started again, without the library
    assert result.returncode == 4 and result.stderr.startswith("ERROR: --whyrss: the library could not be loaded into ")

    bare = tmp_path / "no" / "lib" / "python"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("__pycache__"))
    result = suite("def test_a(): pass", "--whyrss", PYTHONPATH=str(bare), PATH="/usr/bin:/bin")
    assert result.returncode == 4 and result.stderr.startswith("ERROR: --whyrss: cannot find the program whyrss, ")

    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "file").write_text("")
    result = suite("def test_a(): pass", "--whyrss", "--whyrss-output", taken)
    assert result.returncode == 125 and result.stderr.startswith("whyrss: ")


def test_a_limit_that_cannot_be_judged_does_not_hold(suite, tmp_path):
    """The recording is gone: the test says so."""
    text = ("import os, pytest, shutil\n@pytest.mark.whyrss(limit='1 GiB')\ndef test_a():\n"
            "    shutil.rmtree(os.environ['WHYRSS_OUTPUT'])\n")
    result = suite(text, "--whyrss", "--whyrss-output", tmp_path / "gone")
    assert result.returncode == 1
    assert outcomes(tmp_path)["test_a"].startswith("whyrss: cannot judge the limit: "), result.stdout


def test_help_and_markers_are_not_recorded(suite, tmp_path):
    result = suite("", "--help", "--whyrss")
    assert result.returncode == 0 and "--whyrss-output" in result.stdout
    assert "@pytest.mark.whyrss(limit, cause=" in suite("", "--markers").stdout
    assert not list(tmp_path.glob("whyrss-*"))


@pytest.mark.parametrize("python", CASES)
def test_every_python_that_can_run_pytest(suite, folder, tmp_path, python):
    """With its own pytest, or else with Debian's, which is plain Python."""
    links = tmp_path / "links"
    links.mkdir()
    for package in ("pytest", "_pytest", "py", "pluggy", "attr", "attrs", "iniconfig", "packaging", "exceptiongroup", "tomli"):
        found = importlib.util.find_spec(package)
        if found is not None:
            (links / package).symlink_to(pathlib.Path(found.origin).parent)
    path = str(folder)
    if subprocess.run([python, "-c", "import pytest"], capture_output=True, check=False).returncode != 0:
        path += f":{links}"
        (links / "probe.py").write_text("'An old pytest cannot read it with a new Python.'\ndef test_it(): assert True\n")
        probe = subprocess.run([python, "-B", "-m", "pytest", links / "probe.py"], env={**os.environ, "PYTHONPATH": path},
                               capture_output=True, text=True, check=False)
        if probe.returncode != 0:
            pytest.skip(f"no pytest for {python}: {probe.stderr.strip().splitlines()[-1]}")
    result = suite(LIMITED, "--whyrss", "-p", "whyrss_pytest", python=python, PYTHONPATH=path)
    assert result.returncode == 1, result.stdout + result.stderr
    found = outcomes(tmp_path)
    assert {name for name, failure in found.items() if failure} == {"test_leaks", "test_maps", "test_fails_anyway"}
    assert "test_it.py:11 in test_leaks" in found["test_leaks"] or "test_it.py:11 in <listcomp>" in found["test_leaks"]


def test_sizes_and_causes_are_those_of_reports(folder, whyrss):
    """What the Python code repeats of the analyzer: names of causes, and the format of a size."""
    spec = importlib.util.spec_from_file_location("whyrss_live", folder / "whyrss_live.py")
    sys.path.insert(0, str(folder))
    try:
        live = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(live)
    finally:
        sys.path.remove(str(folder))
    root = pathlib.Path(__file__).resolve().parents[2]
    schema = json.loads((root / "analyzer/report/report.schema.json").read_text())
    assert list(live.CAUSES) == schema["definitions"]["cause"]["enum"]
    assert [live.size_text(size) for size in (0, 1023, -2048, 3 << 20, 300 << 20, 5 << 30, 20 << 30)] == [
        "0 B", "1023 B", "-2 KiB", "3.0 MiB", "300 MiB", "5120 MiB", "20.0 GiB"]
    assert [live.parse_size(text) for text in ("100 MiB", "2GB", "1.5kib", " 7 ", 12)] == [100 * MIB, 2 * 10**9, 1536, 7, 12]
    assert whyrss.program.is_file()
