"""Phases and marks of whyrss.py and whyrss.h, `python3 -m whyrss`, and all of it from an installed tree."""
import collections
import json
import os
import pathlib
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S
from interpreters import CASES, DEBIAN

PROGRAM = pathlib.Path(__file__).with_name("marks_program.py")
ROUNDED_S = 1e-6  # times are float


@pytest.fixture
def module(whyrss):
    """The folder that holds whyrss.py."""
    folder = whyrss.shim.parent / "python"
    assert (folder / "whyrss.py").is_file()
    return folder


def with_module(folder, **more):
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **more}


def read_log(path):
    """Name -> list of the times logged for it: of each phase, and of each mark."""
    phases, marks = collections.defaultdict(list), collections.defaultdict(list)
    for line in path.read_text().splitlines():
        name, *times = json.loads(line)
        (phases if len(times) == 4 else marks)[name].append(times)
    return phases, marks


@pytest.mark.parametrize("python", CASES)
def test_phases_are_where_the_program_says(whyrss, module, recording, tmp_path, python):
    bare = subprocess.run([python, PROGRAM, tmp_path / "bare"], env=with_module(module), capture_output=True, text=True,
                          timeout=PATIENCE_S, check=False)
    assert (bare.returncode, bare.stderr) == (0, "")
    recorded = whyrss.record(recording, [python, PROGRAM, tmp_path / "log"], env=with_module(module))
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, bare.stdout, "")

    expected, marks = read_log(tmp_path / "log")
    report = whyrss.finished_report(recording)
    found = collections.defaultdict(list)
    for phase in report["phases"]:
        found[phase["name"]].append((phase["from_s"], phase["to_s"]))
    decorated = found.pop("decorated")
    assert len(decorated) == 3 and decorated == sorted(decorated)
    assert [end for _, end in decorated] == sorted((end for _, end in decorated), reverse=True)
    (unfinished,) = found.pop("unfinished")
    assert {name: len(times) for name, times in found.items()} == {name: len(times) for name, times in expected.items()}

    (zero,), (zero_logged,) = found["zero"], expected["zero"]
    for name, logged in expected.items():
        for (begin, end), times in zip(sorted(found[name]), sorted(logged)):
            since = [time - zero_logged[1] - ROUNDED_S for time in times], [time - zero_logged[0] + ROUNDED_S for time in times]
            assert since[0][0] <= begin - zero[0] <= since[1][1], name
            assert since[0][2] <= end - zero[0] <= since[1][3], name
    ((mark_name, ((before, after),)),) = marks.items()
    (mark,) = report["marks"]
    assert mark["name"] == mark_name == "between"
    assert before - zero_logged[1] - ROUNDED_S <= mark["at_s"] - zero[0] <= after - zero_logged[0] + ROUNDED_S
    starts = [phase["from_s"] for phase in report["phases"]]
    assert starts == sorted(starts)
    assert unfinished[0] >= max(end for name in expected for _, end in found[name] if name != "unfinished")
    assert unfinished[1] <= report["recording"]["duration_s"] + ROUNDED_S


def test_an_interval_by_phase(whyrss, module, recording, tmp_path):
    assert whyrss.record(recording, [DEBIAN, PROGRAM, tmp_path / "log"], env=with_module(module)).returncode == 0
    phases = {phase["name"]: phase for phase in whyrss.finished_report(recording)["phases"]}
    result = whyrss.run("report", recording, "--format", "json", "--from", "inner", "--to", "in a generator")
    assert result.returncode == 0, result.stderr
    interval = json.loads(result.stdout)["interval"]
    assert interval["from_s"] == pytest.approx(phases["inner"]["from_s"])
    assert interval["to_s"] == pytest.approx(phases["in a generator"]["to_s"])


FAST_PHASES = """
import time, whyrss
with whyrss.phase("first"):
    time.sleep(0.3)
kept = []
for number in range(12):
    with whyrss.phase(f"grows {number}"):
        kept.append(bytearray(40 << 20))
        for at in range(0, 40 << 20, 4096):
            kept[-1][at] = 1
    with whyrss.phase(f"shrinks {number}"):
        if number % 3 == 2:
            kept.pop()
time.sleep(0.3)
"""


