"""Who copied, in fork trees of any depth whose members end, are killed, run other programs, or fork many short
children.
"""
import re

import pytest

from conftest import compiled
from figure_off import assert_near

MIB = 1 << 20
OBJECTS_MIB = 64
# Of each process the MiB that it copies.
JOBS = {
    "middle": {"root": 0, "grandchild": 64},
    "middle-killed": {"root": 0, "grandchild": 64},
    "deep": {"root": 0, "grandchild": 64},
    "killed": {"root": 0, "grandchild": 64},
    "both": {"root": 32, "grandchild": 32},
    "root": {"root": 32, "child": 0},
    "ages": {"root": 0, "old": 16, "young": 32},
    "exec": {"root": 0, "runs": 0, "writer": 32},
    "storm": {"root": 0, "writer": 64},
    "storm-middle": {"root": 0, "grandchild": 64},
    "storm-root": {"root": 16, "writer": 32},
}

ORPHAN = """
import os, time
def load():
    return bytearray(b"x") * (80 << 20)
data = load()
if os.fork():
    time.sleep(0.3)
    os._exit(0)
os.close(1)
os.close(2)
time.sleep(1)
for at in range(0, 60 << 20, 4096):
    data[at] = 1
time.sleep(0.5)
"""


def copies_of(whyrss, recording, program, job, wait_ms, *options):
    """What each process copied, by its name, and the report."""
    result = whyrss.record(recording, [program, job, OBJECTS_MIB, wait_ms], *options)
    assert (result.returncode, result.stderr) == (0, "")
    names = {int(pid): name for name, pid in re.findall(r"(\w+) (\d+)", result.stdout)}
    report = whyrss.finished_report(recording)
    return {names[process["pid"]]: process["cow"] for process in report["processes"] if process["pid"] in names}, report


@pytest.mark.parametrize("wait_ms", [0, 300])
@pytest.mark.parametrize("job", JOBS)
def test_who_copied(whyrss, recording, tmp_path, job, wait_ms):
    copies, report = copies_of(whyrss, recording, compiled(tmp_path, "fork_tree"), job, wait_ms)
    if not report["recording"]["capabilities"]["write_tracking"]:
        pytest.skip("no write tracking here")
    assert copies.keys() == JOBS[job].keys()
    for name, mib in JOBS[job].items():
        assert_near(copies[name]["copied"], mib * MIB, 2 * MIB, name, copies)


def test_without_tracking_it_is_likely_only(whyrss, recording, tmp_path):
    program = compiled(tmp_path, "fork_tree")
    copies, report = copies_of(whyrss, recording, program, "middle", 300, "--write-tracking", "off")
    assert {cow["method"] for cow in copies.values()} == {"exclusive_bits"}
    assert_near(copies["grandchild"]["copied"], OBJECTS_MIB * MIB, 2 * MIB)
    assert copies["grandchild"]["estimate"]
    verdict, = [verdict for verdict in report["verdicts"] if verdict["id"] == "fork-cow-write"]
    assert verdict["evidence"]["estimate"] is True
    assert "shared since fork (likely" in verdict["headline"]
    assert "Which process copied is likely, not certain" in verdict["why"]


def test_a_child_that_outlives_its_parent(whyrss, recording, tmp_path):
    """What it inherited is its own when the parent has gone, by no call of its own; a report that is made meanwhile
    knows whose memory it is."""
    script = tmp_path / "orphan.py"
    script.write_text(ORPHAN)
    result = whyrss.record(recording, ["/usr/bin/python3", "-E", script])
    assert result.returncode == 0
    meanwhile = whyrss.report(recording)
    assert not meanwhile["recording"]["complete"]
    for process in meanwhile["processes"]:
        unknown = sum(cause["rss"]["last"] for cause in process["causes"] if cause["cause"] == "unknown")
        assert unknown < MIB, (process["born"], unknown)
    report = whyrss.finished_report(recording)
    child, = [process for process in report["processes"] if process["born"] == "fork"]
    verdict, = [verdict for verdict in report["verdicts"] if verdict["id"] == "fork-left-alone"]
    assert verdict["pid"] == child["pid"]
    assert_near(verdict["bytes"], 80 * MIB, 4 * MIB)
    assert verdict["evidence"]["lines"][0]["line"] == "orphan.py:4 in load"
    assert_near(child["cow"]["copied"], 0, MIB)
    if report["recording"]["capabilities"]["write_tracking"]:
        assert_near(child["cow"]["reused"], 60 * MIB, MIB)
