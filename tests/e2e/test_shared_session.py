"""WHYRSS_OUTPUT with %j: commands of one shell or job on one host make one recording."""
import json
import os
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, wait_until

GROW = "import sys, time; kept = bytearray(int(sys.argv[1]) << 20); time.sleep(float(sys.argv[2]))"


def recorded(whyrss, folder, **more):
    """What a command of a shell is run with; the shell itself is not recorded."""
    variables = {"LD_PRELOAD": whyrss.shim, "WHYRSS_OUTPUT": f"{folder}/job-%j-%h", **more}
    return " ".join(["env", *(f"{name}='{value}'" for name, value in variables.items()), "/usr/bin/python3", "-c", f"'{GROW}'"])


def shell(script):
    """A shell in a session of its own, as of a terminal or a batch job."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PBS_", "LSB_", "JOB_ID"))}
    return subprocess.Popen(["/bin/bash", "-c", script], start_new_session=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True)


def finished(whyrss, folder, script):
    """The reports of all recordings that a shell's commands made; the shell's pid."""
    process = shell(script)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stderr) == (0, "")
    return [whyrss.finished_report(path) for path in sorted(folder.iterdir())], process.pid


def sizes(report):
    """RSS of its processes in units of 10 MiB: what each was started to hold; the interpreter has 10 ± 3 MiB of its own."""
    return sorted(round(process["rss"]["peak"] / (10 << 20)) - 1 for process in report["processes"])


def test_one_after_the_other(whyrss, tmp_path):
    command = recorded(whyrss, tmp_path)
    reports, pid = finished(whyrss, tmp_path, f"{command} 20 0.2; {command} 50 0.2; sleep 0.3; {command} 80 0.2; true")
    assert [path.name.startswith(f"job-{pid}-") for path in tmp_path.iterdir()] == [True]
    [report] = reports
    assert sizes(report) == [2, 5, 8]
    assert report["recording"]["lost"]["events"] == 0
    for process in report["processes"]:
        assert process["traced"] == "full"
        [live] = [cause for cause in process["causes"] if cause["cause"] == "heap_live"]
        assert any(frame["file"] == "<string>" for site in live["sites"][:1] for frame in site["stack"])


def test_many_at_once(whyrss, tmp_path):
    command = recorded(whyrss, tmp_path, SLURM_JOB_ID="77")
    script = f"for size in $(seq 12); do {command} $((size * 10)) 0.3 & done; wait; true"
    [report], _ = finished(whyrss, tmp_path, script)
    assert len(report["processes"]) == 12
    assert [path.name.startswith("job-77-") for path in tmp_path.iterdir()] == [True]
    assert sizes(report) == list(range(1, 13))


def test_two_jobs_are_two_recordings(whyrss, tmp_path):
    commands = [recorded(whyrss, tmp_path, SLURM_JOB_ID=job) for job in ("1", "2")]
    reports, _ = finished(whyrss, tmp_path, f"{commands[0]} 20 0.3 & {commands[1]} 20 0.3 & {commands[0]} 20 0.3; wait; true")
    assert sorted(len(report["processes"]) for report in reports) == [1, 2]


def test_without_the_token_each_has_its_own(whyrss, tmp_path):
    command = recorded(whyrss, tmp_path, WHYRSS_OUTPUT=f"{tmp_path}/job")
    reports, _ = finished(whyrss, tmp_path, f"{command} 20 0; {command} 20 0; true")
    assert [len(report["processes"]) for report in reports] == [1, 1]


def test_another_shell_of_the_job_goes_on(whyrss, tmp_path):
    """When the first shell has ended, so has its recording: the next one is beside it."""
    command = recorded(whyrss, tmp_path, SLURM_JOB_ID="5")
    [first], _ = finished(whyrss, tmp_path, f"{command} 20 0.1; true")
    reports, _ = finished(whyrss, tmp_path, f"{command} 50 0.1; {command} 80 0.1; true")
    assert sorted(len(report["processes"]) for report in reports) == [1, 2]
    assert sorted(sizes(report) for report in reports)[0] == sizes(first)


def test_a_killed_collector_is_not_waited_for(whyrss, tmp_path):
    command = recorded(whyrss, tmp_path, SLURM_JOB_ID="6")
    process = shell(f"{command} 20 0.1; read -r line; {command} 50 0.1; true")
    [recording] = wait_until(lambda: list(tmp_path.glob("job-6-*/manifest.json")), "a recording is made")
    collector = json.loads(recording.read_text())["collector"]["pid"]
    wait_until(lambda: whyrss.report(recording.parent)["processes"][0]["ended_s"], "the first command has ended")
    os.kill(collector, signal.SIGKILL)
    stdout, stderr = process.communicate("go on\n", timeout=PATIENCE_S)
    assert (process.returncode, stdout, stderr) == (0, "", "")
    second = recording.parent.with_name(recording.parent.name + ".1")
    assert len(whyrss.finished_report(second)["processes"]) == 1
    assert not whyrss.report(recording.parent)["recording"]["complete"]


@pytest.mark.parametrize("round_number", range(5))
def test_joining_while_it_ends(whyrss, tmp_path, round_number):
    """No shell is left that more is expected from, so the collector ends at once: all the same nothing is lost."""
    command = recorded(whyrss, tmp_path, SLURM_JOB_ID="8")
    script = f"for i in $(seq 15); do setsid {command} 20 0.0{round_number} & sleep 0.1$((i % 10)); done; wait; true"
    reports, _ = finished(whyrss, tmp_path, script)
    assert sum(len(report["processes"]) for report in reports) == 15
    assert all(report["recording"]["lost"]["events"] == 0 for report in reports)


def test_options_of_launchers_are_words_of_a_shell(whyrss, tmp_path):
    def words(*arguments):
        result = whyrss.run("env", *arguments, cwd=tmp_path)
        assert (result.returncode, result.stderr) == (0, "")
        printed = subprocess.run(["bash", "-c", f"printf '%s\\n' {result.stdout}"], capture_output=True, text=True, check=True)
        return printed.stdout.splitlines()

    library, prefix = whyrss.shim, whyrss.shim.parent.parent
    assert words("--for", "slurm") == [f"--export=ALL,LD_PRELOAD={library},WHYRSS_OUTPUT={tmp_path}/whyrss-%j-%h"]
    assert words("--for", "docker", "-o", "/out here/%j") == [
        "-v", f"{prefix}:{prefix}:ro", "-v", "/out here:/out here", "-e", f"LD_PRELOAD={library}",
        "-e", "WHYRSS_OUTPUT=/out here/%j"]
    result = whyrss.run("env", "--for", "slurm", "-o", "/a,b")
    assert result.returncode == 2 and "srun separates by commas" in result.stderr
