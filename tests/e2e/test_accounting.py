"""What other tools show of a program that stands still, beside what the report says that they show."""
import json
import os
import subprocess

import pytest

from conftest import wait_until
from figure_off import assert_figure, assert_near
from fork_runs import HERE, MIB
from interpreters import DEBIAN

PROGRAM = '''"""A parent with a mapped file and a large buffer, and two forked workers with something of their own."""
import mmap
import os
import sys
import time

import whyrss
from fork_truth import take_snapshot

MIB = 1 << 20
ready, go = sys.argv[1:]


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def make(path):
    open(path, "w").close()


with open(ready + ".data", "wb") as file:
    file.write(b"x" * 32 * MIB)
    os.fsync(file.fileno())
with open(ready + ".data", "rb") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
buffer = bytearray(b"x") * 40 * MIB
shared = mmap.mmap(-1, 24 * MIB)
for at in range(0, 24 * MIB, 4096):
    shared[at] = 1
workers = []
for number in range(2):
    pid = os.fork()
    if pid == 0:
        total = sum(data[at] for at in range(0, len(data), 4096)) + sum(shared[at] for at in range(0, len(shared), 4096))
        own = bytearray(b"y") * (8 + 8 * number) * MIB
        make(f"{ready}.{number}")
        wait_for(go + ".look")
        take_snapshot()
        make(f"{ready}.{number}.looked")
        wait_for(go)
        os._exit(0)
    workers.append(pid)
total = sum(data[at] for at in range(0, len(data), 4096))
for number in range(2):
    wait_for(f"{ready}.{number}")
with whyrss.phase("still"):
    make(go + ".look")
    take_snapshot()
    for number in range(2):
        wait_for(f"{ready}.{number}.looked")
    take_snapshot()
    print(os.getpid(), *workers, flush=True)
    wait_for(go + ".read")
make(go)
for pid in workers:
    os.waitpid(pid, 0)
'''
NAMES = ("rss", "shared", "uss", "pss")
LITTLE = 4 * MIB  # libraries are shared with whatever else begins and ends on the machine meanwhile


def ps(pids):
    """pid -> (RSS, %MEM) as ps prints them."""
    output = subprocess.run(["ps", "-o", "pid=,rss=,%mem=", "-p", ",".join(map(str, pids))], capture_output=True, text=True,
                            check=True).stdout
    rows = (line.split() for line in output.splitlines())
    return {int(pid): (int(rss) * 1024, float(percent)) for pid, rss, percent in rows}


def smem_of(pid):
    """USS and PSS as smem sums them, of smaps."""
    sums = {}
    with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
        for line in rollup.read().splitlines()[1:]:
            name, value = line.split(":")
            sums[name] = int(value.split()[0]) * 1024
    return {"uss": sums["Private_Clean"] + sums["Private_Dirty"], "pss": sums["Pss"], "file": sums["Pss_File"],
            "shmem": sums["Pss_Shmem"], "anonymous": sums["Pss_Anon"]}


def psutil_of(pids):
    """pid -> rss, shared, uss, pss as Debian's psutil tells them; None where it is missing."""
    code = ("import json, psutil, sys\n"
            "print(json.dumps({pid: {name: getattr(psutil.Process(int(pid)).memory_full_info(), name)\n"
            "                        for name in ('rss', 'shared', 'uss', 'pss')} for pid in sys.argv[1:]}))")
    result = subprocess.run([DEBIAN, "-c", code, *map(str, pids)], capture_output=True, text=True, check=False)
    return {int(pid): entry for pid, entry in json.loads(result.stdout).items()} if result.returncode == 0 else None


@pytest.fixture(scope="module")
def seen(whyrss, tmp_path_factory):
    """What the tools said while the program stood still, and the report of that time."""
    folder = tmp_path_factory.mktemp("accounting")
    script, ready, go, recording = (folder / name for name in ("program.py", "ready", "go", "still.whyrss"))
    script.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONPATH": f"{whyrss.shim.parent / 'python'}:{HERE}"}
    command = [str(whyrss.program), "record", "-q", "-o", str(recording), "--", DEBIAN, script, ready, go]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            pids = [int(word) for word in process.stdout.readline().split()]
            tools = {"ps": ps(pids), "smem": {pid: smem_of(pid) for pid in pids}, "psutil": psutil_of(pids)}
        finally:
            (folder / "go.read").touch()
            wait_until(lambda: process.poll() is not None, "the program has ended")
    assert process.returncode == 0
    assert len(pids) == 3
    whyrss.finished_report(recording)
    result = {form: whyrss.run("report", recording, "--format", form, "--from", "still", "--to", "still").stdout
              for form in ("json", "text", "markdown")}
    report = json.loads(result["json"])
    return tools, report["family"]["accounting"], result, pids


def close(found, wanted, what):
    assert_near(found, wanted, max(0.01 * wanted, LITTLE), what)


