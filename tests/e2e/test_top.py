"""whyrss top: memory by cause while programs run, of a command, a recording, and processes that are not recorded."""
import contextlib
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from conftest import PATIENCE_S, is_running, unwrapped, wait_until
from interpreters import DEBIAN

MIB = 1 << 20

KEEPS = """
import sys, time
kept = []
def keep():
    kept.append(bytearray(30 << 20))  # keeps
keep()
print("it runs", flush=True)
sys.stdin.read()
keep()
time.sleep({rest})
sys.exit(3)
"""

HOLDS = """
import mmap, sys
private = bytearray(50 << 20)
with open(sys.argv[1], "rb") as file:
    mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
touched = sum(mapped[at] for at in range(0, len(mapped), 4096))
print("it holds", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def started():
    """started(COMMAND) -> a process that has printed its first line, which ends with its stdin."""
    processes = []

    def start(command, **options):
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)
        processes.append(process)
        assert process.stdout.readline().startswith("it ")
        return process
    yield start
    for process in processes:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@pytest.fixture
def holder(started, tmp_path):
    file = tmp_path / "data"
    file.write_bytes(os.urandom(20 * MIB))
    return started([DEBIAN, "-c", HOLDS, file])


def script(tmp_path, text, **values):
    path = tmp_path / "job.py"
    path.write_text(text.format(**values))
    return path


def figures(screen, pid):
    """The row of a process: title -> MiB, as far as the titles stand in one line."""
    lines = screen.splitlines()
    row = next(number for number, line in enumerate(lines) if line.split()[:1] == [str(pid)])
    titles = next(line for line in reversed(lines[:row]) if line.split()[:1] == ["pid"])
    names = re.split(r"\s{2,}", titles.strip())
    return dict(zip(names[1:], lines[row].split()[1:]))


def test_a_command(whyrss, tmp_path):
    recording = tmp_path / "made"
    path = script(tmp_path, KEEPS, rest=1.5)
    result = whyrss.run("top", "-i", "0.3", "-n", "2", "-o", recording, "--mode", "exact", "--", DEBIAN, path,
                        stdin=subprocess.DEVNULL)
    assert result.returncode == 3, result.stderr
    screens = re.split(r"^.* still running; read in .*$", result.stdout, flags=re.MULTILINE)[1:]
    assert len(screens) == 2 and "it runs" not in result.stdout
    assert (tmp_path / "made.log").read_text() == "it runs\n"
    said = unwrapped(result.stderr)
    assert "the command goes on; Ctrl-C interrupts it" in said
    assert re.search("6[01] MiB live", said) and f"next: whyrss report {recording}" in said
    assert whyrss.finished_report(recording)["recording"]["mode"] == "exact"
    # As long as the recording is there, it is not replaced.
    again = whyrss.run("top", "-o", recording, "--", DEBIAN, path)
    assert again.returncode == 125 and "exists already" in again.stderr
    assert whyrss.run("top", "-f", "-n", "1", "-o", recording, "--", "true").returncode == 0


def test_what_is_read_of_a_running_program_is_of_that_moment(whyrss, started, tmp_path):
    """Right after it allocated: nothing waits for the collector's next turn."""
    recording = tmp_path / "made"
    path = script(tmp_path, KEEPS, rest=100)
    job = started([whyrss.program, "record", "-q", "-o", recording, "--", DEBIAN, path])
    for count in (1, 2):
        if count == 2:
            job.stdin.close()
            wait_until(lambda: len(whyrss.report(recording)["processes"][0]["causes"]) and
                       whyrss.report(recording)["processes"][0]["rss"]["last"] > 60 * MIB, "it has allocated again")
        result = whyrss.run("top", "-n", "1", recording)
        assert result.returncode == 0, result.stderr
        assert re.search(rf"{30 * count}\.\d +live heap +job.py:5 in keep", result.stdout), result.stdout
        unexplained = re.search(r"([\d.]+) +unknown +\(no call recorded\)", result.stdout)
        assert unexplained is None or float(unexplained[1]) < 2, result.stdout
    pid = whyrss.report(recording)["processes"][0]["pid"]
    by_pid = whyrss.run("top", "-n", "1", pid)  # it is found by the process, too
    assert by_pid.returncode == 0 and "job.py:5 in keep" in by_pid.stdout
    os.kill(pid, signal.SIGKILL)


