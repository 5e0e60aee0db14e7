"""Processes that know themselves by other numbers than the collector does."""
import pytest

from conftest import compiled

MIB = 1 << 20
CANNOT = 77


def test_numbers_of_a_nested_namespace_are_nobody_elses_here(whyrss, recording, tmp_path):
    """The first process of the namespace has no /proc to read its start from, and forks number 2, as which the collector
    knows another process.
    """
    result = whyrss.record(recording, [compiled(tmp_path, "nested_namespace")])
    if result.returncode == CANNOT:
        pytest.skip("no pid namespaces for users here")
    assert (result.returncode, result.stdout) == (0, "2 1\n"), result.stderr
    report = whyrss.finished_report(recording)
    assert report["recording"]["lost"]["events"] == 0
    assert [process["traced"] for process in report["processes"]] == ["full"] * 3
    assert max(process["rss"]["peak"] for process in report["processes"]) > 4 * MIB
