"""What every end-to-end test stands on: run a command bare or recorded, read the report, compile a program.

Nothing here or in the tests depends on speed: whatever may take time is polled with a generous limit.
"""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

import pool_reader

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "shim"))  # tests import constants from programs that import whyrss.py
sys.path.append(str(ROOT / "demos"))  # what reads reports
from expected.repeats import RECORDINGS, note  # noqa: E402
from expected.report_reading import contradictions, read_report  # noqa: E402
from repeat_hooks import (pytest_runtest_makereport, pytest_runtest_protocol, pytest_sessionfinish,  # noqa: E402, F401
                          pytest_terminal_summary)
os.environ.pop("COLUMNS", None)  # text is as wide as for a pipe, wherever the tests run
PATIENCE_S = 120  # for one command, and for a state to be reached
SEED = ["--seed", os.environ["WHYRSS_SEED"]] if "WHYRSS_SEED" in os.environ else []  # tests/soak

# A suite that is started in the background, or by nohup, ignores these, and so would every program that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(ignored, signal.SIG_DFL)
signal.pthread_sigmask(signal.SIG_SETMASK, [])


def wait_until(condition, what):
    """Polls until `condition()` is true and returns its value. While a recording grows, a report may lack what the
    condition reads of it: such an error counts as false, and the last one is raised after the deadline.
    """
    deadline = time.monotonic() + PATIENCE_S
    error = None
    while time.monotonic() < deadline:
        try:
            value, error = condition(), None
        except (AssertionError, IndexError, KeyError, TypeError) as raised:
            value, error = None, raised
        if value:
            return value
        time.sleep(0.05)
    if error is not None:
        raise error
    pytest.fail(f"gave up waiting until {what}")


def unwrapped(text):
    """Text for people with each line break and each run of blanks as one blank: reports wrap their lines."""
    return " ".join(text.split())


def line_of(text, ending):
    """The number of the only line of a text that ends so; `ending` may be several, as a tuple."""
    (number,) = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith(ending)]
    return number


def run(*command, **options):
    """The finished command, whatever its status; output captured as text."""
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "check": False, **options}
    return subprocess.run([str(word) for word in command], **options)


def manifest_of(recording):
    """The manifest of a recording, None while there is none."""
    try:
        text = (pathlib.Path(recording) / "manifest.json").read_text()
    except OSError:
        return None
    return json.loads(text)


def is_running(pid):
    """Whether a process exists and is no zombie."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def kill_and_wait(*pids):
    """Kills without a pause in between, then waits until none of them is left."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    for pid in pids:
        wait_until(lambda pid=pid: not is_running(pid), f"{pid} is gone")