def test_a_process_that_nobody_records(whyrss, holder):
    result = whyrss.run("top", "-i", "0.2", "-n", "2", holder.pid, env={**os.environ, "COLUMNS": "200"})
    assert result.returncode == 0, result.stderr
    first, second = result.stdout.split("\n\n")
    for screen in (first, second):
        row = figures(screen, holder.pid)
        assert 50 <= float(row["anonymous"]) <= 60 and 20 <= float(row["file cache"]) <= 35, screen
        status = open(f"/proc/{holder.pid}/status", encoding="utf-8").read()
        rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
        assert abs(float(row["RSS"]) - rss) <= 0.2 and abs(float(row["growth"])) <= 0.2
        parts = [float(row[name]) for name in row if name in ("anonymous", "shared by fork", "file cache", "file copies",
                                                              "shared memory", "stacks", "other")]
        assert abs(sum(parts) - rss) <= 0.5, screen


def test_its_children_come_and_go(whyrss, started):
    parent = started([sys.executable, "-c", """
import subprocess, sys
child = subprocess.Popen(["sleep", "100"])
print("it runs", child.pid, flush=True)
sys.stdin.read()
child.kill()
"""])
    result = whyrss.run("top", "-n", "1", parent.pid)
    child = re.search(r"^ *(\d+) .*sleep 100$", result.stdout, re.MULTILINE)
    assert result.returncode == 0 and child, result.stdout
    with subprocess.Popen([whyrss.program, "top", "-i", "0.1", str(parent.pid)], stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout.readline().startswith("2 processes, ")
        os.kill(int(child[1]), signal.SIGKILL)
        while not top.stdout.readline().startswith("1 process (1 ended), "):
            assert top.poll() is None
        parent.stdin.close()
        top.communicate(timeout=PATIENCE_S)
    assert top.returncode == 0


def resident_mib():
    """Pid -> MiB of RSS, of all processes that can be read."""
    sizes = {}
    for statm in pathlib.Path("/proc").glob("[0-9]*/statm"):
        with contextlib.suppress(OSError):  # it has ended
            sizes[int(statm.parent.name)] = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB
    return sizes


def test_the_largest(whyrss, holder):
    """Whatever else runs on the machine: no process that is not shown is larger than one that is."""
    before = resident_mib()
    result = whyrss.run("top", "-n", "1", env={**os.environ, "COLUMNS": "200"})
    after = resident_mib()
    assert result.returncode == 0, result.stderr
    shown = {int(pid): float(rss) for pid, rss in re.findall(r"^ *(\d+) +([0-9.]+) ", result.stdout, re.MULTILINE)}
    assert 0 < len(shown) <= 10, result.stdout
    left_out = {pid: min(before[pid], after[pid]) for pid in (before.keys() & after.keys()) - shown.keys()}
    assert max(left_out.values(), default=0) <= min(shown.values()) + 1, (left_out, result.stdout)
    assert shown.get(holder.pid, min(shown.values())) >= 70


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to run as another user")
def test_another_users_process(whyrss, holder):
    result = whyrss.run("top", "-n", "1", holder.pid, user=65534, group=65534, extra_groups=[])
    assert result.returncode == 0, result.stderr
    row = next(line for line in result.stdout.splitlines() if line.split()[:1] == [str(holder.pid)]).split()
    assert float(row[1]) >= 70 and row[3:5] == ["-", "-"], row
    assert "causes of 1 process cannot be read" in result.stdout and "Permission denied" in result.stdout


def test_bad_input(whyrss, tmp_path):
    for words, status, said in ((["nothing"], 1, "whyrss top -- nothing"), (["99999999"], 1, "no process 99999999"),
                                (["1", "nothing"], 2, "process ids, or one recording"), (["-i", "0", "1"], 2, "--interval"),
                                (["-n", "0"], 2, "--count"), ([tmp_path], 1, str(tmp_path)),
                                (["--", "no-such-program"], 127, "no-such-program"), (["--"], 125, "top: no command"),
                                (["sleep", "3"], 1, "whyrss top -- sleep 3"), (["-f", "1"], 2, "with -- CMD")):
        result = whyrss.run("top", *words, cwd=tmp_path)
        assert result.returncode == status and result.stdout == "", words
        assert len(result.stderr.splitlines()) == 1 and said in result.stderr, (words, result.stderr)
    assert list(tmp_path.iterdir()) == []


class Terminal:
    """A program on a terminal of 24 lines and 100 columns."""

    def __init__(self, *command):
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", LINES="24", COLUMNS="100")
            os.execv(command[0], list(map(str, command)))
        self.text = ""

    def read_until(self, wanted):
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(wanted, self.text):
            assert time.monotonic() < deadline, self.text
            if select.select([self.end], [], [], 0.1)[0]:
                try:
                    self.text += os.read(self.end, 1 << 16).decode()
                except OSError:  # no process has the other end any more
                    break
        assert re.search(wanted, self.text), self.text
        taken, self.text = self.text, ""
        return taken

    def press(self, keys):
        os.write(self.end, keys.encode())

    def end_status(self):
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.end)
        return status