def test_each_process_as_ps_and_smem_show_it(seen):
    tools, accounting, _, pids = seen
    entries = {entry["pid"]: entry for entry in accounting["at_peak"]["processes"]}
    assert set(entries) == set(pids)
    for pid, entry in entries.items():
        rss, percent = tools["ps"][pid]
        close(entry["rss"], rss, "rss")
        assert_near(entry["memory_percent"], percent, 0.1)
        close(entry["uss"], tools["smem"][pid]["uss"], "uss")
        close(entry["pss"], tools["smem"][pid]["pss"], "pss")


def test_each_process_as_psutil_shows_it(seen):
    tools, accounting, _, _ = seen
    if tools["psutil"] is None:
        pytest.skip(f"{DEBIAN} has no psutil")
    for entry in accounting["at_peak"]["processes"]:
        for name in NAMES:
            close(entry[name], tools["psutil"][entry["pid"]][name], name)


def test_the_sums_of_schedulers(seen):
    tools, accounting, _, _ = seen
    peak = accounting["at_peak"]
    close(peak["rss_sum"], sum(rss for rss, _ in tools["ps"].values()), "rss")
    for name, figure in (("pss_sum", "pss"), ("uss_sum", "uss"), ("pss_file", "file"), ("pss_shared_memory", "shmem"),
                         ("pss_anonymous", "anonymous")):
        close(peak[name], sum(entry[figure] for entry in tools["smem"].values()), name)
    assert peak["rss_less_shared"] == peak["rss_sum"] - peak["shared_sum"]
    # What is there once, and what that counts as in three processes.
    assert_figure(3 * (32 + 40 + 24) * MIB <= peak["rss_sum"] - 24 * MIB, peak)
    assert_figure(peak["pss_sum"] <= (32 + 40 + 24 + 24) * MIB + 60 * MIB, peak)
    assert_figure(24 * MIB <= peak["pss_shared_memory"] <= 26 * MIB, peak)
    assert_figure(32 * MIB <= peak["pss_file"] <= 60 * MIB, peak)


def test_text_and_markdown_hold_the_same_figures(seen):
    _, accounting, formats, pids = seen
    peak = accounting["at_peak"]
    for form in ("text", "markdown"):
        text = formats[form]
        title = text.index("What other tools show")
        for name in ("rss_sum", "shared_sum", "rss_less_shared", "uss_sum", "pss_sum", "pss_file", "pss_shared_memory",
                     "pss_anonymous"):
            assert f"{peak[name] / MIB:.1f}" in text[title:], (form, name)
        for entry in peak["processes"]:
            for name in NAMES:
                assert f"{entry[name] / MIB:.1f}" in text[title:], (form, entry["pid"], name)
    assert all(str(pid) in formats["text"] for pid in pids)


PLATEAU = '''"""A child that rests, then a parent that grows at once, rests too, and gives most back before it ends."""
import mmap
import os
import sys
import time

MIB = 1 << 20
ready, go = sys.argv[1:]


def hold(mib):
    memory = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for at in range(0, mib * MIB, 4096):
        memory[at] = 1
    return memory


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.05)


worker = os.fork()
if worker == 0:
    own = hold(48)
    open(ready, "w").close()
    wait_for(go)
    os._exit(0)
wait_for(ready)
small, large = hold(16), hold(120)
time.sleep(3)
print(os.getpid(), worker, flush=True)
wait_for(go)
os.waitpid(worker, 0)
large.close()
time.sleep(1)
'''


def test_a_plateau_is_reported_as_it_was(whyrss, tmp_path):
    script, ready, go, recording = (tmp_path / name for name in ("plateau.py", "ready", "go", "plateau.whyrss"))
    script.write_text(PLATEAU)
    command = [str(whyrss.program), "record", "-q", "-o", str(recording), "--", DEBIAN, script, ready, go]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            pids = [int(word) for word in process.stdout.readline().split()]
            truth = {pid: smem_of(pid) for pid in pids}
        finally:
            go.touch()
            wait_until(lambda: process.poll() is not None, "the program has ended")
    report = whyrss.finished_report(recording)
    family, peak = report["family"], report["family"]["accounting"]["at_peak"]
    assert {entry["pid"] for entry in peak["processes"]} == set(pids)
    for entry in peak["processes"]:
        close(entry["pss"], truth[entry["pid"]]["pss"], "pss")
        assert entry["uss"] <= entry["pss"] <= entry["rss"]
    close(peak["pss_sum"], sum(entry["pss"] for entry in truth.values()), "sum")
    close(family["pss"]["peak"], peak["pss_sum"], "peak")
    assert family["pss"]["peak"] >= peak["pss_sum"]
    assert family["accounting"]["pss_sum"] >= peak["pss_sum"]
    assert family["accounting"]["rss_sum"] >= peak["rss_sum"]
    main = next(entry for entry in report["processes"] if entry["pid"] == pids[0])
    assert_figure(main["pss"]["last"] <= 40 * MIB, main["pss"])
