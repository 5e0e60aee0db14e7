"""Options of report and env on a real recording: parts, formats, limits; figures agree everywhere."""
import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios

import jsonschema
import pytest

from conftest import PATIENCE_S, ROOT, unwrapped
from expected.report_reading import assert_conserved, read_report

MIB = 1 << 20
SCRIPT = """
import mmap, os, sys, tempfile
kept = [str(number) * 3 for number in range(400_000)]
with tempfile.TemporaryFile() as file:
    file.truncate(24 << 20)
    text = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    total = sum(text[at] for at in range(0, len(text), 4096))
pid = os.fork()
if pid == 0:
    size = sum(len(item) for item in kept)
    os._exit(3 if size == 0 else 0)
os.waitpid(pid, 0)
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def schema():
    schema = json.loads((ROOT / "analyzer" / "report" / "report.2.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return schema


@pytest.fixture(scope="module")
def job(whyrss, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    (folder / "job.py").write_text(SCRIPT)
    recording = folder / "recording.whyrss"
    result = whyrss.record(recording, ["/usr/bin/python3", folder / "job.py", "5"])
    assert result.returncode == 5, result.stderr
    whyrss.finished_report(recording)
    return recording


def validated(report, schema):
    errors = [f"{list(error.path)}: {error.message}" for error in jsonschema.Draft7Validator(schema).iter_errors(report)]
    assert errors == []
    return report


def test_python_job(whyrss, job, schema):
    report = validated(json.loads(whyrss.report_text(job)), schema)
    assert report["recording"]["exit"]["code"] == 5
    assert len(report["processes"]) == 2


def test_parts_of_a_report(whyrss, job, schema):
    """--from and --to choose what first and last mean; sums hold in each part."""
    whole = whyrss.report(job)
    pid = whole["processes"][1]["pid"]
    middle, duration = whole["interval"]["to_s"] / 2, whole["recording"]["duration_s"]

    def part(*arguments):
        result = whyrss.run("report", job, "--format", "json", *arguments)
        assert result.returncode == 0, result.stderr
        report = validated(json.loads(result.stdout), schema)
        assert_conserved(report)
        return report
    for arguments in (["--from", middle], ["--to", middle], ["--top", 1]):
        part(*arguments)
    assert [process["pid"] for process in part("--pid", pid)["processes"]] == [pid]
    for start, end in ((0, duration), (0, duration / 2), (duration / 2, duration), (duration / 3, duration / 3)):
        assert part("--from", start, "--to", end)["interval"]["from_s"] == pytest.approx(start, abs=1e-3)
    assert whyrss.run("report", job, "--from", 5, "--to", 4).returncode == 2


def test_text_says_the_same_figures(whyrss, job, tmp_path):
    report = whyrss.report(job)
    to_file = whyrss.run("report", job, "--format", "json", "-o", tmp_path / "report.json")
    assert (to_file.returncode, to_file.stdout) == (0, "")
    assert read_report((tmp_path / "report.json").read_text()) == report
    result = whyrss.run("report", job)
    assert (result.returncode, result.stderr) == (0, "")
    text = result.stdout
    assert "\033" not in text  # no terminal, no colours
    for process in report["processes"]:
        assert str(process["pid"]) in text
    for verdict in report["verdicts"]:
        assert verdict["headline"] in unwrapped(text)
    totals = re.findall(r"= RSS +(-?[0-9.]+) +(-?[0-9.]+) +(-?[0-9.]+)", text)
    wanted = [(process["rss"]["last"], process["rss"]["last"] - process["rss"]["first"], process["rss"]["peak"])
              for process in report["processes"] if process["causes"]]
    assert totals == [tuple(f"{size / MIB:.1f}" for size in row) for row in wanted]


def test_markdown_and_output_file(whyrss, job, tmp_path):
    out = tmp_path / "report.md"
    result = whyrss.run("report", job, "--format", "markdown", "-o", out)
    assert (result.returncode, result.stdout) == (0, "")
    for verdict in whyrss.report(job)["verdicts"]:
        assert verdict["severity"] in out.read_text()
    refused = whyrss.run("report", job, "-o", tmp_path / "no" / "such" / "place")
    assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1


def test_fail_if(whyrss, job):
    walked = [process["rss"] for process in whyrss.report(job)["processes"] if process["causes"]]
    grown = sum(rss["last"] - rss["first"] for rss in walked)
    assert whyrss.run("report", job, "--fail-if", f"rss>{grown}").returncode == 0
    held = whyrss.run("report", job, "--fail-if", f"rss>={grown}")
    assert held.returncode == 3 and "rss" in held.stderr and held.stdout
    assert whyrss.run("report", job, "--fail-if", "heap_live>100GiB").returncode == 0
    assert whyrss.run("report", job, "--fail-if", "heap_live>1MiB").returncode == 3
    assert whyrss.run("report", job, "--fail-if", "bananas>1").returncode == 2
    assert whyrss.run("report", job, "--from", "no such phase").returncode == 2
    assert whyrss.run("report", job, "--pid", 1).returncode == 2


def test_env_lines_record(whyrss, tmp_path, schema):
    """The printed lines, run by a shell, make a job record itself."""
    recording = tmp_path / "it's here" / "recording"
    recording.parent.mkdir()
    lines = whyrss.run("env", "-o", recording)
    assert lines.returncode == 0, lines.stderr
    result = subprocess.run(["/bin/sh", "-c", lines.stdout + "/usr/bin/python3 -c 'print(6 * 7)'"], capture_output=True,
                            text=True, timeout=PATIENCE_S, check=False, env={**os.environ})
    assert (result.returncode, result.stdout) == (0, "42\n"), result.stderr
    whyrss.wait_until_complete(recording)
    validated(json.loads(whyrss.report_text(recording)), schema)


def lines_on_terminal(program, words, columns):
    """What a command prints on a terminal of that width, without colours."""
    ours, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown = []
    with subprocess.Popen([program, *map(str, words)], stdin=terminal, stdout=terminal, stderr=terminal,
                          env={**os.environ, "TERM": "dumb"}) as process:
        os.close(terminal)
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while text := os.read(ours, 65536):
                shown.append(text)
    os.close(ours)
    assert process.returncode == 0
    return b"".join(shown).decode().splitlines()


@pytest.fixture(scope="module")
def long_names(whyrss, tmp_path_factory):
    """A recording with names of 200 characters in its files, functions and command line."""
    folder = tmp_path_factory.mktemp("long") / ("d" * 200)
    folder.mkdir()
    name = "n" * 200
    (folder / f"{name}.py").write_text(f"def {name}():\n    return [bytes(1000) for _ in range(40_000)]\nkept = {name}()\n")
    recording = folder / "recording.whyrss"
    assert whyrss.record(recording, ["/usr/bin/python3", folder / f"{name}.py", name]).returncode == 0
    whyrss.finished_report(recording)
    return recording


def test_no_line_is_wider_than_the_terminal(whyrss, long_names, tmp_path):
    text = whyrss.run("report", long_names, "--stacks").stdout
    assert max(map(len, text.splitlines())) <= 100 and "…" in text
    for columns, most in ((40, 60), (80, 80), (150, 150)):
        assert max(map(len, lines_on_terminal(whyrss.program, ["report", long_names, "--stacks"], columns))) <= most
    for columns, most in ((80, 80), (250, 250)):
        recorded = lines_on_terminal(whyrss.program, ["record", "-o", tmp_path / f"{columns}", "--", "/usr/bin/python3",
                                                      long_names.parent / f"{'n' * 200}.py"], columns)
        assert max(len(line) for line in recorded if not line.startswith("whyrss: next: ")) <= most


def test_nor_is_one_of_other_verbs(whyrss, long_names, tmp_path):
    part = tmp_path / "job.part"
    assert whyrss.run("reduce", long_names, "-o", part).returncode == 0
    for words in (["diff", long_names, long_names], ["report", part], ["diff", part, part], ["doctor"], ["record", "--help"],
                  ["compare-allocators", "--repeat", "1", "-a", "glibc", "--", "/usr/bin/python3", "-c", "pass", "n" * 200]):
        for columns in (60, 80):
            found = [line.replace("\x1b[K", "") for line in lines_on_terminal(whyrss.program, words, columns)]
            wide = [line for line in found if len(line) > columns and not re.search("\r|  whyrss |libwhyrss.so|/sys/", line)]
            # but progress, which is overwritten, and what is to be copied: an example, a path
            assert not wide, (words, wide)
        found = whyrss.run(*words, env={**os.environ, "COLUMNS": "70"}).stdout.splitlines()
        assert 60 < max(len(line) for line in found if not re.search("  whyrss |libwhyrss.so|/sys/", line)) <= 70


HIDDEN = "\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\u0085\u009b"


def test_what_nobody_sees_is_escaped(whyrss, tmp_path):
    """In a program's name, a function, a file that is mapped, a command line and a phase."""
    script = tmp_path / f"a{HIDDEN}b.py"
    data = tmp_path / f"data{HIDDEN}.bin"
    data.write_bytes(bytes(24 * MIB))
    script.write_text(f"""import mmap, sys, whyrss
with whyrss.phase({HIDDEN!r}):
    kept = [bytes(1000) for _ in range(20_000)]
    with open(sys.argv[1], "rb") as data:
        file = mmap.mmap(data.fileno(), 0, prot=mmap.PROT_READ)
    total = sum(file[at] for at in range(0, len(file), 4096))
    whyrss.mark({HIDDEN!r})
""", encoding="utf-8")
    recording = tmp_path / "recording.whyrss"
    result = whyrss.run("record", "-o", recording, "--", "/usr/bin/python3", script, data,
                        env={**os.environ, "PYTHONPATH": str(whyrss.build / "lib/python")})
    assert result.returncode == 0, result.stderr
    whyrss.finished_report(recording)
    shown = [result.stderr]
    for words in (["report"], ["report", "--format", "markdown"], ["report", "--by", "touch", "--stacks"],
                  ["report", "--format", "github"], ["export", "--format", "csv"], ["export", "--format", "collapsed"]):
        shown.append(whyrss.run(words[0], recording, *words[1:]).stdout)
        assert shown[-1] or "github" in words
    for text in shown:
        assert not set(HIDDEN) & set(text), ascii(text)
