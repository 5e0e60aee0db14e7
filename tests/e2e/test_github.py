"""whyrss report --format github: what the runner of GitHub Actions reads from real recordings."""
import json
import os
import re

from interpreters import DEBIAN

# What the runner decodes: https://github.com/actions/toolkit, packages/core/src/command.ts
COMMAND = re.compile(r"::(warning|notice) (?:file=([^,]*),line=(\d+),)?title=([^,:]*)::(.*)")

PROGRAM = """
import os, sys
kept = [bytes(1000) for _ in range(100000)]   # line 3
if os.fork() == 0:
    sum(map(len, kept))
    os._exit(0)
os.wait()
"""


def decoded(text):
    for code, letter in (("%2C", ","), ("%3A", ":"), ("%0A", "\n"), ("%0D", "\r"), ("%25", "%")):
        text = text.replace(code, letter)
    return text


def annotations(output):
    """(level, file, line, title, message) of each line; all have to be commands."""
    found = []
    for line in output.splitlines():
        match = COMMAND.fullmatch(line)
        assert match, line
        level, file, number, title, message = match.groups()
        found.append((level, file and decoded(file), number and int(number), decoded(title), decoded(message)))
    return found


def test_verdicts_stand_at_their_lines(whyrss, recording, tmp_path):
    folder = tmp_path / "checkout" / "src, 100%: odd"
    folder.mkdir(parents=True)
    script = folder / "job.py"
    script.write_text(PROGRAM)
    assert whyrss.record(recording, [DEBIAN, script]).returncode == 0
    verdicts = whyrss.finished_report(recording)["verdicts"]
    environment = {**os.environ, "GITHUB_WORKSPACE": str(tmp_path / "checkout")}
    result = whyrss.run("report", recording, "--format", "github", env=environment)
    assert (result.returncode, result.stderr) == (0, "")
    found = annotations(result.stdout)
    wanted = [verdict for verdict in verdicts if verdict["severity"] in ("warning", "problem", "info")]
    assert {title for *_, title, _ in found} <= {f"whyrss: {verdict['id']}" for verdict in wanted}
    for level, file, line, title, message in found:
        (verdict,) = [one for one in wanted if f"whyrss: {one['id']}" == title and one["headline"] in message]
        assert level == ("notice" if verdict["severity"] == "info" else "warning")
        assert verdict["why"] in message.splitlines() and verdict["advice"] in message.splitlines()
        if file is not None:
            assert (file, line) == ("src, 100%: odd/job.py", 3)
    assert any(title == "whyrss: heap-growth" and file for _, file, _, title, _ in found)
    levels = [level for level, *_ in found]
    assert levels == sorted(levels, reverse=True)  # warnings first

    outside = whyrss.run("report", recording, "--format", "github", env={**os.environ, "GITHUB_WORKSPACE": "/elsewhere"})
    assert str(script) in [file for _, file, *_ in annotations(outside.stdout)]
    failed = whyrss.run("report", recording, "--format", "github", "--fail-if", "heap_live>1MiB", env=environment)
    assert (failed.returncode, failed.stdout) == (3, result.stdout)
    written = whyrss.run("report", recording, "--format", "github", "-o", tmp_path / "file", env=environment)
    assert written.returncode == 0 and (tmp_path / "file").read_text() == result.stdout


def test_nothing_to_say_is_nothing(whyrss, recording):
    assert whyrss.record(recording, ["true"]).returncode == 0
    result = whyrss.run("report", recording, "--format", "github")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_names_of_cells_are_in_every_format(whyrss, recording, tmp_path):
    """code_names.json, as a notebook's kernel writes it."""
    script = tmp_path / "1662815981.py"
    script.write_text(PROGRAM)
    assert whyrss.record(recording, [DEBIAN, script]).returncode == 0
    (recording / "code_names.json").write_text(json.dumps({str(script): "In[3]\x1b[31m|::"}))
    for options in ("text", "json", "markdown", "github"):
        result = whyrss.run("report", recording, "--format", options)
        assert result.returncode == 0 and "In" in result.stdout and "1662815981.py:3" not in result.stdout
        assert "\x1b" not in result.stdout
    (recording / "code_names.json").write_text("{")
    result = whyrss.run("report", recording)
    assert result.returncode == 0 and "1662815981.py:3" in result.stdout and "code_names.json: is no JSON object" in result.stdout
