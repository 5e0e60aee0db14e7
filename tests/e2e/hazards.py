"""Runs a program that makes stacks hard to take three times: bare; into a pool that no collector drains, with a trap at
each page fault where the machine allows it; and recorded, as it is by default.
"""
import os
import pathlib
import signal
import subprocess

import pool_reader
from conftest import PATIENCE_S

ZOO = pathlib.Path(__file__).with_name("hazard_zoo.py")


class Outcome:
    def __init__(self, bare, pool, report):
        self.bare, self.pool, self.report = bare, pool, report

    def blocks(self, size):
        """(process, event) of every block of that size, or with the few bytes more that an object's end takes."""
        for process in pool_reader.images_of(self.pool):
            for event in process.events:
                if event.kind == pool_reader.ALLOCATE and size <= event.size_bytes <= size + 4096 + 128:
                    yield process, event

    def stacks(self, size):
        """Names of the Python functions, innermost first, of every block of that size; no chain of frames is torn."""
        return [names for names, _ in self.flagged_stacks(size)]

    def flagged_stacks(self, size):
        """The same with the stack's flags."""
        found = []
        for process, event in self.blocks(size):
            assert event.stack_id, "an event without a stack"
            stack = process.stacks[event.stack_id]
            assert not stack.flags & pool_reader.STACK_TORN
            names = [process.codes[frame.code].name for frame in stack.python
                     if not frame.flags & pool_reader.FRAME_INCOMPLETE]
            # An import makes a block of about that size where no .pyc is at hand, and so may the interpreter's start.
            if not names or "_find_and_load" in names:
                continue
            found.append((names, stack.flags))
        return found


def run(command, environment, **options):
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "start_new_session": True, **options}
    return subprocess.run([str(part) for part in command], env=environment, check=False, **options)


def compare(whyrss, tmp_path, command, notes=(), **more):
    """The outcome of a command whose output and end are asserted to be those of the bare run."""
    environment = {**os.environ, **more}
    bare = run(command, environment)
    pool = pool_reader.make_pool(tmp_path / "pool", chunk_count=8192, slot_count=256)
    traced = run(command, {**environment, "LD_PRELOAD": str(whyrss.shim), **pool, "WHYRSS_OPTS": "touch=1"})
    recorded = whyrss.record(tmp_path / "recording.whyrss", command, env=environment)
    for result in traced, recorded:
        assert (result.returncode, result.stdout, result.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    report = whyrss.finished_report(tmp_path / "recording.whyrss")
    ended = report["recording"]["exit"]
    expected = signal.Signals(-bare.returncode).name if bare.returncode < 0 else None
    assert (ended["code"], ended["signal"]) == (bare.returncode if expected is None else None, expected)
    assert report["recording"]["lost"]["events"] == 0
    assert notes is None or report["recording"]["lost"]["notes"] == list(notes)
    assert {process["traced"] for process in report["processes"]} == {"full"}
    return Outcome(bare, pool_reader.read_pool(tmp_path / "pool"), report)
