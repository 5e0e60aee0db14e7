"""Words that name no program and no recording: what whyrss says of a process, a recording, a misspelt verb."""
import os
import subprocess

import pytest


@pytest.fixture(scope="module")
def made(whyrss, tmp_path_factory):
    recording = tmp_path_factory.mktemp("made") / "a recording"
    assert whyrss.record(recording, ["true"]).returncode == 0
    return recording


def only_line(result, status):
    assert result.returncode == status, result.stderr
    line, = result.stderr.splitlines()
    return line


def test_a_living_process(whyrss, tmp_path):
    with subprocess.Popen(["sleep", "100"]) as process:
        try:
            for words in ([process.pid], ["record", "--", process.pid], ["attach", process.pid]):
                line = only_line(whyrss.run(*words, cwd=tmp_path), 127)
                assert "`whyrss record -- CMD`" in line and f"`whyrss prove {process.pid}`" in line and f"`whyrss top {process.pid}`" in line
            for words in (["report", process.pid], ["html", process.pid], ["export", process.pid, "--format", "csv"]):
                line = only_line(whyrss.run(*words, cwd=tmp_path), 1)
                assert f"{process.pid} is a process" in line and f"`whyrss prove {process.pid}`" in line and f"`whyrss top {process.pid}`" in line
            assert f"`whyrss prove {process.pid}`" in only_line(whyrss.run("-p", process.pid), 125)
        finally:
            process.kill()
    assert f"{process.pid} is no process that runs now" in only_line(whyrss.run(process.pid, cwd=tmp_path), 127)


def test_a_recording(whyrss, made):
    assert f"is a recording: whyrss report '{made}'" in only_line(whyrss.run(made), 126)
    assert "is a recording: whyrss report 'a recording'" in only_line(whyrss.run("a recording", cwd=made.parent), 127)


def test_a_misspelt_verb(whyrss, made, tmp_path):
    line = only_line(whyrss.run("reprot", made), 127)
    assert f"did you mean report? (whyrss report '{made}')" in line
    assert "did you mean" not in only_line(whyrss.run("record", "--", "reprot"), 127)
    assert "did you mean" not in only_line(whyrss.run("no-such-program"), 127)
    program = tmp_path / "reprot"
    program.write_text("#!/bin/sh\necho it ran\n")
    program.chmod(0o755)
    result = whyrss.run("-q", "-o", tmp_path / "recording", "reprot",
                        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"})
    assert result.returncode == 0 and result.stdout == "it ran\n", result.stderr


def test_a_verb_of_another_tool(whyrss, made, tmp_path):
    assert "(whyrss record python3 job.py 1)" in only_line(whyrss.run("run", "job.py", "1", cwd=tmp_path), 127)
    assert "(whyrss record ./server)" in only_line(whyrss.run("trace", "./server", cwd=tmp_path), 127)
    assert f"(whyrss html '{made}')" in only_line(whyrss.run("flamegraph", made), 127)
    assert f"(whyrss report '{made}')" in only_line(whyrss.run("stats", made), 127)


def test_next_command_can_be_typed(whyrss, tmp_path):
    recording = tmp_path / "what's new"
    result = whyrss.run("record", "-o", recording, "--", "true")
    typed = result.stderr.splitlines()[-1].removeprefix("whyrss: next: whyrss ")
    reported = subprocess.run(f"'{whyrss.program}' {typed}", shell=True, capture_output=True, text=True, check=False)
    assert reported.returncode == 0, reported.stderr


def test_a_wrong_time_is_shortened(whyrss, made):
    line = only_line(whyrss.run("report", made, "--from", "x" * 5000), 2)
    assert "--from xxx" in line and len(line) < 250
