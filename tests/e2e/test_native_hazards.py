"""Native stacks that are switched, overflow, vanish or are interrupted: the program is unharmed, the stacks are right."""
import collections

import pytest

from conftest import ROOT
from hazards import compare
from pool_reader import images_of

PROGRAMS = ROOT / "tests/programs"
KEPT, HANDLED, DEPTH = 0xA000, 0xE000, 12
MOST_FRAMES = 64


@pytest.fixture
def program(compile_c):
    return compile_c((PROGRAMS / "stack_hazards.c").read_text(), "-ldl", "-lpthread", name="stack_hazards")


def descents(outcome):
    """Of every block of KEPT bytes: how often the most frequent address stands in its stack."""
    depths = collections.Counter()
    for process, event in outcome.blocks(KEPT):
        assert event.stack_id, "an event without a stack"
        native = process.stacks[event.stack_id].native
        assert len(native) <= MOST_FRAMES
        depths[max(collections.Counter(native).values())] += 1
    return depths


def test_switched_stacks(whyrss, tmp_path, program):
    """Coroutines, as greenlets do it, that move between threads and whose stacks are mapped anew."""
    outcome = compare(whyrss, tmp_path, [program, "coroutines"])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "2400 blocks, 24 ended\n")
    assert descents(outcome) == {DEPTH - 1: 2400}


def test_own_handlers(whyrss, tmp_path, program):
    """The program's own SIGTRAP, by raise and by int3, and SIGPROF every millisecond; its handlers map memory."""
    outcome = compare(whyrss, tmp_path, [program, "own_handlers"])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "500 traps\n")
    depths = descents(outcome)
    assert set(depths) == {DEPTH - 1} and depths[DEPTH - 1] >= 2000
    assert any(HANDLED <= event.size_bytes < HANDLED + 4096 and event.stack_id
               for process in images_of(outcome.pool) for event in process.events)


def test_jumps_out_of_handlers(whyrss, tmp_path, program):
    outcome = compare(whyrss, tmp_path, [program, "jumps"])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "jumped\n")
    assert descents(outcome) == {DEPTH - 1: 100}


def test_overflow(whyrss, tmp_path, program):
    outcome = compare(whyrss, tmp_path, [program, "overflow"])
    assert outcome.bare.returncode == -11
    assert len(list(outcome.blocks(KEPT))) > 100


def test_overflow_that_the_program_handles(whyrss, tmp_path, program):
    outcome = compare(whyrss, tmp_path, [program, "handled_overflow"])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (7, "overflowed\n")


def test_plugins_that_come_and_go(whyrss, tmp_path, program, compile_c):
    """Code at an address that other code had before, with frames of another size."""
    text = (PROGRAMS / "hazard_plugin.c").read_text()
    plugins = [compile_c(text, "-shared", "-fPIC", f"-DFRAME_BYTES={size}", name=f"plugin_{size}.so")
               for size in (32, 72, 408, 2000)]
    outcome = compare(whyrss, tmp_path, [program, "plugins", *plugins])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "8 of 8\n")
    assert descents(outcome) == {DEPTH - 1: 8 * 100}


def test_forks_beside_allocating_threads(whyrss, tmp_path, program):
    outcome = compare(whyrss, tmp_path, [program, "forks"])
    assert (outcome.bare.returncode, outcome.bare.stdout) == (0, "100 children\n")
    assert set(descents(outcome)) == {DEPTH - 1}
    assert len(outcome.report["processes"]) == 101
