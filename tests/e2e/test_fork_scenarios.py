"""What multiprocessing's start methods cost for data in several storages: copied by reading, shared, built anew.

The truth comes from the workers themselves: the physical pages that they have instead of inherited ones, where the
kernel tells them, else their page faults while they read.
"""
import functools
import os

import pytest

from expected.report_reading import assert_conserved, bytes_by_line, cause, lines_of, touched_bytes, verdicts
from fork_runs import (HERE, MIB, PAGE, Run, assert_close, assert_copied, copied_truth, error_of, grown, line_of,
                       main_of, process_of)
from fork_scenarios_import import ROWS
from fork_scenarios_work import BUFFER_BYTES, LIST_BUFFERS, LIST_ITEMS, WORKERS
from interpreters import CASES, DEBIAN

WORK, IMPORT = "fork_scenarios_work.py", "fork_scenarios_import.py"
METHODS = ["fork", "spawn", "forkserver", "preload"]
SENT = METHODS[1:]  # those by which a worker gets its data pickled
ITEM_BYTES = 160  # of a bytes object of 127 characters in pymalloc
LIST_BYTES = LIST_ITEMS * ITEM_BYTES + LIST_BUFFERS * MIB
TABLE_BYTES = ROWS * (ITEM_BYTES + 9)  # with the list, which has room for an eighth more
LITTLE = 1 * MIB  # what a process copies and allocates by the way, in one phase
PAGES_GIVEN_BACK = 512 * 1024  # copied, and not there any more at the end
EXACT = 0.01      # of what is counted in pages
ARENAS = 0.05     # of what stands under the line that made an arena of up to 1 MiB grow
MOST_ERRORS = 4   # standard errors of what stands under a line


def each(methods):
    """Every method with every CPython; forkserver by itself, which differs from preload in the import only, with Debian's."""
    return pytest.mark.parametrize("python,method", [
        pytest.param(*case.values, method, id=f"{case.id}-{method}", marks=case.marks) for method in methods
        for case in CASES if method != "forkserver" or case.values == (DEBIAN,)])


def storage_of(line):
    return line_of(WORK, line)


@pytest.fixture(scope="module")
def recorded(whyrss, tmp_path_factory):
    """recorded(PYTHON, METHOD) -> the recorded run, made once."""
    return functools.cache(lambda python, method: Run(whyrss, tmp_path_factory.mktemp(method), [
        python, HERE / WORK, "LOG", method, "list", "shared_memory", "import"]))


def readers(run, storage):
    """(what it said, its process in the phase, its process in the whole) of each worker."""
    said = run.of(storage=storage)
    assert len(said) == WORKERS
    phase = run.phase(storage)
    assert_conserved(phase)
    return [(entry, process_of(phase, entry["pid"]), process_of(run.report, entry["pid"])) for entry in said]


def is_unpickled(site):
    """Whether it was made while the arguments of a spawned process were read."""
    frame = next((frame for frame in site["stack"] if frame["kind"] == "python"), None)
    return frame is not None and (os.path.basename(frame["file"]), frame["function"]) == ("spawn.py", "_main")


def assert_nothing_copied(process):
    assert process["cow"]["copied"] <= LITTLE
    assert grown(process, "fork_cow") <= LITTLE


@each(METHODS)
def test_every_process_is_reported_and_conserved(recorded, python, method):
    run = recorded(python, method)
    assert_conserved(run.report)
    assert run.report["recording"]["lost"]["events"] == 0
    born = {"fork": "fork", "spawn": "exec", "forkserver": "fork", "preload": "fork"}[method]
    parents = set()
    for pid in {entry["pid"] for entry in run.said}:
        worker = process_of(run.report, pid)
        assert (worker["traced"], worker["born"]) == ("full", born)
        parents.add(worker["parent"])
    (parent,) = parents
    if method in ("fork", "spawn"):
        assert parent == main_of(run.report)["pid"]
    else:
        assert process_of(run.report, parent)["parent"] == main_of(run.report)["pid"]


