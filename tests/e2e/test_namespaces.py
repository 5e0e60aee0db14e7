"""Processes that know themselves by other numbers than the collector does."""
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S

UNSHARE = ["unshare", "--user", "--map-root-user", "--pid", "--fork"]
SHORT_COMMANDS = "for i in 1 2 3 4 5 6; do /bin/true; done; echo $$"


@pytest.fixture
def unshare():
    if not shutil.which("unshare") or subprocess.run([*UNSHARE, "true"], capture_output=True, timeout=PATIENCE_S,
                                                     check=False).returncode != 0:
        pytest.skip("no pid namespaces for users here")
    return UNSHARE


def test_numbers_of_a_nested_namespace_are_nobody_elses_here(whyrss, recording, unshare):
    """The first process of the namespace forks its number 2, which is another process outside."""
    result = whyrss.record(recording, [*unshare, "/bin/sh", "-c", SHORT_COMMANDS])
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr
    report = whyrss.finished_report(recording)
    assert report["recording"]["lost"]["events"] == 0
    # Of a process that had ended before anybody saw it the inner number is all that is known, and its events.
    strangers = [process for process in report["processes"]
                 if process["pid"] in (1, 2) and process["traced"] == "kernel"]
    assert not strangers, strangers
