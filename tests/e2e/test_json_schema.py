"""Real reports of several kinds of jobs against the published JSON Schema."""
import json
import os
import signal
import subprocess

import jsonschema
import pytest

from conftest import PATIENCE_S, ROOT, unwrapped
from expected.report_reading import assert_conserved, read_report

SCHEMA = json.loads((ROOT / "analyzer" / "report" / "report.2.schema.json").read_text())
PLAIN_SCHEMA = json.loads((ROOT / "analyzer" / "report" / "report.schema.json").read_text())
FORKING = ("import os, time\nkept = [bytes(1000) for _ in range(50000)]\npid = os.fork()\nsum(map(len, kept))\n"
           "time.sleep(0.5)\nif pid: os.waitpid(pid, 0)\nos._exit(0)\n")
JOBS = {"short": ["true"], "shell": ["sh", "-c", "sleep 0.3; sleep 0.1 & wait"], "code": ["sh", "-c", "exit 9"],
        "signal": ["sh", "-c", "kill -SEGV $$"], "python": ["/usr/bin/python3", "-c", FORKING]}


def stack_numbers(report):
    """Each number of a stack that a report of schema 2 refers to."""
    for process in report["processes"]:
        for site in (site for cause in process["causes"] for site in cause["sites"]):
            for part in (site, *site["touched_by"], *site.get("advised_by", [])):
                yield from (part[name] for name in ("stack", "during") if name in part)
        for site in process["cow"]["sites"]:
            yield from (site["allocated_at"], site["written_at"])


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_report_follows_the_schema(whyrss, recording, job):
    whyrss.record(recording, job)
    whyrss.wait_until_complete(recording)
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    report = json.loads(whyrss.report_text(recording, "--schema", "2"))
    jsonschema.validate(report, SCHEMA)
    assert report["schema"] == "whyrss.report/2"
    assert report["recording"]["command"] == job
    numbers = list(range(len(report["stacks"])))
    assert sorted({*stack_numbers(report), 0}) == numbers and report["stacks"][0] == []
    assert sorted({frame for stack in report["stacks"] for frame in stack}) == list(range(len(report["frames"])))

    plain = json.loads(whyrss.report_text(recording))
    jsonschema.Draft7Validator.check_schema(PLAIN_SCHEMA)
    jsonschema.validate(plain, PLAIN_SCHEMA)
    assert plain["schema"] == "whyrss.report/1"
    expanded = read_report(json.dumps(report))
    assert {**plain, "schema": 2} == {name: value for name, value in {**expanded, "schema": 2}.items() if name in plain}


def test_report_of_a_running_job_follows_the_schema(whyrss, recording):
    with subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", "sh", "-c", "echo up; exec sleep 600"],
                          stdout=subprocess.PIPE, text=True) as record:
        assert record.stdout.readline() == "up\n"
        report = json.loads(whyrss.report_text(recording, "--schema", "2"))
        record.send_signal(signal.SIGTERM)
        assert record.wait(PATIENCE_S) == -signal.SIGTERM
    jsonschema.validate(report, SCHEMA)
    assert not report["recording"]["complete"]
    whyrss.wait_until_complete(recording)
    jsonschema.validate(json.loads(whyrss.report_text(recording, "--schema", "2")), SCHEMA)


def test_part_of_a_recording(whyrss, recording):
    """--from and --to choose what first and last mean; sums hold there too."""
    whyrss.record(recording, JOBS["python"])
    whole = whyrss.finished_report(recording)
    duration = whole["recording"]["duration_s"]
    for start, end in ((0, duration), (0, duration / 2), (duration / 2, duration), (duration / 3, duration / 3)):
        result = whyrss.run("report", recording, "--format", "json", "--from", start, "--to", end)
        assert result.returncode == 0, result.stderr
        part = json.loads(result.stdout)
        jsonschema.validate(part, PLAIN_SCHEMA)
        assert_conserved(part)
        assert part["interval"]["from_s"] == pytest.approx(start, abs=1e-3)
    assert whyrss.run("report", recording, "--from", 5, "--to", 4).returncode == 2


def test_text_and_json_agree(whyrss, recording, tmp_path):
    whyrss.record(recording, JOBS["python"])
    report = whyrss.finished_report(recording)
    text = whyrss.run("report", recording)
    assert text.returncode == 0 and text.stderr == ""
    assert "\x1b" not in text.stdout  # no colours into a pipe
    for process in report["processes"]:
        assert str(process["pid"]) in text.stdout
    for verdict in report["verdicts"]:
        assert verdict["headline"] in unwrapped(text.stdout)
    to_file = whyrss.run("report", recording, "--format", "json", "-o", tmp_path / "report.json")
    assert to_file.returncode == 0 and to_file.stdout == ""
    assert read_report((tmp_path / "report.json").read_text()) == report


def test_fail_if(whyrss, recording):
    whyrss.record(recording, JOBS["python"])
    whyrss.finished_report(recording)
    assert whyrss.run("report", recording, "--fail-if", "heap_live>100GiB").returncode == 0
    assert whyrss.run("report", recording, "--fail-if", "heap_live>1MiB").returncode == 3
    assert whyrss.run("report", recording, "--fail-if", "no_such_cause>1").returncode == 2
    assert os.path.isdir(recording)