@pytest.mark.parametrize("python", CASES)
def test_reading_a_list_after_fork_copies_its_objects(recorded, python):
    run = recorded(python, "fork")
    copied = []
    for said, worker, _ in readers(run, "list"):
        truth = copied_truth(said)
        assert truth > LITTLE  # a page that the others have copied before is reused: how many, the program counts
        copied.append(worker["cow"]["copied"])
        assert_copied(worker, truth)
        assert_close(grown(worker, "fork_cow"), worker["cow"]["copied"], EXACT, PAGES_GIVEN_BACK)
        assert_close(-grown(worker, "fork_shared"), worker["cow"]["copied"], 2 * EXACT)
        # RSS does not show it.
        assert abs(worker["rss"]["last"] - worker["rss"]["first"]) <= LITTLE
        # The insides of large objects stay shared.
        buffers = bytes_by_line(cause(worker, "fork_shared")["sites"], "resident", storage_of("builds buffers"))
        assert_close(buffers, LIST_BUFFERS * MIB, EXACT, LIST_BUFFERS * PAGE)
        made = bytes_by_line(worker["cow"]["sites"], "copied", storage_of("builds list"), "allocated_at")
        assert_close(made, min(truth, LIST_ITEMS * ITEM_BYTES), 2 * ARENAS)
        read = bytes_by_line(worker["cow"]["sites"], "copied", storage_of("reads list"), "written_at")
        assert read >= 0.9 * truth
    (verdict,) = verdicts(run.report, "fork-cow-refcount")
    assert verdict["severity"] == "warning"
    assert {worker["pid"] for worker in verdict["evidence"]["workers"]} == {entry["pid"] for entry in run.said}
    assert verdict["bytes"] >= sum(copied)
    name, line = storage_of("builds list")
    assert f"{name}:{line}" in verdict["headline"]


@each(SENT)
def test_a_list_that_is_sent_is_built_anew(recorded, python, method):
    run = recorded(python, method)
    for _, worker, whole in readers(run, "list"):
        assert_nothing_copied(worker)
        live = cause(whole, "heap_live")
        assert LIST_BYTES <= live["rss"]["peak"]
        unpickled = [site for site in live["sites"] if is_unpickled(site)]
        # With the list, which has room for an eighth more.
        assert_close(sum(site["resident"] for site in unpickled), LIST_BYTES + 9 * LIST_ITEMS, 2 * ARENAS)
    assert verdicts(run.report, "fork-cow-refcount") == []


@each(METHODS)
def test_shared_memory_is_shared(recorded, python, method):
    run = recorded(python, method)
    line = storage_of("maps shared_memory") if method == "fork" else None
    for said, worker, _ in readers(run, "shared_memory"):
        assert_nothing_copied(worker)
        assert said["faults"] * PAGE < BUFFER_BYTES / 4  # the kernel maps several at once
        shared = cause(worker, "shared_memory")
        assert_close(shared["growth"]["rss"], BUFFER_BYTES, EXACT)
        assert shared["growth"]["uss"] == 0
        site = max(shared["sites"], key=lambda site: site["growth"])
        assert touched_bytes(site, storage_of("reads shared_memory")) >= 0.9 * BUFFER_BYTES
        assert site["mapping"].startswith("/dev/shm/psm_")
        assert line is None or line in lines_of(site["stack"])
        assert any(name == "shared_memory.py" for name, _ in lines_of(site["stack"]))
        assert abs(grown(worker, "heap_live")) <= LITTLE


@each(METHODS)
def test_an_import_is_shared_where_it_was_preloaded(recorded, python, method):
    run = recorded(python, method)
    for _, worker, whole in readers(run, "import"):
        live, builds = cause(whole, "heap_live")["sites"], line_of(IMPORT, "builds import")
        built = bytes_by_line(live, "resident", builds)
        error = error_of(site for site in live if builds in lines_of(site["stack"]))
        inherited = bytes_by_line(cause(whole, "fork_shared")["sites"], "resident", builds)
        if method == "preload":
            assert grown(worker, "heap_live") <= LITTLE
            assert built <= LITTLE  # beside what the import left of the last arena
            assert_close(inherited, TABLE_BYTES, ARENAS, LITTLE)
        else:
            assert_close(grown(worker, "heap_live"), TABLE_BYTES, ARENAS, LITTLE)
            assert_close(built, TABLE_BYTES, 2 * ARENAS, MOST_ERRORS * error)
            assert inherited == 0
    found = verdicts(run.report, "per-process-import")
    if method == "preload":
        assert found == []
        return
    (verdict,) = found
    assert WORKERS * ROWS * ITEM_BYTES * 0.9 <= verdict["bytes"] <= WORKERS * (ROWS * ITEM_BYTES + 12 * MIB)
    assert len(verdict["evidence"]["workers"]) == WORKERS
    assert "fork_scenarios_import" in verdict["headline"]
    assert "%s:%d" % storage_of("reads import") in verdict["headline"]
    assert ("before the workers are forked" in verdict["advice"]) == (method == "fork")
