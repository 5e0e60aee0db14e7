"""Walks that follow a process cost what has changed, and find all that a full walk finds; the report has the cost."""
import json
import os
import subprocess

import pytest

import frame_reader
from conftest import manifest_of, unwrapped
from figure_off import assert_figure, assert_near
from expected.scenario import can_limit_memory

MIB = 1 << 20
GROWTH, LIMIT = 1, 11  # WalkTrigger
REST_NS = 300_000_000  # memory is at rest when the last walk is so long ago
SLACK = 512 * 1024    # what an interpreter does by the way

GROW = """
import time
kept = []
while True:
    kept.append(bytearray(b"x") * (1 << 20))
    time.sleep(0.005)
"""

# Moves memory in different ways, rests until the collector has walked it, and asks for a snapshot then.
STEPS = r"""
import ctypes, mmap, os, time, whyrss
kept = {}
def small(): kept["small"] = [b"%d" % i * 10 for i in range(300_000)]
def large(): kept["large"] = [bytearray(b"x") * (4 << 20) for _ in range(20)]
def halve(): kept["small"] = kept["small"][::2]
def grow(): kept["large"] += [bytearray(b"x") * (1 << 20) for _ in range(10)]
def swap(): kept["large"][5:10], kept["more"] = [], [bytearray(b"x") * (2 << 20) for _ in range(10)]
def drop(): kept["large"] = []
def share(): kept["shared"] = mmap.mmap(-1, 16 << 20); kept["shared"].write(b"x" * (16 << 20))
for step in (small, large, halve, grow, swap, share, drop):
    step()
    time.sleep(0.8)
    whyrss.snapshot()
    time.sleep(0.05)
"""


def causes_at(whyrss, recording, walk, started_ns):
    """{cause: resident bytes} of the main process as that walk found it."""
    at_s = (walk.end_ns - started_ns) / 1e9 + 0.001
    result = whyrss.run("report", recording, "--format", "json", "--to", f"{at_s:.6f}")
    assert result.returncode == 0, result.stderr
    process = json.loads(result.stdout)["processes"][0]
    return {cause["cause"]: cause["rss"]["last"] for cause in process["causes"]}


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_cheap_and_full_walks_find_the_same(whyrss, recording, mode):
    environment = {**os.environ, "PYTHONPATH": str(whyrss.shim.parent / "python")}
    result = whyrss.record(recording, ["/usr/bin/python3", "-c", STEPS], "--mode", mode, env=environment)
    assert result.returncode == 0, result.stderr
    report = whyrss.report(recording)
    started_ns = manifest_of(recording)["started_ns"]
    walks = [one for one in frame_reader.snapshots(recording, report["processes"][0]["pid"])
             if isinstance(one, frame_reader.Walk)]
    pairs = [(before, after) for before, after in zip(walks, walks[1:])
             if after.trigger == frame_reader.REQUEST and after.begin_ns - before.begin_ns > REST_NS]
    assert_figure(len(pairs) >= 4, "too few steps came to rest: on a busy machine?", len(pairs))
    for cheap, full in pairs:
        reported, truth = (causes_at(whyrss, recording, walk, started_ns) for walk in (cheap, full))
        for cause in reported.keys() | truth.keys():
            if cause != "whyrss":
                assert_near(reported.get(cause, 0), truth.get(cause, 0), SLACK, cause, reported, truth)


# Two children that inherit 64 MiB: one rests, the other grows, and then writes to what it has inherited.
FAMILY = r"""
import mmap, os, time
shared = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE)
shared.write(b"x" * len(shared))
rests = os.fork()
if rests == 0:
    time.sleep(60)
grows = os.fork()
if grows == 0:
    time.sleep(0.5)
    own = mmap.mmap(-1, 300 << 20, mmap.MAP_PRIVATE)
    for _ in range(300):
        own.write(b"x" * (1 << 20))
        time.sleep(0.01)
    time.sleep(0.5)
    for at in range(0, len(shared), 4096):
        shared[at] = 1
    time.sleep(1)
    os._exit(0)
os.waitpid(grows, 0)
os.kill(rests, 9)
os.waitpid(rests, 0)
print(rests, grows)
"""


def test_of_a_family_those_that_move_are_walked(whyrss, recording):
    result = whyrss.record(recording, ["/usr/bin/python3", "-c", FAMILY])
    assert result.returncode == 0, result.stderr
    rests, grows = map(int, result.stdout.split())
    growth_walks = {pid: sum(isinstance(one, frame_reader.Walk) and one.trigger == GROWTH
                             for one in frame_reader.snapshots(recording, pid)) for pid in (rests, grows)}
    assert_figure(growth_walks[grows] >= 5, growth_walks)
    assert_figure(growth_walks[rests] <= growth_walks[grows] / 2, "but while it copies", growth_walks)
    copied = {process["pid"]: process["cow"]["copied"] for process in whyrss.report(recording)["processes"]
              if process["pid"] in (rests, grows)}
    assert_near(copied[grows], 64 * MIB, 2 * MIB)
    assert_near(copied[rests], 0, 2 * MIB)


def test_what_the_collector_took_is_reported(whyrss, recording):
    assert whyrss.record(recording, ["/bin/sleep", "0.3"], "--overhead", "0.5").returncode == 0
    report = whyrss.report(recording)
    collector = report["recording"]["collector"]
    assert 0 < collector["cpu_s"] < 5
    assert collector["share"] == pytest.approx(collector["cpu_s"] / report["recording"]["duration_s"])
    assert collector["overhead_percent"] == 0.5
    assert "(--overhead 0.5" in unwrapped(whyrss.run("report", recording).stdout)


def test_overhead_of_a_job_that_records_itself(whyrss, recording):
    environment = whyrss.env_only(recording, WHYRSS_OPTS="overhead=7")
    subprocess.run(["/bin/sleep", "0.1"], env=environment, check=True)
    assert whyrss.finished_report(recording)["recording"]["collector"]["overhead_percent"] == 7


def test_a_process_near_its_limit_is_walked_until_it_is_killed(whyrss, recording):
    if not can_limit_memory(whyrss.program):
        pytest.skip("record --memory-max does not work here (whyrss doctor says what it needs)")
    result = whyrss.record(recording, ["/usr/bin/python3", "-c", GROW], "--memory-max", "200M")
    assert result.returncode == -9
    report = whyrss.report(recording)
    process = report["processes"][0]
    walks = [one for one in frame_reader.snapshots(recording, process["pid"]) if isinstance(one, frame_reader.Walk)]
    assert_figure(sum(walk.trigger == LIMIT for walk in walks) >= 3, [walk.trigger for walk in walks])
    held = sum(count for _, runs in walks[-1].vmas for bits, count in runs if bits & frame_reader.PRESENT) * 4096
    assert_figure(held > 180 * MIB, "5 ms a MiB: it was walked 0.1 s before", held)
