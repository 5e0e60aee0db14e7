"""A page fault can come at any instruction: the frames are walked after each one of a Python workload. No walk
crashes, and a chain that was read in the middle of a frame's push or pop is said to be torn.
"""
import array
import os
import pathlib
import subprocess
import sys

import pytest

import pool_reader
from conftest import PATIENCE_S
from interpreters import CASES
from python_steps_work import LEGAL

WORK = pathlib.Path(__file__).with_name("python_steps_work.py")
STEPS = int(os.environ.get("WHYRSS_STEPS", "250000"))  # and to the end of the workload; millions when the walk was changed


@pytest.fixture(scope="session")
def steps_library(whyrss):
    library = pathlib.Path(os.environ.get("WHYRSS_BUILD", whyrss.program.parents[1])) / "tests/programs/libpython_steps.so"
    assert library.is_file(), f"no {library}: build the tests"
    return library


def illegal_calls(names):
    """(callee, caller) that no line of the workload makes."""
    return [(callee, caller) for callee, caller in zip(names, [*names[1:], None]) if caller not in LEGAL.get(callee, ())]


@pytest.mark.parametrize("python", CASES)
def test_frames_after_every_instruction(steps_library, tmp_path, python):
    pool, log = tmp_path / "pool", tmp_path / "log"
    environment = {**os.environ, "LD_PRELOAD": str(steps_library), "WHYRSS_OPTS": "touch=off", **pool_reader.make_pool(pool)}
    result = subprocess.run([python, WORK, log, str(STEPS)], env=environment, capture_output=True, text=True,
                            timeout=PATIENCE_S * (1 + STEPS // 100_000), check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    (process,) = pool_reader.read_pool(pool).values()
    assert process.python.support == 0
    words = array.array("I", log.read_bytes())
    walks, torn, own = words[:3]
    assert walks + own >= STEPS and walks > STEPS // 2
    sequences, at = 0, 3
    while at < len(words):
        is_torn, count = words[at:at + 2]
        names = [process.codes[code].name if code else None for code in words[at + 2:at + 2 + count]]
        at += 2 + count
        sequences += 1
        if not is_torn:
            assert count > 0, "no frames, and not said to be torn"
            assert not illegal_calls(names), (illegal_calls(names), names)
    print(f"{python}: {walks} walks, {sequences} stacks, {torn} torn", file=sys.stderr)
    assert sequences > 100
    assert torn < walks / 50
