"""Lines and columns of a good part of the standard library, decoded as reports do, equal CPython's own."""
import os
import pathlib
import subprocess

import pytest

from conftest import PATIENCE_S, ROOT
from interpreters import CASES

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
