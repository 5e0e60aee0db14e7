"""pytest --whyrss: what each test does to memory, and limits that fail a test.

    @pytest.mark.whyrss(limit="100 MiB")                       # of live heap: what the test has allocated and not freed
    @pytest.mark.whyrss(limit="10 MiB", cause="file_cache")    # of another cause, or of rss, pss or uss
    def test_load(): ...

A limit is on growth over the test's own function (fixtures left out) of the test's process and those that it has started
and that still run. Without --whyrss the mark does nothing. pytest finds this file by its entry point where its folder is
on PYTHONPATH; `-p whyrss_pytest` names it.

How: --whyrss has pytest run again, once and before anything else is done, below `whyrss record`, as the library must
be there from the start. Exit status, streams and signals stay pytest's own. Each test is a phase of the recording; a test
with a limit is judged as it ends, from a report of the recording that is being made (0.1 to 0.2 s, and 40 ms more for each
MiB of its events), so that the test itself fails. A worker of pytest-xdist judges its own tests.
"""

import gc
import os
import sys

import pytest

import whyrss
import whyrss_live

_AGAIN = "WHYRSS_PYTEST"  # set for the second start
_MIB = 1 << 20
_NAMED_TESTS = 5     # in the summary
_NAMED_BYTES = _MIB  # a test that grows by less is not named
_JUDGED_SITES = "20"  # of each cause; a complaint names three lines
_MOVED_BYTES = _MIB  # RSS has to move by that for a snapshot more than phases take anyway
_MEASURES = whyrss_live.CAUSES + ("rss", "pss", "uss")


# --- the start

def pytest_addoption(parser):
    group = parser.getgroup("whyrss", "memory by cause and line (whyrss)")
    group.addoption("--whyrss", action="store_true", help="record the tests' memory; judge @pytest.mark.whyrss(limit=...)")
    group.addoption("--whyrss-output", metavar="DIR", help="the recording (default: whyrss-pytest-<pid>)")


@pytest.hookimpl(hookwrapper=True, tryfirst=True)  # before output is captured
def pytest_load_initial_conftests(early_config, args):
    options = early_config.known_args_namespace
    again = os.environ.pop(_AGAIN, None)  # a pytest that a test starts is a first one
    if options.whyrss and not whyrss_live.is_recorded() and "PYTEST_XDIST_WORKER" not in os.environ:
        if again is not None:
            raise pytest.UsageError("--whyrss: the library could not be loaded into %s" % sys.executable)
        if not (options.help or options.version):
            _start_again(options.whyrss_output, args)
    yield


def _start_again(output, args):
    """Does not return."""
    program = whyrss_live.program()
    if program is None:
        raise pytest.UsageError("--whyrss: cannot find the program whyrss, neither beside %s nor on PATH" %
                                os.path.abspath(whyrss_live.__file__))
    command = _own_command()
    if command is None:
        raise pytest.UsageError("--whyrss: pytest was called by a program: start that one by `whyrss record -- ...`")
    os.environ[_AGAIN] = "1"
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    output = output or "whyrss-pytest-%p"
    os.execv(program, [program, "record", "-q", "-o", output, "--"] + command)


