"""Programs that forbid themselves system calls or the time stamp counter: they end as without us, and what could be
recorded is there."""
import itertools
import os
import pathlib

import pytest

import pool_reader
from conftest import run

STRICT = ("strict", "strict-by-syscall")
COUNTER = ("tsc", "tsc-by-syscall")
EVERYTHING = "heap,threads,map,fork,vfork,reads,signals"
CASES = [
    *itertools.product(STRICT, ["heap,heap"], ["raw", "_exit", "exit", "abort"]),
    *itertools.product(["filter-ssh"], ["heap", "map", "heap,map,reads"], ["return", "_exit"]),
    *itertools.product(["filter-service"], ["threads", "threads,fork", "vfork", "signals", EVERYTHING], ["return", "_exit"]),
    ("filter-service", "heap", "again"),
    *itertools.product(COUNTER, ["heap", "threads", EVERYTHING], ["return", "_exit"]),
]


@pytest.fixture(scope="module")
def program(whyrss):
    return pathlib.Path(os.environ.get("WHYRSS_BUILD", whyrss.program.parents[1])) / "tests/programs/restricted"


@pytest.fixture
def bare(program):
    def run_bare(*words):
        result = run(program, *words)
        if result.returncode == 3:
            pytest.skip("this machine lets nobody restrict himself so")
        return result
    return run_bare


@pytest.mark.parametrize("how, work, end", CASES)
def test_ends_as_without_us(whyrss, program, recording, bare, how, work, end):
    expected = bare(how, work, end)
    assert expected.stdout.count("sum") >= work.count(",") + 1
    for mode in ("sampled", "exact"):
        for start in ("record", "environment"):
            folder = recording.with_suffix(f".{mode}.{start}")
            if start == "record":
                result = whyrss.record(folder, [program, how, work, end], "--mode", mode)
            else:
                result = run(program, how, work, end, env=whyrss.env_only(folder, WHYRSS_OPTS=f"mode={mode}"))
            assert (result.returncode, result.stdout) == (expected.returncode, expected.stdout), (mode, start)
            # What the program runs next may not ask for what tracing needs.
            assert result.stderr == "" or (end == "again" and "a seccomp filter kills" in result.stderr)


@pytest.mark.parametrize("how, note", [("strict", "strict mode"), ("filter-ssh", "has installed a seccomp filter"),
                                       ("filter-service", "has installed a seccomp filter")])
def test_a_note_names_the_restriction(traced, program, bare, how, note):
    expected = bare(how, "heap", "raw")
    result, pool = traced([program, how, "heap", "raw"])
    assert (result.returncode, result.stdout) == (expected.returncode, expected.stdout)
    (process,) = pool_reader.read_pool(pool).values()
    assert sum(note in text for text in process.notes) == 1, process.notes


def test_events_go_on_after_a_filter(traced, program, bare):
    """Mappings that the program makes behind its filter are recorded, with their stacks."""
    bare("filter-service", "map", "return")
    _, pool = traced([program, "nothing", "map", "return"])
    (free,) = pool_reader.read_pool(pool).values()
    _, pool = traced([program, "filter-service", "map", "return"])
    (filtered,) = pool_reader.read_pool(pool).values()
    wanted, got = ([event for event in process.events if event.kind == pool_reader.MAP and event.origin == 0]
                   for process in (free, filtered))
    assert len(wanted) >= 50
    assert len(got) == len(wanted)
    assert all(event.stack_id != 0 for event in got)


def test_blocks_keep_their_order_without_the_counter(whyrss, program, tmp_path, bare):
    """Exact mode goes over to another clock in the middle of its leases: no block is given out twice, nor freed."""
    bare("tsc", "heap,threads", "return")
    found = {}
    for how in ("nothing", "tsc"):
        pool = tmp_path / how
        environment = {**os.environ, **pool_reader.make_pool(pool, 16384), "LD_PRELOAD": str(whyrss.shim),
                       "WHYRSS_OPTS": "mode=exact,touch=off"}
        assert run(program, how, "heap,threads", "return", env=environment).returncode == 8
        (events,) = pool_reader.compact_events(pool).values()
        found[how] = sum(kind == pool_reader.COMPACT_ALLOCATE for _, kind, *_ in events)
        live = set()
        for _, kind, address, *_ in events:
            if kind == pool_reader.COMPACT_ALLOCATE:
                assert address not in live
                live.add(address)
            else:
                live.discard(address)
    assert found["tsc"] == found["nothing"] > 100_000
