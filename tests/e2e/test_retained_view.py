"""Small views that keep large numpy buffers: found, counted, and told with both lines where they are known."""
import json
import subprocess

import pytest

from conftest import assert_conserved, wait_until

PROGRAM = """
import sys
import numpy
import whyrss
WAY = sys.argv[1]
kept, labels = [], []
def batch():
    buffer = numpy.ones((3, 512, 256))
    return buffer[2, 511, :32]
def keep():
    part = batch()
    labels.append(part.copy() if WAY == 'copy' else part)
    if WAY == 'named':
        kept.append(part.base)
for step in range(30):
    keep()
whyrss.mark('built')
for look in range(3):
    whyrss.snapshot()
"""


@pytest.fixture
def program(tmp_path):
    probe = subprocess.run(["/usr/bin/python3", "-c", "import numpy"], capture_output=True, check=False)
    if probe.returncode != 0:
        pytest.skip("numpy is not installed")
    script = tmp_path / "view.py"
    script.write_text(PROGRAM)
    return script


def line_of(text):
    return next(number for number, line in enumerate(PROGRAM.splitlines(), 1) if text in line)


def recorded(whyrss, recording, program, way, mode):
    command = ["env", f"PYTHONPATH={whyrss.program.parent.parent / 'lib' / 'python'}", "/usr/bin/python3", program, way]
    assert whyrss.record(recording, command, "--mode", mode).returncode == 0
    wait_until(lambda: json.loads((recording / "manifest.json").read_text())["state"] == "complete", "it is complete")
    report = json.loads(whyrss.run("report", recording, "--format", "json", "--top", 20).stdout)
    assert_conserved(report)
    return [verdict for verdict in report["verdicts"] if verdict["id"] == "retained-view"]


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_views_that_keep_buffers(whyrss, recording, program, mode):
    verdict, = recorded(whyrss, recording, program, "view", mode)
    evidence = verdict["evidence"]
    assert (evidence["buffer_count"], evidence["buffer_bytes"]) == (30, 30 * 3 << 20)
    assert (evidence["view_count"], evidence["view_bytes"]) == (30, 30 * 256)
    made, = evidence["made_at"]
    assert made["line"] == f"view.py:{line_of('numpy.ones')} in batch"
    if mode == "exact":
        taken, = evidence["taken_at"]
        assert taken == {"line": f"view.py:{line_of('return buffer')} in batch", "view_count": 30}


@pytest.mark.parametrize("way", ["copy", "named"])
def test_buffers_that_are_gone_or_used(whyrss, recording, program, way):
    assert recorded(whyrss, recording, program, way, "sampled") == []
