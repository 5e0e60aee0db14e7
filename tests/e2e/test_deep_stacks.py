"""Stacks deeper than what is recorded of them: the innermost frames are there, in order, with their lines."""
import json

import pytest

from expected.report_reading import read_report
from interpreters import CASES

MAX_FRAMES = 256  # native ones; beyond them a part of the Python frames has no native frame that it could stand for
DEPTHS = (10, 124, 300, 1000, 5000)

DEEP = """
import asyncio, json, sys
sys.setrecursionlimit(100_000)
kept = []

def leaf(number):
    frame, frames = sys._getframe(0), []
    kept.append(bytearray((24 << 20) + (number << 12))); frames.append(["leaf", frame.f_lineno])
    while frame.f_back is not None:
        frame = frame.f_back
        frames.append([frame.f_code.co_name, frame.f_lineno])
    return frames

def recurse(depth, number):
    if depth % 2:
        return recurse(depth - 1, number)
    if depth:
        return recurse(depth - 1, number)
    return leaf(number)

def generate(depth, number):
    if depth:
        yield from generate(depth - 1, number)
    else:
        yield leaf(number)

async def coroutine(depth, number):
    if depth:
        return await coroutine(depth - 1, number)
    return leaf(number)

def step(depth, number):
    try:
        coroutine(depth, number).send(None)
    except StopIteration as end:
        return end.value

WAYS = {"recursion": recurse, "generators": lambda depth, number: next(generate(depth, number)), "coroutines": step}
stacks = []
for depth in map(int, sys.argv[1:]):
    for way, run in WAYS.items():
        number = len(stacks)
        try:
            stacks.append([way, depth, run(depth, number)])
        except RecursionError:
            stacks.append([way, depth, None])
print(json.dumps(stacks))
"""


def python_frames(site):
    return [[frame["function"].rpartition(".")[2], frame["line"]] for frame in site["stack"] if frame["kind"] == "python"]


@pytest.mark.parametrize("python", CASES)
def test_deep_stacks_keep_their_order(whyrss, recording, tmp_path, python):
    script = tmp_path / "deep.py"
    script.write_text(DEEP)
    command = [str(python), str(script), *map(str, DEPTHS)]
    result = whyrss.record(recording, ["sh", "-c", 'ulimit -s 65536; exec "$@"', "sh", *command])
    assert result.returncode == 0, result.stderr
    report = read_report(whyrss.run("report", recording, "--format", "json", "--top", "100").stdout)
    sites = [python_frames(site) for process in report["processes"] for cause in process["causes"] for site in cause["sites"]]
    compared = 0
    for way, depth, stack in json.loads(result.stdout):
        if stack is None:
            continue  # this version does not go so deep
        assert any(site == stack[:len(site)] and len(site) >= min(len(stack), MAX_FRAMES) for site in sites), \
            (way, depth, stack[:3], [site[:3] for site in sites if site][:20])
        compared += 1
    assert compared >= 3 * 3
