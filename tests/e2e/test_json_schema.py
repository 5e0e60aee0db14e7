"""Real reports of several kinds of jobs against the published JSON Schema."""
import json
import os
import signal
import subprocess

import jsonschema
import pytest

from conftest import PATIENCE_S, ROOT
from expected.report_reading import assert_conserved

SCHEMA = json.loads((ROOT / "analyzer" / "report" / "report.schema.json").read_text())
FORKING = ("import os, time\nkept = [bytes(1000) for _ in range(50000)]\npid = os.fork()\nsum(map(len, kept))\n"
           "time.sleep(0.5)\nif pid: os.waitpid(pid, 0)\nos._exit(0)\n")
JOBS = {"short": ["true"], "shell": ["sh", "-c", "sleep 0.3; sleep 0.1 & wait"], "code": ["sh", "-c", "exit 9"],
        "signal": ["sh", "-c", "kill -SEGV $$"], "python": ["/usr/bin/python3", "-c", FORKING]}


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_report_follows_the_schema(whyrss, recording, job):
    whyrss.record(recording, job)
    report = whyrss.finished_report(recording)
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    jsonschema.validate(report, SCHEMA)
    assert report["schema"] == "whyrss.report/1"
    assert report["recording"]["command"] == job


def test_report_of_a_running_job_follows_the_schema(whyrss, recording):
    with subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", "sh", "-c", "echo up; exec sleep 600"],
                          stdout=subprocess.PIPE, text=True) as record:
        assert record.stdout.readline() == "up\n"
        report = whyrss.report(recording)
        record.send_signal(signal.SIGTERM)
        assert record.wait(PATIENCE_S) == -signal.SIGTERM
    jsonschema.validate(report, SCHEMA)
    assert not report["recording"]["complete"]
    jsonschema.validate(whyrss.finished_report(recording), SCHEMA)


def test_part_of_a_recording(whyrss, recording):
    """--from and --to choose what first and last mean; sums hold there too."""
    whyrss.record(recording, JOBS["python"])
    whole = whyrss.finished_report(recording)
    duration = whole["recording"]["duration_s"]
    for start, end in ((0, duration), (0, duration / 2), (duration / 2, duration), (duration / 3, duration / 3)):
        result = whyrss.run("report", recording, "--format", "json", "--from", start, "--to", end)
        assert result.returncode == 0, result.stderr
        part = json.loads(result.stdout)
        jsonschema.validate(part, SCHEMA)
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
        assert verdict["headline"] in text.stdout
    to_file = whyrss.run("report", recording, "--format", "json", "-o", tmp_path / "report.json")
    assert to_file.returncode == 0 and to_file.stdout == ""
    assert json.loads((tmp_path / "report.json").read_text()) == report


def test_fail_if(whyrss, recording):
    whyrss.record(recording, JOBS["python"])
    whyrss.finished_report(recording)
    assert whyrss.run("report", recording, "--fail-if", "heap_live>100GiB").returncode == 0
    assert whyrss.run("report", recording, "--fail-if", "heap_live>1MiB").returncode == 3
    assert whyrss.run("report", recording, "--fail-if", "no_such_cause>1").returncode == 2
    assert os.path.isdir(recording)
