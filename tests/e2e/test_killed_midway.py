"""A program that is killed while it grows or copies by a gigabyte a second is told at its end, not at the last poll."""
import pytest

from conftest import compiled

PAGE = 4096
# More than the pages that it counts: the program itself, and what it touched until the signal came.
ITSELF = 4 << 20


@pytest.mark.parametrize("after_ms", [130, 210])
@pytest.mark.parametrize("what", ["grow", "copy", "both"])
def test_its_size_at_the_end(whyrss, recording, tmp_path, what, after_ms):
    program = compiled(tmp_path, "killed_midway")
    misses = []
    for attempt in range(2):  # a page is touched between the program's count and the kill, more on a busy machine
        folder = recording.with_suffix(f".{attempt}")
        result = whyrss.record(folder, [program, what, after_ms])
        report = whyrss.finished_report(folder)
        if report["recording"]["capabilities"]["touch"] == "none":
            pytest.skip("page faults are not sampled here")
        pages = int(result.stdout)
        killed = report["processes"][-1]
        told = {cause["cause"]: cause["rss"]["last"] for cause in killed["causes"]}
        copied, grown = told.get("fork_cow", 0), told.get("anonymous", 0)
        truth = {"grow": (0, pages * PAGE), "copy": (pages * PAGE, 0), "both": (pages * PAGE, pages * PAGE)}[what]
        misses = [abs(figure - true) for figure, true in zip((copied, grown), truth)]
        if max(misses) <= 0.03 * pages * PAGE + ITSELF:
            break
    else:
        pytest.fail(f"{what}: {copied} copied, {grown} grown of {truth}")
    if what != "grow":
        assert abs(killed["cow"]["copied"] - pages * PAGE) <= 0.03 * pages * PAGE + ITSELF
