"""Who copied, in fork trees of any depth whose members end, are killed, run other programs, or fork many short
children.
"""
import re

import pytest

from conftest import compiled

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
        assert abs(copies[name]["copied"] - mib * MIB) <= 2 * MIB, (name, copies)


def test_without_tracking_it_is_likely_only(whyrss, recording, tmp_path):
    program = compiled(tmp_path, "fork_tree")
    copies, report = copies_of(whyrss, recording, program, "middle", 300, "--write-tracking", "off")
    assert {cow["method"] for cow in copies.values()} == {"exclusive_bits"}
    assert abs(copies["grandchild"]["copied"] - OBJECTS_MIB * MIB) <= 2 * MIB
    assert copies["grandchild"]["estimate"]
    verdict, = [verdict for verdict in report["verdicts"] if verdict["id"] == "fork-cow-write"]
    assert verdict["evidence"]["estimate"] is True
    assert "Who copied is likely, not certain" in verdict["why"]
