"""demos/run itself: what it says when a demo fails, cannot run or does not exist, and what it leaves when it is stopped."""
import os
import pathlib
import signal
import subprocess

import pytest

from conftest import PATIENCE_S, ROOT, wait_until
from expected.scenario import can_limit_memory
from memory_groups import group_of

# Scenarios of their own: one as expected, one not, one that cannot be checked, one that lacks a package, one that stays.
FAMILY = '''
from .scenario import scenario

@scenario("plain", "nothing grows", "{program}")
def plain(account):
    account.expect(account.said("held") == 4096, "it said what it held")
    account.silent("heap-growth")

@scenario("astray", "it is expected to leak, and does not", "{program}")
def astray(account):
    account.says("heap-growth", account.main)

@scenario("unsaid", "it does not say what it should", "{program}")
def unsaid(account):
    account.expect(account.said("leaked") == 0, "it leaks")

@scenario("lacking", "it needs what nobody has", "{program}", needs=("module:no_such_module",))
def lacking(account):
    account.expect(False, "it cannot run")

@scenario("ending", "it ends as it should not", "{program}", "3")
def ending(account):
    pass

@scenario("staying", "it never ends", "{program}", "forever")
def staying(account):
    pass

@scenario("limited", "it never ends, and has a limit", "{program}", "forever", needs=("cgroup",),
          options=("--memory-max", "1GiB"))
def limited(account):
    pass
'''

PROGRAM = '''
import os, pathlib, sys, time
if "forever" in sys.argv:
    os.fork()
    with open(os.path.join(os.environ["DEMO_DIR"], "pids"), "a") as file:
        file.write("%d\\n" % os.getpid())
    while True:
        time.sleep(1)
print("held: 4096 bytes")
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
'''


@pytest.fixture
def demos(whyrss, tmp_path):
    """demos(NAME...) -> the words of demos/run with the scenarios above; recordings go to tmp_path/recordings."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "family.py").write_text(FAMILY.format(program=program))
    return lambda *names: [ROOT / "demos/run", "--whyrss", whyrss.program, "--more", tmp_path / "family.py",
                           "--folder", tmp_path / "recordings", *names]


def run(words):
    environment = {name: value for name, value in os.environ.items() if name != "WHYRSS_SKIPS"}  # those are of this test
    return subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S, check=False, env=environment)


def test_what_is_as_expected(demos):
    result = run(demos("plain"))
    assert (result.returncode, result.stderr) == (0, "")
    assert "1 as expected, 0 not, 0 skipped" in result.stdout
    assert "  ok   it said what it held\n" in result.stdout


@pytest.mark.parametrize("name,finding", [("astray", "  FAIL verdict heap-growth of pid "),
                                          ("unsaid", "  FAIL the account can be checked: "),
                                          ("ending", "  FAIL ended with 3 (expected 0)\n")])
def test_what_is_not_as_expected(demos, name, finding):
    result = run(demos("plain", name))
    assert result.returncode == 1
    assert finding in result.stdout
    assert f"1 as expected, 1 not: {name}, 0 skipped" in result.stdout


def test_a_missing_package_is_named_and_counted(demos):
    result = run(demos("lacking", "plain"))
    assert result.returncode == 0
    assert "== lacking: skipped, /usr/bin/python3 has no no_such_module" in result.stdout
    assert "1 as expected, 0 not, 1 skipped" in result.stdout


def test_brief_shows_the_report_of_what_failed(demos):
    result = run(demos("--brief", "plain", "ending"))
    assert result.returncode == 1
    plain, ending = result.stdout.split("== ending: ")
    title = "Memory by process and cause"
    assert title not in plain and "  ok   it said what it held\n" in plain
    assert title in ending and "  FAIL ended with 3 (expected 0)\n" in ending


@pytest.mark.parametrize("words,said", [(["nonesuch"], "nonesuch"), ([], "--list"), (["--whyrss", "/nowhere", "plain"], "/nowhere")])
def test_wrong_usage(demos, words, said):
    result = run(demos(*words))
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[-1]


def test_every_scenario_is_listed_once(demos):
    names = [line.split()[1] for line in run(demos("--list")).stdout.splitlines()]
    assert len(names) == len(set(names)) and {"plain", "mmap-scan", "loader-list-fork"} <= set(names)


def mentioning(text):
    """The processes whose command line has it, without this one."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdigit() and int(entry.name) != os.getpid() and text.encode() in words:
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("name", ["staying", "limited"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_only_its_recording(whyrss, demos, tmp_path, number, name):
    if name == "limited" and not can_limit_memory(whyrss.program):
        pytest.skip("record --memory-max does not work here (whyrss doctor says what it needs)")
    folder = tmp_path / "recordings"
    with subprocess.Popen(demos(name), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            def both_run():
                pids = [path.read_text().splitlines() for path in folder.glob(f"{name}-*/pids")]
                return pids[0] if pids and len(pids[0]) == 2 else None
            _, group = group_of(wait_until(both_run, "the demo's two processes run")[0])
            process.send_signal(number)
            process.send_signal(number)  # of an impatient person
            _, said = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert process.returncode == 128 + number
    assert "Traceback" not in said
    wait_until(lambda: mentioning(str(tmp_path)) == [], "all that it started has ended")
    assert [path.name for path in folder.iterdir()] == [f"{name}.whyrss"]
    if name == "limited":
        assert group.name.startswith("whyrss-")
        wait_until(lambda: not group.exists(), "the memory cgroup is removed")
