"""Options of report and env on a real recording: parts, formats, limits; figures agree everywhere."""
import json
import os
import re
import subprocess

import jsonschema
import pytest

from conftest import PATIENCE_S, ROOT

MIB = 1 << 20
SCRIPT = """
import mmap, os, sys, tempfile
kept = [str(number) * 3 for number in range(400_000)]
with tempfile.TemporaryFile() as file:
    file.truncate(24 << 20)
    text = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    total = sum(text[at] for at in range(0, len(text), 4096))
pid = os.fork()
if pid == 0:
    size = sum(len(item) for item in kept)
    os._exit(3 if size == 0 else 0)
os.waitpid(pid, 0)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def schema():
    schema = json.loads((ROOT / "analyzer" / "report" / "report.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return schema


@pytest.fixture(scope="module")
def job(whyrss, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    (folder / "job.py").write_text(SCRIPT)
    recording = folder / "recording.whyrss"
    result = whyrss.record(recording, ["/usr/bin/python3", folder / "job.py", "5"])
    assert result.returncode == 5, result.stderr
    whyrss.finished_report(recording)
    return recording


def validated(report, schema):
    errors = [f"{list(error.path)}: {error.message}" for error in jsonschema.Draft7Validator(schema).iter_errors(report)]
    assert errors == []
    return report


def test_python_job(whyrss, job, schema):
    report = validated(whyrss.report(job), schema)
    assert report["recording"]["exit"]["code"] == 5
    assert len(report["processes"]) == 2


def test_parts_of_a_report(whyrss, job, schema):
    whole = whyrss.report(job)
    pid = whole["processes"][1]["pid"]
    middle = whole["interval"]["to_s"] / 2
    for arguments in (["--from", middle], ["--to", middle], ["--pid", pid], ["--top", 1]):
        result = whyrss.run("report", job, "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        report = validated(json.loads(result.stdout), schema)
        for process in report["processes"]:
            for cause in process["causes"]:
                assert sum(site["growth"] for site in cause["sites"]) == cause["growth"]["rss"]
    assert [process["pid"] for process in json.loads(whyrss.run(
        "report", job, "--format", "json", "--pid", pid).stdout)["processes"]] == [pid]


def test_text_says_the_same_figures(whyrss, job):
    report = whyrss.report(job)
    text = whyrss.run("report", job).stdout
    assert "\033" not in text  # no terminal, no colours
    for verdict in report["verdicts"]:
        assert verdict["headline"] in text
    totals = re.findall(r"= RSS +(-?[0-9.]+) +(-?[0-9.]+) +(-?[0-9.]+)", text)
    wanted = [(process["rss"]["last"], process["rss"]["last"] - process["rss"]["first"], process["rss"]["peak"])
              for process in report["processes"] if process["causes"]]
    assert totals == [tuple(f"{size / MIB:.1f}" for size in row) for row in wanted]


def test_markdown_and_output_file(whyrss, job, tmp_path):
    out = tmp_path / "report.md"
    result = whyrss.run("report", job, "--format", "markdown", "-o", out)
    assert (result.returncode, result.stdout) == (0, "")
    for verdict in whyrss.report(job)["verdicts"]:
        assert verdict["severity"] in out.read_text()
    refused = whyrss.run("report", job, "-o", tmp_path / "no" / "such" / "place")
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1


def test_fail_if(whyrss, job):
    walked = [process["rss"] for process in whyrss.report(job)["processes"] if process["causes"]]
    grown = sum(rss["last"] - rss["first"] for rss in walked)
    assert whyrss.run("report", job, "--fail-if", f"rss>{grown}").returncode == 0
    held = whyrss.run("report", job, "--fail-if", f"rss>={grown}")
    assert held.returncode == 3 and "rss" in held.stderr and held.stdout
    assert whyrss.run("report", job, "--fail-if", "bananas>1").returncode == 2
    assert whyrss.run("report", job, "--from", "no such phase").returncode == 2
    assert whyrss.run("report", job, "--pid", 1).returncode == 2


def test_env_lines_record(whyrss, tmp_path, schema):
    """The printed lines, run by a shell, make a job record itself."""
    recording = tmp_path / "it's here" / "recording"
    recording.parent.mkdir()
    lines = whyrss.run("env", "-o", recording)
    assert lines.returncode == 0, lines.stderr
    result = subprocess.run(["/bin/sh", "-c", lines.stdout + "/usr/bin/python3 -c 'print(6 * 7)'"], capture_output=True,
                            text=True, timeout=PATIENCE_S, check=False, env={**os.environ})
    assert (result.returncode, result.stdout) == (0, "42\n"), result.stderr
    validated(whyrss.finished_report(recording), schema)
