"""Hooks for conftest.py: a case that raises FigureOff is repeated (expected/repeats.py)."""
import sys
import tempfile

import pytest
from _pytest.runner import runtestprotocol

from expected.repeats import FIGURE_OFF, IS_REPEAT, repeat
from figure_off import FigureOff

HAS_FACTS_WRONG = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    report.figure_off = call.excinfo is not None and bool(call.excinfo.errisinstance(FigureOff))
    report.reason = call.excinfo.exconly().splitlines()[0] if report.figure_off else ""
    if report.failed and not report.figure_off:
        item.config.stash[HAS_FACTS_WRONG] = True


def judge_by_repeats(item, report):
    with tempfile.TemporaryDirectory(prefix="whyrss-repeat-", dir="/tmp") as folder:
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", f"{folder}/t", item.nodeid]
        report.unsteady, why = repeat(item.nodeid, report.reason, command, item.config.rootpath)
    if why:
        report.sections.append(("repeats", why))
    else:
        report.outcome, report.longrepr = "passed", None


def pytest_runtest_protocol(item, nextitem):
    if IS_REPEAT:
        return None
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    reports = runtestprotocol(item, nextitem=nextitem, log=False)
    failed = [report for report in reports if report.failed]
    if failed and all(report.figure_off for report in failed):
        for report in failed:
            judge_by_repeats(item, report)
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(terminalreporter):
    for reports in terminalreporter.stats.values():
        for report in reports:
            if line := getattr(report, "unsteady", ""):
                terminalreporter.write_line(line)


def pytest_sessionfinish(session, exitstatus):
    if IS_REPEAT and exitstatus == pytest.ExitCode.TESTS_FAILED and HAS_FACTS_WRONG not in session.config.stash:
        session.exitstatus = FIGURE_OFF
