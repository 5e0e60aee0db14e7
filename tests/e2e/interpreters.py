"""The CPythons that this machine has, as parameters of tests.

EVERY_CASE has all of them, and a visible skip for each absent version; CASES the oldest, the newest and Debian's, but all
with `tests/run --all` (WHYRSS_ALL=1). Interpreters: those of pyenv, those that tests/fetch-pythons has unpacked, and
Debian's; WHYRSS_PYTHONS (paths, colon-separated) replaces pyenv's and the unpacked ones.
"""
import os
import pathlib
import subprocess

import pytest

MINORS = range(8, 16)
UNPACKED = pathlib.Path(__file__).resolve().parents[2] / "build/pythons"
DEBIAN = pathlib.Path("/usr/bin/python3")


def candidates():
    if "WHYRSS_PYTHONS" in os.environ:
        paths = [pathlib.Path(path) for path in os.environ["WHYRSS_PYTHONS"].split(":") if path]
    else:
        root = pathlib.Path(os.environ.get("PYENV_ROOT", pathlib.Path.home() / ".pyenv"))
        paths = sorted(root.glob("versions/3.*/bin/python3")) + sorted(UNPACKED.glob("3.*/usr/bin/python3"))
    return [*paths, DEBIAN]


def interpreters():
    """(minor, path) of every CPython found, at most one pyenv per minor version; then Debian's."""
    for path in candidates():
        code = "import sys; print(sys.implementation.name, sys.version_info[1])"
        result = subprocess.run([path, "-c", code], capture_output=True, text=True, check=False) if path.exists() else None
        if result is not None and result.returncode == 0:
            name, minor = result.stdout.split()
            if name == "cpython" and int(minor) in MINORS:
                yield int(minor), path


FOUND = list(interpreters())
ABSENT = [pytest.param(None, id=f"3.{minor}", marks=pytest.mark.skip(reason=f"no CPython 3.{minor} was found"))
          for minor in MINORS if minor not in {found for found, _ in FOUND}]


def case(minor, path):
    return pytest.param(path, id=f"3.{minor}-{path.parents[1].name}")


def chosen():
    """Of what was found, what most tests use; notes what they leave out."""
    if "WHYRSS_ALL" in os.environ:
        return FOUND
    ends = {min(FOUND)[0], max(FOUND)[0]}
    left_out = sorted({minor for minor, path in FOUND if minor not in ends and path != DEBIAN})
    if left_out and "WHYRSS_SKIPS" in os.environ:
        with open(os.environ["WHYRSS_SKIPS"], "a", encoding="utf-8") as skips:
            skips.write(f"  CPython {', '.join(f'3.{minor}' for minor in left_out)}: python_stacks alone; tests/run --all "
                        "runs everything on them\n")
    return [(minor, path) for minor, path in FOUND if minor in ends or path == DEBIAN]


EVERY_CASE = [case(minor, path) for minor, path in FOUND] + ABSENT
CASES = [case(minor, path) for minor, path in chosen()] + (ABSENT if "WHYRSS_ALL" in os.environ else [])


def version_of(python):
    """The minor version of an interpreter found."""
    return next(minor for minor, path in FOUND if path == python)
