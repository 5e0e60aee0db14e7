"""whyrss diff JOB JOB: two runs of one job, the second with more memory and another large rank."""
import json
import os

import jsonschema
import pytest

from conftest import ROOT, unwrapped
from test_job import MIB, Job

SMALLER, LARGER, LARGE = 12, 20, 90  # MiB


class Runs:
    """Four ranks on two nodes; in B each keeps 8 MiB more, and rank 3 is large, not rank 2."""

    def __init__(self, whyrss, folder):
        self.whyrss, self.folder = whyrss, folder
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        self.a = self.job("a", {0: SMALLER, 1: SMALLER, 2: LARGE, 3: SMALLER})
        self.b = self.job("b", {0: LARGER, 1: LARGER, 2: LARGER, 3: LARGE})
        self.c = self.job("c", {0: LARGER, 1: LARGER, 2: LARGER}, of="b")  # a node is missing

    def job(self, name, sizes, of=None):
        folder = self.folder / (of or name)
        if of is None:
            runs = Job(self.whyrss, folder, {})
            for rank, size in sizes.items():
                runs.reduced(runs.recorded(f"r{rank}", size, RANK=str(rank), WORLD_SIZE="4", SLURM_JOB_ID=name,
                                           SLURMD_NODENAME=f"{name}{rank // 3}", SLURM_JOB_NODELIST=f"{name}[0-1]"))
        output = self.folder / f"{name}.job"
        result = self.whyrss.run("merge", *(folder / f"r{rank}.part" for rank in sizes), "-o", output)
        assert result.returncode == 0, result.stderr
        return output

    def diff(self, *arguments, status=0):
        result = self.whyrss.run("diff", *arguments, env={**os.environ, "COLUMNS": "200"})  # no name in two lines
        assert result.returncode == status, result.stderr
        return result

    def json(self, a, b, *options):
        document = json.loads(self.diff(a, b, "--format", "json", *options).stdout)
        jsonschema.validate(document, json.loads((ROOT / "analyzer/job/job_diff.schema.json").read_text()))
        return document

    def report(self, job):
        return json.loads(self.whyrss.run("report", job, "--format", "json").stdout)


@pytest.fixture(scope="module", name="runs")
def fixture_runs(whyrss, tmp_path_factory):
    return Runs(whyrss, tmp_path_factory.mktemp("job_diff"))


def test_figures_are_those_of_the_reports(runs):
    document, a, b = runs.json(runs.a, runs.b), runs.report(runs.a), runs.report(runs.b)
    for side, report in (("a", a), ("b", b)):
        assert document["rss"][side] == sum(group["rss_peak"]["sum"] for group in report["groups"])
        assert document["once"][side] == sum(node["total"] for node in report["nodes"])
        assert document["pss"][side] == sum(node["pss_peaks"] for node in report["nodes"])
        assert document["pss"][f"more_{side}"] == sum(node["without_pss"] for node in report["nodes"])
        assert sum(cause[side] for cause in document["causes"]) == document["rss"][side]
        causes = {}
        for group in report["groups"]:
            for cause in group["causes"]:
                causes[cause["cause"]] = causes.get(cause["cause"], 0) + cause["at_peak"]["sum"]
        assert {cause["cause"]: cause[side] for cause in document["causes"] if cause[side]} == \
            {name: size for name, size in causes.items() if size}
        lines = sum(line["sum"] for group in report["groups"] for line in group["lines"])
        assert sum(line[side] for line in document["lines"]) == lines
    changes = [abs(line["change"]) for line in document["lines"]]
    assert changes == sorted(changes, reverse=True)


