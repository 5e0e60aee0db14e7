"""whyrss diff on real recordings: figures equal the reports' own, lines are found again, exit status."""
import json
import re
import shutil

import jsonschema
import pytest

from conftest import ROOT

PROGRAM = """{comment}
import os, sys, whyrss

def load(number):
    return [str(at) * 3 for at in range(number)]

def {function}():
    return bytearray(6 << 20)

with whyrss.phase("first"):
    kept = load({number})
with whyrss.phase("second"):
    more = {function}()
if os.fork() == 0:
    size = sum(len(item) for item in kept)
    os._exit(0)
os.wait()
"""


class Pair:
    def __init__(self, whyrss, folder):
        self.whyrss, self.folder = whyrss, folder
        self.a = self.recorded("a", comment="", number=100_000, function="before")
        self.b = self.recorded("b", comment="# moved\n" * 3, number=300_000, function="after")

    def recorded(self, name, **parts):
        """In a folder of its own, as two checkouts would be."""
        (self.folder / name).mkdir()
        program = self.folder / name / "job.py"
        program.write_text(PROGRAM.format(**parts))
        recording = self.folder / f"{name}.whyrss"
        environment = {"PYTHONPATH": str(self.whyrss.build / "lib/python"), "PATH": "/usr/bin:/bin"}
        result = self.whyrss.record(recording, ["/usr/bin/python3", program], env=environment)
        assert result.returncode == 0, result.stderr
        self.whyrss.finished_report(recording)
        return recording

    def diff(self, *arguments, status=0):
        result = self.whyrss.run("diff", *arguments)
        assert result.returncode == status, result.stderr
        return result

    def json(self, *arguments):
        schema = json.loads((ROOT / "analyzer/report/diff/diff.schema.json").read_text())
        document = json.loads(self.diff(*arguments, "--format", "json").stdout)
        jsonschema.validate(document, schema)
        return document

    def causes(self, recording, key, *options):
        """What the report says of each cause, over all processes."""
        sums = {}
        for process in json.loads(self.whyrss.report_text(recording, *options))["processes"]:
            for cause in process["causes"]:
                value = cause["growth"]["rss"] if key == "growth" else cause["rss"][key]
                sums[cause["cause"]] = sums.get(cause["cause"], 0) + value
        return {cause: value for cause, value in sums.items() if value}


@pytest.fixture(scope="module")
def pair(whyrss, tmp_path_factory):
    return Pair(whyrss, tmp_path_factory.mktemp("diff"))


@pytest.mark.parametrize("value, key", [("growth", "growth"), ("resident", "last"), ("at_peak", "at_peak")])
def test_figures_are_those_of_the_reports(pair, value, key):
    document = pair.json(pair.a, pair.b, "--value", value)
    for side, recording in (("a", pair.a), ("b", pair.b)):
        causes = {cause["cause"]: cause[side] for cause in document["causes"] if cause[side]}
        assert causes == pair.causes(recording, key)
        lines = {}
        for line in document["lines"]:
            lines[line["cause"]] = lines.get(line["cause"], 0) + line[side]
        assert {cause: size for cause, size in lines.items() if size} == causes
        assert document["rss"][side] == sum(causes.values())
        family = json.loads(pair.whyrss.report_text(recording))["family"]
        assert document["peak_rss"][side] == family["rss_sum"]["peak"]
        assert document["peak_pss"][side] == family["pss"]["peak"]


def test_lines_are_found_again(pair, monkeypatch):
    lines = [line for line in pair.json(pair.a, pair.b)["lines"] if line["cause"] == "heap_live"]
    load, = [line for line in lines if line["function"] == "load.<locals>.<listcomp>" or line["function"] == "load"][:1]
    assert load["line_b"] == load["line_a"] + 3 and load["state"] == "grown" and load["a"] > 0
    states = {line["function"]: line["state"] for line in lines}
    assert states["before"] == "gone" and states["after"] == "new"
    monkeypatch.setenv("COLUMNS", "200")
    text = pair.diff(pair.a, pair.b).stdout
    assert f"(line {load['line_a']} in A)" in text


