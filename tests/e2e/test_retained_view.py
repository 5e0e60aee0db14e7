"""Small views that keep large buffers of numpy and torch: found, counted, reported with both lines where known."""
import pytest

from conftest import line_of
from expected.report_reading import assert_conserved, read_report
from fork_runs import has_module
from interpreters import DEBIAN

PROGRAM = """
import sys
import whyrss
WAY, LIBRARY = sys.argv[1], __import__(sys.argv[2])
kept, labels = [], []
def batch():
    buffer = LIBRARY.ones((3, 512, 256), dtype=LIBRARY.float64)
    return buffer[2, 511, :32]
def keep():
    part = batch()
    if WAY == 'as-array':
        part = part._base.numpy()[2, 511, :32]
    elif WAY == 'copy':
        part = part.clone() if LIBRARY.__name__ == 'torch' else part.copy()
    labels.append(part)
    if WAY == 'named':
        kept.append(part._base if LIBRARY.__name__ == 'torch' else part.base)
for step in range(30):
    keep()
whyrss.mark('built')
for look in range(3):
    whyrss.snapshot()
"""


@pytest.fixture(params=["numpy", "torch"])
def library(request):
    if not has_module(DEBIAN, request.param):
        pytest.skip(f"{request.param} is not installed")
    return request.param


@pytest.fixture
def program(tmp_path):
    script = tmp_path / "view.py"
    script.write_text(PROGRAM)
    return script


def recorded(whyrss, recording, program, way, library, mode):
    command = ["env", f"PYTHONPATH={whyrss.program.parent.parent / 'lib' / 'python'}", "/usr/bin/python3", program, way,
               library]
    assert whyrss.record(recording, command, "--mode", mode).returncode == 0
    whyrss.wait_until_complete(recording)
    report = read_report(whyrss.run("report", recording, "--format", "json", "--top", 20).stdout)
    assert_conserved(report)
    return [verdict for verdict in report["verdicts"] if verdict["id"] == "retained-view"]


# In exact mode `import torch` alone is a million events.
@pytest.mark.parametrize(("library", "mode"), [("numpy", "sampled"), ("numpy", "exact"), ("torch", "sampled")],
                         indirect=["library"])
def test_views_that_keep_buffers(whyrss, recording, program, library, mode):
    verdict, = recorded(whyrss, recording, program, "view", library, mode)
    evidence = verdict["evidence"]
    assert (evidence["buffer_count"], evidence["buffer_bytes"]) == (30, 30 * 3 << 20)
    assert (evidence["view_count"], evidence["view_bytes"]) == (30, 30 * 256)
    made, = evidence["made_at"]
    assert made["line"] == f"view.py:{line_of(PROGRAM, 'dtype=LIBRARY.float64)')} in batch"
    if mode == "exact":
        taken, = evidence["taken_at"]
        assert taken == {"line": f"view.py:{line_of(PROGRAM, 'return buffer[2, 511, :32]')} in batch", "view_count": 30}


@pytest.mark.parametrize("way", ["copy", "named"])
def test_buffers_that_are_gone_or_used(whyrss, recording, program, library, way):
    assert recorded(whyrss, recording, program, way, library, "sampled") == []


@pytest.mark.parametrize("library", ["torch"], indirect=True)
def test_tensors_that_views_of_their_arrays_keep(whyrss, recording, program, library):
    verdict, = recorded(whyrss, recording, program, "as-array", library, "sampled")
    assert (verdict["evidence"]["buffer_count"], verdict["evidence"]["view_bytes"]) == (30, 30 * 256)


FROM_BYTES = """
import sys
import numpy
import whyrss
heads, blobs = [], []
def fetch(number):
    data = bytes([number]) * (2 << 20)
    heads.append(numpy.frombuffer(data, numpy.uint8)[:16])
    if sys.argv[1] == 'kept':
        blobs.append(data)
    elif sys.argv[1] == 'other':
        blobs.append(iter(data))
for number in range(40):
    fetch(number)
whyrss.mark('built')
for look in range(3):
    whyrss.snapshot()
"""


@pytest.mark.parametrize("library", ["numpy"], indirect=True)
@pytest.mark.parametrize(("way", "found"), [("view", True), ("kept", False), ("other", False)])
def test_bytes_that_views_keep(whyrss, recording, tmp_path, library, way, found):
    program = tmp_path / "fetch.py"
    program.write_text(FROM_BYTES)
    verdicts = recorded(whyrss, recording, program, way, library, "sampled")
    assert bool(verdicts) == found
    for verdict in verdicts:
        evidence = verdict["evidence"]
        assert (evidence["buffer_count"], evidence["buffer_bytes"]) == (40, 40 * 2 << 20)
        assert (evidence["view_count"], evidence["view_bytes"]) == (40, 40 * 16)
        made, = evidence["made_at"]
        assert made["line"] == f"fetch.py:{line_of(FROM_BYTES, '(2 << 20)')} in fetch"
