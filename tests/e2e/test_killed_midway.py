"""Of a program killed as it grows or copies 1 GB a second, a report has the size at its end, not at the last poll."""
import struct
import sys

import pytest

from conftest import compiled
from figure_off import assert_near

PAGE = 4096
# The program itself.
ITSELF = 4 << 20


def fork_cow(process):
    return sum(cause["rss"]["last"] for cause in process["causes"] if cause["cause"] == "fork_cow")


@pytest.mark.parametrize("after_ms", [130, 210])
@pytest.mark.parametrize("what", ["grow", "copy", "both"])
def test_its_size_at_the_end(whyrss, recording, tmp_path, what, after_ms):
    program = compiled(tmp_path, "killed_midway")
    count = tmp_path / "count"
    whyrss.record(recording, [program, count, what, after_ms])
    report = whyrss.finished_report(recording)
    if report["recording"]["capabilities"]["touch"] == "none":
        pytest.skip("page faults are not sampled here")
    touched = int.from_bytes(count.read_bytes()[:8], sys.byteorder) * PAGE
    killed = report["processes"][-1]
    reported = {cause["cause"]: cause["rss"]["last"] for cause in killed["causes"]}
    copied, grown = fork_cow(killed), reported.get("anonymous", 0)
    truth = {"grow": (0, touched), "copy": (touched, 0), "both": (touched, touched)}[what]
    for figure, true in zip((copied, grown), truth):
        assert_near(figure, true, 0.03 * touched + ITSELF)
    if what != "grow":
        assert_near(killed["cow"]["copied"], touched, 0.03 * touched + ITSELF)


@pytest.mark.parametrize("after_ms", [60, 200])
def test_several_that_are_killed_together(whyrss, recording, tmp_path, after_ms):
    """Whichever is seen to end last had copied while the others were there."""
    program = compiled(tmp_path, "killed_midway")
    count = tmp_path / "count"
    whyrss.record(recording, [program, count, "together", after_ms])
    report = whyrss.finished_report(recording)
    if report["recording"]["capabilities"]["touch"] == "none":
        pytest.skip("page faults are not sampled here")
    counts = struct.unpack("6Q", count.read_bytes()[:48])
    processes = {process["pid"]: process for process in report["processes"]}
    for pid, pages in zip(counts[::2], counts[1::2]):
        touched = pages * PAGE
        for figure in (processes[pid]["cow"]["copied"], fork_cow(processes[pid])):
            assert_near(figure, touched, 0.03 * touched + ITSELF)
