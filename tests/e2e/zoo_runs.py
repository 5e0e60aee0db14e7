"""Runs python_zoo.py under the library: what it recorded, and what traceback said at the same moments."""
import json
import os
import pathlib
import subprocess

import pool_reader
from conftest import PATIENCE_S

MAX_PYTHON_FRAMES = 512
# Blocks come and go: from a heap that keeps their pages they cost no page faults.
KEEPS_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(64 << 20), "MALLOC_TRIM_THRESHOLD_": str(256 << 20)}
ZOO = pathlib.Path(__file__).with_name("python_zoo.py")


def run_zoo(shim, python, tmp_path, chunk_count=None, **more):
    """Runs the zoo traced; returns (pool, {(pid, size): frames of traceback})."""
    pool, log = tmp_path / "pool", tmp_path / "expected"
    room = {} if chunk_count is None else {"chunk_count": chunk_count}
    environment = {**os.environ, "LD_PRELOAD": str(shim), **pool_reader.make_pool(pool, **room), **more}
    result = subprocess.run([python, ZOO, log], env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
                            check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    expected = {}
    for line in log.read_text().splitlines():
        pid, size, frames = json.loads(line)
        assert (pid, size) not in expected
        expected[pid, size] = [tuple(frame) for frame in frames]
    return pool_reader.read_pool(pool), expected


def shown_frames(process, walked):
    """What traceback would show of frames of a stack."""
    version = process.python.version_hex
    frames = []
    for frame in walked:
        assert frame.code in process.codes, f"no code {frame.code}"
        code = process.codes[frame.code]
        if not frame.flags & pool_reader.FRAME_INCOMPLETE:
            frames.append((code.file, code.name, pool_reader.line_of(version, code, frame.last_instruction)))
    return frames
