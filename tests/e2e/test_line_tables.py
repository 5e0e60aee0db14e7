"""Lines and columns of a good part of the standard library, decoded as reports do, equal CPython's own."""
import os
import pathlib
import subprocess

import pytest

from conftest import PATIENCE_S, ROOT
from interpreters import CASES, FOUND
from test_symbols import kept_stack, record

GENERATOR = ROOT / "tests" / "unit" / "data" / "make_line_table_fixture.py"
MODULES = """argparse ast asyncio.base_events collections configparser csv ctypes dataclasses difflib email.message enum
    functools heapq http.client inspect json.decoder logging multiprocessing.pool optparse pathlib pickle platform random
    shutil socket statistics string subprocess tempfile threading traceback typing urllib.request uuid xml.dom.minidom
    zipfile""".split()


@pytest.mark.parametrize("python", CASES)
def test_positions_equal_cpythons(whyrss, tmp_path, python):
    program = pathlib.Path(os.environ.get("WHYRSS_BUILD", whyrss.program.parents[1])) / "tests" / "programs" / "line_tables"
    rows = tmp_path / "rows"
    with rows.open("wb") as out:
        subprocess.run([python, GENERATOR, *MODULES], stdout=out, check=True, timeout=PATIENCE_S)
    with rows.open("rb") as source:
        result = subprocess.run([program], stdin=source, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert result.returncode == 0, result.stdout + result.stderr
    instructions, differ = (int(part.split()[0]) for part in result.stdout.split(", "))
    assert instructions >= 100_000
    assert differ == 0


TWO_CALLS = """import sys
grüße, kept = bytearray(8 << 20), bytearray(48 << 20)  # two on one line
sys.stdin.read()
"""


def test_columns_are_reported(whyrss, recording, tmp_path):
    """Which of two calls on a line it was, in bytes."""
    newer = [path for minor, path in FOUND if minor >= 11]
    if not newer:
        pytest.skip("no CPython from 3.11 on was found")
    script = tmp_path / "two.py"
    script.write_text(TWO_CALLS)
    record(whyrss, recording, newer[-1], script)
    (frame,) = (frame for frame in kept_stack(whyrss.finished_report(recording)) if frame["kind"] == "python")
    line = TWO_CALLS.splitlines()[1].encode()
    call = b"bytearray(48 << 20)"
    assert (frame["file"], frame["line"], frame["end_line"]) == (str(script), 2, 2)
    assert (frame["column"], frame["end_column"]) == (line.index(call) + 1, line.index(call) + 1 + len(call))