def test_the_line_the_groups_and_the_outliers(runs):
    document = runs.json(runs.a, runs.b)
    expected = 2 * (LARGER - SMALLER) + (LARGER - LARGE) + (LARGE - SMALLER)
    [line] = [line for line in document["lines"] if line["function"].startswith("load") and line["cause"] == "heap_live"
              and not document["groups"][line["group"]]["workers"]]
    assert line["change"] == pytest.approx(expected * MIB, abs=2 * MIB)
    assert (line["line_a"], line["line_b"], line["state"]) == (5, 5, "grown")
    [main] = [group for group in document["groups"] if group["name"] == "cache.py" and not group["workers"]]
    assert main["median"]["change"] == pytest.approx((LARGER - SMALLER) * MIB, abs=2 * MIB)
    assert main["processes_a"] == main["processes_b"] == 4
    assert [(outlier["state"], outlier["rank"]) for outlier in document["outliers"]] == [("new", 3), ("gone", 2)]
    text = unwrapped(runs.diff(runs.a, runs.b).stdout)
    assert "A: job a: 4 ranks on " in text and "RSS, at the peak of each process, summed over 8 and 8 processes: " in text
    assert "Only in B rank 3 of 4 holds" in text and "Only in A rank 2 of 4 holds" in text
    assert "cache.py:5 in load" in text.split("By line, MiB")[1]


def test_two_reductions_of_one_run_do_not_differ(runs):
    document = runs.json(runs.a, runs.a)
    assert {line["state"] for line in document["lines"]} == {"same"} and document["rss"]["change"] == 0
    text = unwrapped(runs.diff(runs.a, runs.a).stdout)
    assert "no line differs by more than its error" in text and "1 process holds far more than the median" in text


def test_what_is_missing_in_one(runs):
    text = unwrapped(runs.diff(runs.a, runs.c).stdout)
    assert "B: 1 rank not recorded: 3" in text
    document = runs.json(runs.a, runs.c)
    assert document["b"]["missing_ranks"] == [3]
    assert any("missing" in note for note in document["b"]["notes"])


def test_markdown_and_top(runs):
    markdown = runs.diff(runs.a, runs.b, "--format", "markdown").stdout
    assert markdown.startswith("# What changed in memory\n") and "| = RSS |" in markdown and "## By line, MiB" in markdown
    full, few = runs.json(runs.a, runs.b), runs.json(runs.a, runs.b, "--top", "1")
    for cause in {line["cause"] for line in full["lines"]}:
        sums = [sum(line["change"] for line in document["lines"] if line["cause"] == cause) for document in (full, few)]
        assert sums[0] == sums[1]


def test_fail_if(runs):
    held = runs.diff(runs.a, runs.b, "--fail-if", "heap_live>8MiB", "-o", runs.folder / "held", status=3)
    assert held.stderr.startswith("whyrss: --fail-if heap_live>8MiB: ") and (runs.folder / "held").exists()
    runs.diff(runs.a, runs.b, "--fail-if", "rss > +1000%")
    assert "does not hold USS" in runs.diff(runs.a, runs.b, "--fail-if", "uss>1KiB", status=1).stderr


def test_bad_input(runs):
    recording = runs.folder / "a/r0.whyrss"
    cases = [((runs.a, recording), 2, f"{runs.a} is a part of a job, and {recording} a recording"),
             ((recording, runs.a), 2, "a job is compared with a job"),
             ((runs.a,), 2, "nothing to compare"),
             ((runs.a, runs.b, "--pid-a", "1"), 2, "--pid-a is for recordings"),
             ((runs.a, runs.b, "--phase-b", "x"), 2, "--phase-b is for recordings"),
             ((runs.a, runs.b, "--value", "growth"), 2, "--value other than at_peak is for recordings"),
             ((runs.a, runs.b, "--format", "html"), 2, "--format html is for recordings"),
             ((runs.a, runs.folder / "nothing"), 1, "nothing"),
             ((runs.a, runs.folder / "a/cache.py"), 1, "cache.py"),
             ((runs.a, runs.b, "-o", runs.folder / "no/such/file"), 1, "cannot write")]
    for arguments, status, complaint in cases:
        result = runs.diff(*arguments, status=status)
        assert complaint in result.stderr and result.stderr.count("\n") == 1 and result.stdout == "", result.stderr
