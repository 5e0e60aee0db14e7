"""What `report` shows on a terminal while it works, and what it leaves behind when it is interrupted."""
import errno
import os
import pty
import signal
import subprocess
import time

import pytest

from conftest import PATIENCE_S

JOB = "kept = [bytes([i % 256]) * (i % 400) for i in range({count})]\nfor i in range({count}): kept[i % 1000] = str(i)\n"


@pytest.fixture(scope="module")
def large(whyrss, tmp_path_factory):
    """A recording whose report takes some seconds."""
    recording = tmp_path_factory.mktemp("large") / "recording.whyrss"
    result = whyrss.record(recording, ["/usr/bin/python3", "-c", JOB.format(count=800_000)], "--mode", "exact")
    assert result.returncode == 0, result.stderr
    whyrss.wait_until_complete(recording)
    return recording


class OnTerminal:
    """`whyrss report` with stderr on a terminal, and stdout too if there is no `output`."""

    def __init__(self, whyrss, recording, *arguments, stdout=None, terminal="xterm"):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen([whyrss.program, "report", recording, *arguments], stdin=slave,
                                        stdout=slave if stdout is None else stdout, stderr=slave, start_new_session=True,
                                        env={**os.environ, "TERM": terminal})
        os.close(slave)
        self.shown = b""

    def read(self):
        """Some more of what is shown; False at the end."""
        try:
            piece = os.read(self.master, 65536)
        except OSError as error:
            assert error.errno == errno.EIO
            return False
        self.shown += piece
        return bool(piece)

    def until(self, words):
        deadline = time.monotonic() + PATIENCE_S
        while words not in self.shown:
            assert self.read() and time.monotonic() < deadline, self.shown
        return self

    def end(self):
        while self.read():
            pass
        os.close(self.master)
        return self.process.wait(PATIENCE_S)


def slowed(process):
    """Stops and continues it in turn, so that it takes over a second however fast the machine is."""
    for _ in range(30):
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.004)


def test_progress_on_a_terminal(whyrss, large):
    run = OnTerminal(whyrss, large, stdout=subprocess.DEVNULL)
    slowed(run.process)
    assert run.until(b"\r\x1b[Kwhyrss: reading the recording: ").end() == 0
    lines = run.shown.split(b"\r\x1b[K")
    assert any(b" %, about " in line and line.endswith(b" left") for line in lines)
    assert lines[-1] == b""  # nothing stays


def test_no_progress_without_a_terminal(whyrss, large, tmp_path):
    assert whyrss.run("report", large).stderr == ""
    with subprocess.Popen([whyrss.program, "report", large, "-o", tmp_path / "report"], stderr=subprocess.PIPE) as process:
        slowed(process)
        assert (process.communicate(timeout=PATIENCE_S)[1], process.returncode) == (b"", 0)
    dumb = OnTerminal(whyrss, large, stdout=subprocess.DEVNULL, terminal="dumb")
    slowed(dumb.process)
    assert (dumb.end(), dumb.shown) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_report_leaves_nothing(whyrss, large, tmp_path, number):
    output = tmp_path / "report.json"
    output.write_text("as it was")
    run = OnTerminal(whyrss, large, "--format", "json", "-o", output)
    slowed(run.process)
    run.until(b"whyrss: ")
    run.process.send_signal(number)
    assert run.end() == -number
    assert run.shown.endswith(b"\r\x1b[K")
    assert output.read_text() == "as it was"
    assert os.listdir(tmp_path) == ["report.json"]


def test_interrupted_while_it_writes(whyrss, large, tmp_path):
    """The file is there under another name meanwhile, and is removed."""
    output = tmp_path / "report.json"
    with subprocess.Popen([whyrss.program, "report", large, "--format", "json", "--top", "1000000", "-o", output],
                          preexec_fn=lambda: os.nice(10)) as process:
        deadline = time.monotonic() + PATIENCE_S
        while not os.listdir(tmp_path) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0002)
        process.send_signal(signal.SIGINT)
        status = process.wait(PATIENCE_S)
    assert (status, os.listdir(tmp_path)) in [(-signal.SIGINT, []), (0, ["report.json"]),  # it was quicker
                                              (-signal.SIGINT, ["report.json"])]


def test_an_ignored_interrupt_stays_ignored(whyrss, large, tmp_path):
    output = tmp_path / "report.txt"
    with subprocess.Popen([whyrss.program, "report", large, "-o", output],
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) as process:
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
    assert "python3" in output.read_text()


def test_output_files(whyrss, large, tmp_path):
    """What is replaced keeps its permissions and links; what cannot be replaced is written to."""
    plain, link, fifo = tmp_path / "plain", tmp_path / "link", tmp_path / "fifo"
    plain.write_text("before")
    plain.chmod(0o640)
    link.symlink_to("plain")
    assert whyrss.run("report", large, "-o", link).returncode == 0
    text = plain.read_text()
    assert "python3" in text and link.is_symlink() and plain.stat().st_mode & 0o777 == 0o640
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", fifo], stdout=subprocess.PIPE, text=True) as reader:
        assert whyrss.run("report", large, "-o", fifo).returncode == 0
        assert reader.communicate(timeout=PATIENCE_S)[0] == text
    missing = whyrss.run("report", large, "-o", tmp_path / "no" / "file")
    assert missing.returncode == 1 and "cannot write" in missing.stderr
    assert sorted(os.listdir(tmp_path)) == ["fifo", "link", "plain"]