def kill_users_of(folder):
    """Kills what was started with a path in that folder: a program that does not end would slow down all other tests."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int(entry.name) != os.getpid() and os.fsencode(folder) in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


class BrokenReport(Exception):
    """A report that is wrong at any moment, also of a recording that grows: `wait_until` raises it at once."""


class Whyrss:
    def __init__(self, program):
        self.program = program
        self.shim = program.parent.parent / "lib" / "libwhyrss.so"
        self.build = pathlib.Path(os.environ.get("WHYRSS_BUILD", program.parents[1]))

    def run(self, *arguments, **options):
        """whyrss ARGUMENTS, output captured as text."""
        options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, **options}
        return subprocess.run([str(self.program), *map(str, arguments)], check=False, **options)

    def record(self, recording, command, *record_options, **options):
        """whyrss record -q -o RECORDING -- COMMAND."""
        seed = [] if "--seed" in record_options else SEED
        try:
            return self.run("record", "-q", "-o", recording, *seed, *record_options, "--", *command, **options)
        except subprocess.TimeoutExpired:
            kill_users_of(pathlib.Path(recording).parent)
            raise

    def env_only(self, recording, **more):
        """The environment that records a command without changing its command line."""
        return {**os.environ, "LD_PRELOAD": str(self.shim), "WHYRSS_OUTPUT": str(recording), **more}

    def report_text(self, recording, *options):
        """The JSON report of a recording, as it is printed."""
        result = self.run("report", recording, "--format", "json", *options)
        if result.returncode not in (0, 1):
            raise BrokenReport(f"ended with {result.returncode}: {result.stderr}")
        assert result.returncode == 0, result.stderr
        return result.stdout

    def report(self, recording):
        """The JSON report of a recording, with the frames of each stack where it is referred to."""
        report = read_report(self.report_text(recording))
        if wrong := contradictions(report):
            raise BrokenReport(wrong)
        return report

    def finished_report(self, recording):
        """The JSON report, once the recording is complete."""
        self.wait_until_complete(recording)
        report = self.report(recording)
        assert report["recording"]["complete"]
        return report

    @staticmethod
    def wait_until_complete(recording):
        wait_until(lambda: (manifest := manifest_of(recording)) and manifest["state"] == "complete", f"{recording} is complete")

    def record_whole(self, recording, command, *record_options, **options):
        """(the finished command, the JSON report) of a recording that missed no snapshot: a leaving process waits 0.5 to
        2 s for its last walk, which a busy machine may exceed; the report then admits it, and figures of the end are not
        to be had. Records again up to twice, and says so.
        """
        for attempt in range(RECORDINGS):
            if attempt > 0:
                shutil.rmtree(recording)
            result = self.record(recording, command, *record_options, **options)
            report = self.finished_report(recording)
            lost = report["recording"]["lost"]["snapshots"]
            if lost == 0:
                return result, report
            note(f"missed: {os.environ.get('PYTEST_CURRENT_TEST', recording)}: {lost} snapshots, recording {attempt + 1}")
        pytest.fail(f"{RECORDINGS} recordings in a row missed a snapshot")


@pytest.fixture(scope="session")
def whyrss():
    program = pathlib.Path(os.environ.get("WHYRSS_BIN", ROOT / "build/release/bin/whyrss"))
    assert program.is_file(), f"no whyrss at {program}: build it, or set WHYRSS_BIN"
    return Whyrss(program)


@pytest.fixture
def traced(whyrss, tmp_path):
    """traced(COMMAND, touch=...) -> finished process, pid -> what it wrote."""
    def run(command, touch="1", chunks=4096, slots=64, **options):
        pool = tmp_path / "pool"
        environment = {**os.environ, **pool_reader.make_pool(pool, chunks, slots), "LD_PRELOAD": str(whyrss.shim),
                       "WHYRSS_OPTS": f"touch={touch}"}
        result = subprocess.run([str(word) for word in command], env=environment, capture_output=True, text=True,
                                timeout=PATIENCE_S * 5, check=False, **options)
        return result, pool
    return run


@pytest.fixture(scope="session")
def forbid(whyrss):
    """forbid(ACTION, CALL...) -> words before a command that refuse it, and all that it starts, these system calls:
    ACTION is eperm, enosys or kill. Skips where no seccomp filter can be installed."""
    program = whyrss.build / "tests/programs/forbid_calls"
    tried = subprocess.run([program, "eperm", "perf_event_open", "true"], capture_output=True, text=True, check=False)
    if tried.returncode == 3:
        pytest.skip(tried.stderr.strip())
    assert tried.returncode == 0, tried.stderr
    return lambda action, *calls: [str(program), action, ",".join(calls)]


@pytest.fixture
def recording(tmp_path):
    return tmp_path / "recording.whyrss"


@pytest.fixture
def open_folder():
    """A folder that everybody may use. Not below tmp_path: whichever pytest starts next closes what is above that."""
    with tempfile.TemporaryDirectory(prefix="whyrss-test-") as name:
        folder = pathlib.Path(name)
        folder.chmod(0o1777)  # as /tmp
        yield folder


@pytest.fixture
def compile_c(tmp_path):
    """compile_c(SOURCE, *FLAGS, compiler=...) -> program; skips where that compiler cannot make one."""
    def compile_program(source, *flags, compiler="gcc", name="program"):
        if not shutil.which(compiler):
            pytest.skip(f"{compiler} is not installed")
        text = tmp_path / f"{name}.{'cc' if compiler == 'g++' else 'c'}"
        text.write_text(source)
        program = tmp_path / name
        command = [compiler, "-O1", "-g", "-o", str(program), str(text), *flags]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode != 0 and flags:
            probe = subprocess.run([compiler, *flags, "-x", "c", "-", "-o", "/dev/null"], input="int main(void){return 0;}",
                                   capture_output=True, text=True, check=False)
            if probe.returncode != 0:
                pytest.skip(f"{compiler} {' '.join(flags)} makes no program here")
        assert result.returncode == 0, result.stderr
        return program
    return compile_program


def compiled(folder, name, *flags):
    """A program of tests/programs, made in that folder."""
    if not shutil.which("gcc"):
        pytest.skip("gcc is not installed")
    program = folder / name
    source = ROOT / "tests/programs" / f"{name}.c"
    subprocess.run(["gcc", "-O1", "-g", "-w", "-pthread", f"-I{ROOT}", *flags, "-o", program, source], check=True)
    return program


def pytest_runtest_logreport(report):
    """Keeps skips visible: tests/run prints this file before its closing line."""
    if report.skipped and os.environ.get("WHYRSS_SKIPS"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        with open(os.environ["WHYRSS_SKIPS"], "a", encoding="utf-8") as skips:
            skips.write(f"  {report.nodeid.split('/')[-1]}: {reason.removeprefix('Skipped: ')}\n")
