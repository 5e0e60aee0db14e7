"""The CPythons that this machine has, as parameters of tests: one case each, and a visible skip for each absent version.

Interpreters: those of pyenv, those that tests/fetch-pythons has unpacked, and Debian's; WHYRSS_PYTHONS (paths,
colon-separated) replaces pyenv's and the unpacked ones.
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
            if name == "cpython":
                yield int(minor), path


FOUND = list(interpreters())
CASES = [pytest.param(path, id=f"3.{minor}-{path.parents[1].name}") for minor, path in FOUND if minor in MINORS]
CASES += [pytest.param(None, id=f"3.{minor}", marks=pytest.mark.skip(reason=f"no CPython 3.{minor} was found"))
          for minor in MINORS if minor not in {found for found, _ in FOUND}]


def version_of(python):
    """The minor version of an interpreter found."""
    return next(minor for minor, path in FOUND if path == python)