def _own_command():
    """The words that started this pytest, with the interpreter and its options; None where it is a part of a program."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    by_name = getattr(spec, "name", None) in ("pytest.__main__", "pytest", "py.test")
    script = os.path.basename(getattr(main, "__file__", None) or "")
    if not by_name and script not in ("pytest", "py.test", "pytest.py"):
        return None
    with open("/proc/self/cmdline", "rb") as words:
        command = [os.fsdecode(word) for word in words.read().split(b"\0")[:-1]]
    return [sys.executable] + command[1:]


# --- limits

class Limit:
    """What a mark asks for; ValueError where it cannot be understood."""

    def __init__(self, limit=None, cause="heap_live"):
        if limit is None:
            raise ValueError("limit=\"100 MiB\" is missing")
        if cause not in _MEASURES:
            raise ValueError("cause=%r: not one of %s" % (cause, ", ".join(_MEASURES)))
        self.bytes, self.cause = whyrss_live.parse_size(limit), cause


def _limits(item):
    limits = []
    for mark in item.iter_markers("whyrss"):
        try:
            limits.append(Limit(*mark.args, **mark.kwargs))
        except (TypeError, ValueError) as error:
            pytest.fail("@pytest.mark.whyrss: %s" % error, pytrace=False)
    return limits


def pytest_runtest_setup(item):
    _limits(item)  # a mistake is one whether the test is recorded or not


def _complaint(limit, found, pid):
    """Why a limit does not hold, or None."""
    grown = whyrss_live.Growth(found, pid, limit.cause)
    if grown.growth <= limit.bytes:
        return None
    text = "%s grew by %s, limit %s" % (limit.cause, grown.text(), whyrss_live.size_text(limit.bytes))
    if grown.error and grown.growth - limit.bytes < 2 * grown.error:
        text += " (within twice the error)"
    lines = whyrss_live.lines_of(grown.processes, found["stacks"], limit.cause)
    for growth, error, line in lines:
        text += "\n  %s%s  %s" % (whyrss_live.size_text(growth),
                                  " ± " + whyrss_live.size_text(error) if error >= growth / 100 else "", line)
    pids = [process["pid"] for process in grown.processes]
    for verdict in found["verdicts"]:
        said = any(line.partition(" in ")[0] in verdict["headline"] for _, _, line in lines)
        if verdict["pid"] in pids and verdict["severity"] != "ok" and not said:
            text += "\n  %s: %s" % (verdict["severity"], verdict["headline"])
    return text


class Recorded:
    """The plugin of a process that is recorded: the one that runs tests, or the controller of workers that do."""

    def __init__(self, config):
        self._worker = os.environ.get("PYTEST_XDIST_WORKER") if hasattr(config, "workerinput") else None
        # nodeid, phase, pid, bytes of growth, whether its failure says why: plain values, workers send them
        self._tests = []
        self._complaints = {}
        self._used = {}
        self._seen_rss = None
        self._cwd = os.getcwd()

    # a test

    def _snapshot_if_moved(self):
        rss = whyrss_live.rss()
        if self._seen_rss is None or abs(rss - self._seen_rss) >= _MOVED_BYTES:
            whyrss.snapshot()
            self._seen_rss = whyrss_live.rss()

    def _phase(self, item):
        """A name that no other test of the recording has: a test may be run twice, and by several workers."""
        name = item.nodeid if self._worker is None else "%s %s" % (self._worker, item.nodeid)
        count = self._used[name] = self._used.get(name, 0) + 1
        return name if count == 1 else "%s (%d)" % (name, count)

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item):
        limits = _limits(item)
        phase = self._phase(item)
        if limits:  # what the collector of garbage would free is no growth
            gc.collect()
            whyrss.snapshot()
            self._seen_rss = whyrss_live.rss()
        else:
            self._snapshot_if_moved()
        before = whyrss_live.rss()
        with whyrss.phase(phase):
            yield
            if limits:
                gc.collect()
                whyrss.snapshot()
                self._seen_rss = whyrss_live.rss()
            else:
                self._snapshot_if_moved()
        growth = whyrss_live.rss() - before
        complaints = self._judge(limits, phase) if limits else []
        self._complaints[item.nodeid] = complaints
        self._tests.append([item.nodeid, phase, os.getpid(), growth, bool(complaints)])

    @staticmethod
    def _judge(limits, phase):
        # What has ended holds nothing: where no child is left this process is all, in a far shorter report.
        alone = [] if whyrss_live.has_children() else ["--pid", str(os.getpid())]
        try:
            found = whyrss_live.report_json(phase, "--top", _JUDGED_SITES, *alone)
            return [text for text in (_complaint(limit, found, os.getpid()) for limit in limits) if text]
        except (whyrss_live.Unavailable, OSError, ValueError, KeyError) as error:
            return ["cannot judge the limit: %s" % error]  # never a limit that silently holds

    @pytest.hookimpl(hookwrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item, call):
        outcome = yield
        complaints = self._complaints.pop(item.nodeid, None) if call.when == "call" else None
        if not complaints:
            return
        report = outcome.get_result()
        text = "whyrss: " + "\nwhyrss: ".join(complaints)
        if report.passed:
            report.outcome, report.longrepr = "failed", text
        else:
            report.sections.append(("whyrss", text))

    # the summary

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if self._worker is not None:
            session.config.workeroutput["whyrss_tests"] = self._tests

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node, error):  # pylint: disable=unused-argument
        self._tests += getattr(node, "workeroutput", {}).get("whyrss_tests", [])

    def pytest_terminal_summary(self, terminalreporter):
        write = terminalreporter.write_line
        terminalreporter.section("whyrss: tests with the most growth of RSS")
        largest = sorted((test for test in self._tests if test[3] >= _NAMED_BYTES), key=lambda test: -test[3])
        for nodeid, phase, pid, growth, is_explained in largest[:_NAMED_TESTS]:
            write("%10s  %s%s" % ("+" + whyrss_live.size_text(growth), nodeid,
                                  ": over its limit, as above" if is_explained else ""))
            for line in [] if is_explained else self._reasons(phase, pid):
                write("            " + line)
        if not largest:
            write("no test grew by %s or more" % whyrss_live.size_text(_NAMED_BYTES))
        elif len(largest) > _NAMED_TESTS:
            write("%d more grew by %s or more" % (len(largest) - _NAMED_TESTS, whyrss_live.size_text(_NAMED_BYTES)))
        try:
            write("all: whyrss report %s" % os.path.relpath(whyrss_live.recording(), self._cwd))
        except whyrss_live.Unavailable as reason:
            write("whyrss: %s" % reason)

    @staticmethod
    def _reasons(phase, pid):
        try:
            found = whyrss_live.report_json(phase, "--top", "1", "--pid", str(pid))
        except (whyrss_live.Unavailable, OSError, ValueError) as reason:
            return ["no report: %s" % reason]
        return ["%s: %s" % (verdict["severity"], verdict["headline"]) for verdict in found["verdicts"]
                if verdict["pid"] == pid and verdict["id"] != "steady"][:2]


def pytest_configure(config):
    config.addinivalue_line("markers", "whyrss(limit, cause=\"heap_live\"): with --whyrss, fails a test over which a "
                                       "cause of memory (or rss, pss, uss) grows by more than the limit")
    if config.getoption("whyrss"):
        if whyrss_live.is_recorded():
            config.pluginmanager.register(Recorded(config), "whyrss_recorded")
        elif hasattr(config, "workerinput"):
            raise pytest.UsageError("--whyrss: this worker runs on another machine, or without the library")
