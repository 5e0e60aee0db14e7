"""SIGKILL in the middle of allocations, in exact mode: what was recorded reads, says what is missing, and adds up."""
import os
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, is_running, kill_and_wait, manifest_of
from expected.report_reading import assert_conserved
from test_heap_account import PROGRAMS, assert_lines_exact, process_at, read_truth


class Churning:
    """heap_hazards, which keeps some blocks and churns for ever, in exact mode."""

    def __init__(self, whyrss, tmp_path):
        self.recording, self.truth = tmp_path / "recording.whyrss", tmp_path / "truth"
        command = [PROGRAMS / "heap_hazards", self.truth, "endless"]
        self.record = subprocess.Popen(
            [whyrss.program, "record", "-q", "-o", self.recording, "--mode", "exact", "--", *command],
            stdout=subprocess.PIPE, text=True)
        self.turns(3)
        manifest = manifest_of(self.recording)
        self.target, self.pool = manifest["target_pid"], manifest["pool_path"]
        self.collector = manifest["collector"]["pid"]

    def turns(self, count):
        """Waits until the program has gone on for that long."""
        for _ in range(count):
            assert self.record.stdout.readline() == "turn\n"

    def end(self):
        if is_running(self.target):
            os.kill(self.target, signal.SIGKILL)
        self.record.stdout.close()
        self.record.wait(PATIENCE_S)
        if os.path.exists(self.pool):
            os.unlink(self.pool)


@pytest.fixture
def churning(whyrss, tmp_path):
    started = Churning(whyrss, tmp_path)
    yield started
    started.end()


def assert_kept_blocks(whyrss, churning):
    """At the stage before the churn, and at the last snapshot in the middle of it."""
    report = whyrss.report(churning.recording)
    assert_conserved(report)
    kept = read_truth(churning.truth)["before"]["lines"]
    assert_lines_exact(process_at(whyrss, churning.recording, "before"), kept, "before")
    assert_lines_exact(report["processes"][0], kept, "at the end")
    return report


def test_target_killed(whyrss, churning):
    kill_and_wait(churning.target)
    assert churning.record.wait(PATIENCE_S) == -signal.SIGKILL
    whyrss.finished_report(churning.recording)
    report = assert_kept_blocks(whyrss, churning)
    assert report["recording"]["exit"]["signal"] == "SIGKILL"


def test_collector_killed(whyrss, churning):
    """The program goes on at once, and is not waited for; what it did since is missing, and that is said."""
    kill_and_wait(churning.collector)
    churning.turns(200)
    kill_and_wait(churning.target)
    churning.record.wait(PATIENCE_S)
    report = assert_kept_blocks(whyrss, churning)
    assert not report["recording"]["complete"]
    assert report["recording"]["lost"]["events"] > 0


def test_both_killed(whyrss, churning):
    kill_and_wait(churning.collector, churning.target)
    churning.record.wait(PATIENCE_S)
    assert not assert_kept_blocks(whyrss, churning)["recording"]["complete"]