ENTER, LEAVE = r"\x1b\[\?1049h", r"\x1b\[\?1049l"


def test_on_a_terminal(whyrss, holder):
    terminal = Terminal(whyrss.program, "top", "-i", "100", str(holder.pid))
    screen = terminal.read_until("q: quit")
    assert re.search(ENTER, screen) and str(holder.pid) in screen
    terminal.press("xyz ")  # only the last one is a key
    assert str(holder.pid) in terminal.read_until("q: quit")
    terminal.press("q")
    terminal.read_until(LEAVE)
    assert terminal.end_status() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_given_back(whyrss, holder, number):
    terminal = Terminal(whyrss.program, "top", "-i", "100", str(holder.pid))
    terminal.read_until("q: quit")
    os.kill(terminal.pid, number)
    terminal.read_until(LEAVE)
    assert terminal.end_status() == -number


def test_a_command_on_a_terminal(whyrss, tmp_path):
    path = script(tmp_path, KEEPS.replace("sys.stdin.read()", "time.sleep(100)"), rest=1)
    terminal = Terminal(whyrss.program, "top", "-i", "0.2", "-o", tmp_path / "made", "--", DEBIAN, path)
    screen = terminal.read_until(r"(?s)job.py:5 in keep.*q: quit")
    pid = int(re.search(r"\(pid (\d+)\)", screen)[1])
    terminal.press("\x03")  # Ctrl-C is for the command
    said = terminal.read_until("next: whyrss report")
    assert re.search(LEAVE, said)
    assert terminal.end_status() in (130, -signal.SIGINT) and not is_running(pid)
    assert "KeyboardInterrupt" in (tmp_path / "made.log").read_text()


@pytest.mark.parametrize("way", ["q", "-n", "while it is shown"])
def test_signals_go_to_the_command(whyrss, tmp_path, way):
    """Also those that come after the screen was closed: a batch system sends one of them."""
    path = script(tmp_path, KEEPS.replace("sys.stdin.read()", "time.sleep(100)"), rest=1)
    count = ["-n", "1"] if way == "-n" else []
    terminal = Terminal(whyrss.program, "top", "-i", "0.2", *count, "-o", tmp_path / "made", "--", DEBIAN, path)
    goes_on = "the command goes on"
    screen = terminal.read_until(rf"(?s)\(pid \d+\).*{goes_on if way == '-n' else ''}")
    pid = int(re.search(r"\(pid (\d+)\)", screen)[1])
    if way == "q":
        terminal.press("q")
        terminal.read_until(goes_on)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.read_until("next: whyrss report")
    assert terminal.end_status() == -signal.SIGTERM and not is_running(pid)


