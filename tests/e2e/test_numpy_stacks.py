"""Frames of an extension stand between the Python frames that called it and those that it called."""
import itertools
import os

from expected.report_reading import cause

PROGRAM = """
import numpy

kept = []


def make(number):
    kept.append(numpy.ones(4 << 20))
    return number


def call_back():
    return numpy.fromiter((make(number) for number in range(3)), dtype=float)


call_back()

import ctypes
ctypes.CDLL(None).whyrss_snapshot()  # what ends within 1 MiB of its last look is not looked at again
"""
ARRAY_BYTES = 32 << 20


def test_extension_frames_stay_where_they_were(whyrss, recording, tmp_path):
    script = tmp_path / "arrays.py"
    script.write_text(PROGRAM)
    result = whyrss.record(recording, ["/usr/bin/python3", script])
    assert result.returncode == 0, result.stderr
    (process,) = whyrss.finished_report(recording)["processes"]
    (site,) = [site for site in cause(process, "heap_live")["sites"] if site["resident"] >= 3 * ARRAY_BYTES]
    frames = [frame for frame in site["stack"] if frame["kind"] == "python" or "numpy" in frame["module"]]
    runs = [(kind, list(run)) for kind, run in itertools.groupby(frames, key=lambda frame: frame["kind"])]
    assert [kind for kind, _ in runs] == ["native", "python", "native", "python"]
    assert all("_multiarray_umath" in os.path.basename(frame["module"]) for _, run in runs[::2] for frame in run)
    inner, outer = runs[1][1], runs[3][1]
    assert [frame["function"] for frame in inner] == ["ones", "make", "call_back.<locals>.<genexpr>"]
    assert [(frame["function"], frame["line"]) for frame in outer] == [("call_back", 13), ("<module>", 16)]
    assert {frame["file"] for frame in inner[1:] + outer} == {str(script)}