def test_phases_of_one_recording(pair):
    document = pair.json(pair.a, "--phases", "first", "second")
    assert document == pair.json(pair.a, "--phase-a", "first", "--phase-b", "second")
    for side, phase in (("a", "first"), ("b", "second")):
        causes = {cause["cause"]: cause[side] for cause in document["causes"] if cause[side]}
        assert causes == pair.causes(pair.a, "growth", "--from", phase, "--to", phase)
    assert "second" in document["b"]["name"]


def test_processes_of_one_recording(pair):
    pids = [process["pid"] for process in pair.whyrss.report(pair.a)["processes"]]
    document = pair.json(pair.a, "--pids", pids[0], pids[1])
    assert document == pair.json(pair.a, "--pid-a", pids[0], "--pid-b", pids[1])
    for side, pid in (("a", pids[0]), ("b", pids[1])):
        assert document[side]["pids"] == [pid]
        causes = {cause["cause"]: cause[side] for cause in document["causes"] if cause[side]}
        assert causes == pair.causes(pair.a, "growth", "--pid", pid)
        process, = (process for process in pair.whyrss.report(pair.a)["processes"] if process["pid"] == pid)
        end_s = process["teardown_s"] if process["teardown_s"] is not None else process["ended_s"]
        over_s = float(re.search(r"over ([0-9.]+) s", document[side]["name"])[1])
        assert abs(over_s - (end_s - process["born_s"])) < 0.1


def test_a_recording_beside_itself(pair):
    document = pair.json(pair.a, pair.a)
    assert document["rss"]["change"] == 0
    assert all(entry["change"] == 0 and entry["state"] == "same" for entry in document["causes"] + document["lines"])
    assert "no line differs" in pair.diff(pair.a, pair.a).stdout


def test_markdown(pair, tmp_path):
    pair.diff(pair.a, pair.b, "--format", "markdown", "-o", tmp_path / "diff.md")
    text = (tmp_path / "diff.md").read_text()
    assert text.startswith("# What changed in memory") and "| live heap |" in text


def test_fail_if(pair):
    held = pair.diff(pair.a, pair.b, "--fail-if", "heap_live > +10%", status=3)
    assert "heap_live" in held.stderr and held.stderr.count("\n") == 1 and "By cause" in held.stdout
    pair.diff(pair.b, pair.a, "--fail-if", "heap_live > +10%")
    pair.diff(pair.a, pair.b, "--fail-if", "heap_live>1GiB")
    pair.diff(pair.a, pair.b, "--fail-if", "rss>=1KiB", status=3)


def test_incomplete_and_unseen(pair, tmp_path):
    """A recording of which nothing is known is compared all the same, and that is said."""
    empty = tmp_path / "empty.whyrss"
    shutil.copytree(pair.a, empty)
    for pages in empty.glob("*/pages.zst"):
        pages.unlink()
    text = pair.diff(empty, pair.b).stdout
    assert re.search("process(es)? of A (was|were) in no snapshot", text)
    assert pair.json(empty, pair.b)["rss"]["a"] == 0


@pytest.mark.parametrize("arguments, words", [
    (["--phase-b", "none"], "--phase-b none: not seconds, a phase, a mark"),
    (["--pid-a", "1"], "--pid-a 1: not in this recording"),
    (["--pids", "1", "2"], "--pids 1: not in this recording"),
    (["--phases", "first"], "--phases"),
    (["--phases", "first", "second", "--phase-a", "first"], "--phases and --pids name both parts"),
    (["--fail-if", "heap>5%"], "no figure named 'heap'"),
    (["--fail-if", "rss>5%%"], "neither a size nor a percentage"),
])
def test_refusals(pair, arguments, words):
    result = pair.diff(pair.a, pair.b, *arguments, status=2)
    assert words in result.stderr and result.stderr.count("\n") == 1 and result.stdout == ""


def test_what_cannot_be_read(pair, tmp_path):
    assert pair.diff(pair.a, tmp_path / "gone", status=1).stderr.count("\n") == 1
    assert "nothing to compare" in pair.diff(pair.a, status=2).stderr