def test_stopped_and_continued(whyrss, tmp_path):
    """Ctrl-Z stops all of it and gives the terminal back, also after the screen was closed; in the background nothing is
    drawn, and no process is stopped for that."""
    path = script(tmp_path, KEEPS.replace("sys.stdin.read()", "time.sleep(100)"), rest=1)
    terminal = Terminal("/bin/bash", "--norc", "--noprofile", "-i")
    terminal.press(f"PS1='ready> '; {whyrss.program} top -i 0.2 -o {tmp_path}/made -- {DEBIAN} {path}\n")
    pid = int(re.search(r"\(pid (\d+)\)", terminal.read_until(r"\(pid (\d+)\)"))[1])

    def state():
        return open(f"/proc/{pid}/stat", encoding="utf-8").read().rpartition(")")[2].split()[0]
    terminal.press("\x1a")
    assert re.search(LEAVE, terminal.read_until("(?s)" + LEAVE + r".*ready> "))
    wait_until(lambda: state() == "T", "it is stopped")
    terminal.press("bg\n")
    wait_until(lambda: state() == "S", "it goes on")
    time.sleep(1)
    assert state() == "S"
    terminal.press("echo in $((40 + 2))\n")
    assert not re.search(ENTER, terminal.read_until("in 42"))
    terminal.press("fg\n")
    terminal.read_until(ENTER)
    terminal.press("q")
    terminal.read_until("the command goes on")
    terminal.press("\x1a")
    terminal.read_until("ready> ")
    wait_until(lambda: state() == "T", "it is stopped")
    terminal.press("fg\n")
    wait_until(lambda: state() == "S", "it goes on")
    terminal.press("\x03")
    terminal.read_until("next: whyrss report")
    terminal.press("exit\n")
    terminal.end_status()


def test_a_screen_of_few_lines_has_all_parts(whyrss, tmp_path):
    path = tmp_path / "pool.py"
    path.write_text("""
import multiprocessing, time
def work(number):
    kept = [bytes([number]) * (1 << 20) for _ in range(12 + number)]  # each keeps
    time.sleep(100)
if __name__ == "__main__":
    for number in range(4):
        multiprocessing.get_context("fork").Process(target=work, args=(number,), daemon=True).start()
    time.sleep(100)
""")
    terminal = Terminal(whyrss.program, "top", "-i", "0.3", "-o", tmp_path / "made", "--", DEBIAN, path)
    screen = terminal.read_until(r"(?s)pool.py:4.*live heap[^\n]*pool.py:4.*q: quit").split("\x1b[H")[-1]
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", screen.split("q: quit")[0]).split("\r\n")
    assert len(lines) <= 24 and "Memory by process and cause" in screen and "Lines with the most growth" in screen, screen
    terminal.press("\x03")
    terminal.read_until("next: whyrss report")
    terminal.end_status()


def test_its_output_cannot_be_written(whyrss, holder, tmp_path):
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run([whyrss.program, "top", "-n", "1", str(holder.pid)], stdout=full, stderr=subprocess.PIPE,
                                text=True, check=False, timeout=PATIENCE_S)
        assert result.returncode == 1 and "cannot write to stdout: No space left" in result.stderr
        command = [whyrss.program, "top", "-o", tmp_path / "made", "--", "sh", "-c", "sleep 1; exit 3"]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
        assert result.returncode == 3 and "cannot write to stdout" in result.stderr
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as closed:
        command[3] = tmp_path / "made too"
        result = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE_S)
    assert result.returncode == 3 and "next: whyrss report" in result.stderr


def test_a_command_reads_what_is_no_terminal(whyrss, tmp_path):
    result = whyrss.run("top", "-o", tmp_path / "made", "--", "cat", input="data\n")
    assert result.returncode == 0 and (tmp_path / "made.log").read_text() == "data\n"
