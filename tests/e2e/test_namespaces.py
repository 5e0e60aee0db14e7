"""Processes that know themselves by other numbers than the collector does, or have another time."""
import subprocess

import pytest

from conftest import compiled
from expected.report_reading import bytes_by_line, cause
from frame_reader import REQUEST, snapshots

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


JAILED = """
import os, sys, time
os.chroot(sys.argv[1])
os.chdir("/")
if os.fork() == 0:
    kept = [bytearray(b"x" * (1 << 20)) for _ in range(32)]
    time.sleep(0.5)
    os._exit(0)
os.wait()
"""


def test_who_cannot_read_its_start_is_one_process(whyrss, recording, tmp_path):
    """A worker of a program that changed its root has no /proc: what it tells and what is read of it belong together."""
    jail = tmp_path / "jail"
    jail.mkdir()
    program = tmp_path / "jailed.py"
    program.write_text(JAILED)
    result = whyrss.record(recording, ["/usr/bin/python3", program, jail])
    if "PermissionError" in result.stderr:
        pytest.skip("needs root to chroot")
    report = whyrss.finished_report(recording)
    assert report["recording"]["lost"]["events"] == 0
    _, worker = report["processes"]
    assert worker["traced"] == "full"
    assert cause(worker, "heap_live")["rss"]["last"] >= 32 * MIB


def test_who_runs_another_program_without_proc_is_one_process(whyrss, recording):
    """It names itself otherwise from then on, and waited in vain for each of its last snapshots."""
    def without_proc(program):
        return ["unshare", "--mount", "bash", "-c", f"umount -l /proc && exec {program}"]
    if subprocess.run(without_proc("true"), capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root to unmount /proc")
    keep = "kept = [bytearray(b'x' * (1 << 20)) for _ in range(32)]"
    result, report = whyrss.record_whole(recording, without_proc(f'/usr/bin/python3 -c "{keep}"'))
    assert (result.returncode, result.stderr) == (0, "")
    assert report["recording"]["lost"]["events"] == 0
    main, umount = report["processes"]
    assert main["traced"] == "full"
    assert cause(main, "heap_live")["rss"]["last"] >= 32 * MIB
    assert REQUEST in [walk.trigger for walk in snapshots(recording, main["pid"])]
    assert snapshots(recording, umount["pid"])  # it cannot read its own size at its end: it asks for a walk


GROW = """
import os, time
kept = []
for _ in range(32):
    kept.append(bytearray(1 << 20))
    time.sleep(0.01)
print("kept", flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("ahead", ["100000", "-50"])
@pytest.mark.parametrize("changed_by", [[], ["--fork"]], ids=["exec", "fork"])
def test_the_clock_of_another_time_namespace(whyrss, recording, tmp_path, ahead, changed_by):
    enter = ["unshare", "--time", *changed_by, "--monotonic", ahead, "--boottime", ahead]
    if subprocess.run([*enter, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no time namespaces for users here")
    script = tmp_path / "grow.py"
    script.write_text(GROW)
    assert whyrss.record(recording, [*enter, "/usr/bin/python3", script]).stdout == "kept\n"
    report = whyrss.finished_report(recording)
    assert report["recording"]["lost"]["events"] == 0
    assert report["interval"]["to_s"] < 30
    (grown,) = [process for process in report["processes"] if process["rss"]["last"] > 32 * MIB]
    assert grown["traced"] == "full" and grown["python"]
    assert bytes_by_line(cause(grown, "heap_live")["sites"], "growth", ("grow.py", 5)) >= 30 * MIB