def test_phases_that_come_faster_than_walks(whyrss, module, recording):
    """Of each the growth is its own, also where its edges came too soon for a walk, and a walk right after them."""
    assert whyrss.record(recording, [DEBIAN, "-c", FAST_PHASES], env=with_module(module)).returncode == 0
    report = whyrss.finished_report(recording)
    wrong = {}
    for phase in report["phases"][1:]:
        name = phase["name"]
        expected = 40 if name.startswith("grows") else -40 if int(name.split()[1]) % 3 == 2 else 0
        of_phase = json.loads(whyrss.report_text(recording, "--from", name, "--to", name))
        growth = sum(cause["growth"]["rss"] for cause in of_phase["processes"][0]["causes"]) / 2**20
        if abs(growth - expected) > 1:
            wrong[name] = round(growth, 1)
    assert wrong == {}


def test_without_ctypes_nothing_happens(whyrss, module, recording):
    code = ("import sys; sys.modules['ctypes'] = None; import whyrss\n"
            "with whyrss.phase('a'): whyrss.mark('b'); whyrss.snapshot(); print('fine')")
    recorded = whyrss.record(recording, [DEBIAN, "-c", code], env=with_module(module))
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, "fine\n", "")
    assert whyrss.finished_report(recording)["phases"] == []


@pytest.mark.parametrize("python", CASES)
def test_module_runs_the_program(module, recording, tmp_path, python):
    def run(*arguments, **more):
        return subprocess.run([python, "-m", "whyrss", *map(str, arguments)], capture_output=True, text=True, check=False,
                              timeout=PATIENCE_S, cwd=tmp_path, env=with_module(module, **more))
    ended = run("record", "-q", "-o", recording, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (ended.returncode, ended.stdout, ended.stderr) == (7, "out\n", "err\n")
    assert run("report", recording).returncode == 0
    assert run("record", "-q", "-o", tmp_path / "killed", "--", "sh", "-c", "kill -TERM $$").returncode == -15
    assert run("no-such-program").returncode == 127
    ignored = ["grep", "SigIgn", "/proc/self/status"]
    bare = subprocess.run(ignored, capture_output=True, text=True, check=True)
    assert run("record", "-q", "-o", tmp_path / "signals", "--", *ignored).stdout == bare.stdout


def test_module_finds_the_program_or_says_so(whyrss, module, tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(module / "whyrss.py", alone)
    command = [DEBIAN, "-m", "whyrss", "--version"]
    missing = subprocess.run(command, env=with_module(alone, PATH="/nowhere"), capture_output=True, text=True, check=False)
    assert missing.returncode == 127
    assert len(missing.stderr.splitlines()) == 1 and "cannot find the program" in missing.stderr
    path = f"{whyrss.program.parent}:{os.environ['PATH']}"
    found = subprocess.run(command, env=with_module(alone, PATH=path), capture_output=True, text=True, check=False)
    direct = whyrss.run("--version")
    assert (found.returncode, found.stdout) == (direct.returncode, direct.stdout)
    assert direct.returncode == 0


C_PROGRAM = r"""
#include <whyrss.h>
#include <stdio.h>
int main(void) {
  WHYRSS_PHASE_BEGIN("of C");
  WHYRSS_MARK("here");
  WHYRSS_SNAPSHOT();
  WHYRSS_PHASE_END("of C");
  return puts("C ran") < 0;
}
"""


def test_an_installed_tree_works(whyrss, recording, tmp_path, compile_c):
    prefix = tmp_path / "prefix"
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    installed = subprocess.run(["cmake", "--install", str(whyrss.program.parent.parent), "--prefix", str(prefix)],
                               capture_output=True, text=True, check=False)
    assert installed.returncode == 0, installed.stderr
    program = compile_c(C_PROGRAM, "-I", str(prefix / "include"))
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "C ran\n"

    environment = with_module(prefix / "lib/python")
    recorded = subprocess.run([DEBIAN, "-m", "whyrss", "record", "-q", "-o", str(recording), "--", str(program)],
                              env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, "C ran\n", "")
    assert [phase["name"] for phase in whyrss.finished_report(recording)["phases"]] == ["of C"]

    by_environment = tmp_path / "env.whyrss"
    code = "import whyrss\nwith whyrss.phase('of Python'): print('ran')"
    more = {"LD_PRELOAD": str(prefix / "lib/libwhyrss.so"), "WHYRSS_OUTPUT": str(by_environment)}
    ran = subprocess.run([DEBIAN, "-c", code], env={**environment, **more}, capture_output=True, text=True,
                         timeout=PATIENCE_S, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ran\n", "")
    assert [phase["name"] for phase in whyrss.finished_report(by_environment)["phases"]] == ["of Python"]
