"""What becomes of memory that a fork made shared: the parent writes, a child ends, it is read in several ways."""
import json

import pytest

import conftest
from expected.report_reading import assert_conserved, bytes_by_line, cause, lines_of, touched_bytes, verdicts
from fork_events_work import (BUFFER_BYTES, FLOATS, ITEM_BYTES, ITEMS, LARGE_BYTES, PART_BYTES, PARTS, RECORDS, SMALL_BLOCKS,
                              SMALL_BYTES, WRITTEN_BYTES)
from fork_runs import (HERE, MIB, PAGE, Run, assert_close, assert_copied, copied_truth, grown, has_module, line_of,
                       process_of)
from interpreters import CASES, DEBIAN, version_of

WORK = "fork_events_work.py"
LITTLE = 1 * MIB  # what a process copies and allocates by the way, in one phase
EXACT = 0.01      # of what is counted in pages


@pytest.fixture
def run(whyrss, tmp_path):
    """run(SCENARIO, OPTION..., python=...) -> the recorded run."""
    return lambda scenario, *options, python=DEBIAN: Run(whyrss, tmp_path, [python, HERE / WORK, "LOG", scenario], *options)


def process_in(run, phase, pid):
    """A process in a phase."""
    report = run.phase(phase)
    assert_conserved(report)
    return process_of(report, pid)


def assert_reused(process, said):
    """Written without a copy, which only write tracking tells."""
    assert_close(process["cow"]["reused"], said["tracked"] * PAGE, EXACT, LITTLE)


def test_what_the_parent_writes_is_its_copy(run):
    found = run("parent_writes")
    (parent,), (child,) = found.of(who="parent"), found.of(who="child", step="child_writes")
    assert parent["faults"] * PAGE >= WRITTEN_BYTES

    writing = process_in(found, "parent writes", parent["pid"])
    assert_copied(writing, parent["faults"] * PAGE)
    assert_close(bytes_by_line(writing["cow"]["sites"], "copied", line_of(WORK, "builds buffer"), "allocated_at"),
                 WRITTEN_BYTES, EXACT)
    assert grown(writing, "heap_live") <= LITTLE  # it stays what it was
    assert_close(cause(writing, "heap_live")["growth"]["uss"], WRITTEN_BYTES, 0.05)
    assert_close(bytes_by_line(writing["cow"]["sites"], "copied", line_of(WORK, "writes buffer"), "written_at"),
                 WRITTEN_BYTES, 0.1)
    waiting = process_in(found, "parent writes", child["pid"])
    assert waiting["cow"]["copied"] <= LITTLE and abs(grown(waiting, "fork_shared")) <= LITTLE
    assert_close(cause(waiting, "fork_shared")["growth"]["uss"], WRITTEN_BYTES, 0.05)  # its own, and not copied
    assert_close(waiting["cow"]["copied_by_relatives"], WRITTEN_BYTES, EXACT, LITTLE)

    # The same pages, once they are the child's alone: a fault each, and no copy.
    assert child["faults"] * PAGE >= WRITTEN_BYTES
    if child["copied"] is not None:
        assert copied_truth(child) <= LITTLE
    again = process_in(found, "child writes", child["pid"])
    assert again["cow"]["copied"] <= LITTLE and grown(again, "fork_cow") <= LITTLE
    assert_reused(again, *found.of(step="about to write"))
    assert verdicts(found.report, "fork-cow-refcount") == []


def test_what_a_child_leaves_is_no_copy(run):
    found = run("sibling_ends")
    (parent,) = found.of(who="parent")
    ending = process_in(found, "child ends", parent["pid"])
    assert ending["cow"]["copied"] <= LITTLE
    assert cause(ending, "heap_live")["growth"]["uss"] >= BUFFER_BYTES
    assert ending["uss"]["last"] - ending["uss"]["first"] >= BUFFER_BYTES
    assert abs(ending["rss"]["last"] - ending["rss"]["first"]) <= LITTLE
    # Each write is a fault, and none a copy.
    assert parent["faults"] * PAGE >= WRITTEN_BYTES
    writing = process_in(found, "parent writes", parent["pid"])
    assert writing["cow"]["copied"] <= LITTLE
    assert_reused(writing, parent)
    # Only a later walk of the parent shows that the child has left its pages, and not copied them.
    both = process_of(found.phases("child ends", "parent writes"), parent["pid"])
    assert both["cow"]["left_by_relatives"] >= BUFFER_BYTES


# Which ways of reading write to the floats of a dictionary: json does up to 3.11, and from 3.14 on again (measured).
WRITES = {"by_index": lambda _: False, "by_pickle": lambda minor: minor >= 10, "by_json": lambda minor: minor <= 11 or minor >= 14,
          "by_walk": lambda _: True}


@pytest.mark.parametrize("python", CASES)
def test_what_reading_copies_is_a_matter_of_the_version(run, python):
    found = run("ways_to_read", python=python)
    floats = RECORDS * FLOATS * 32
    for way, writes in WRITES.items():
        (said,) = found.of(step=way)
        worker = process_in(found, way, said["pid"])
        truth = copied_truth(said)
        assert_copied(worker, truth, 32 * PAGE)
        if writes(version_of(python)):
            assert floats * 0.95 <= truth <= floats * 1.3, way
            assert_close(bytes_by_line(worker["cow"]["sites"], "copied", line_of(WORK, "builds records"), "allocated_at"),
                         truth, 0.2)
            assert_close(bytes_by_line(worker["cow"]["sites"], "copied", line_of(WORK, f"does {way}"), "written_at"), truth, 0.2)
        else:
            assert truth <= floats * 0.25, way
    (verdict,) = verdicts(found.report, "fork-cow-refcount")
    writers = {found.of(step=way)[0]["pid"] for way, writes in WRITES.items() if writes(version_of(python))}
    assert {worker["pid"] for worker in verdict["evidence"]["workers"]} == writers
    assert verdict["severity"] == "warning" and "%s:%d" % line_of(WORK, "builds records") in verdict["headline"]


@pytest.mark.parametrize("python", CASES)
def test_large_blocks_are_written_and_objects_read(run, python):
    found = run("written_blocks", python=python)
    steps = {"write_large": (LARGE_BYTES, "large", "writes"), "write_parts": (PARTS * PART_BYTES, "parts", "writes"),
             "read_items": (ITEMS * ITEM_BYTES, "items", "reads")}
    for step, (wanted, what, does) in steps.items():
        (said,) = found.of(step=step)
        worker = process_in(found, step, said["pid"])
        truth = copied_truth(said)
        assert_close(truth, wanted, 0.1)
        assert_copied(worker, truth, 32 * PAGE)
        made = bytes_by_line(worker["cow"]["sites"], "copied", line_of(WORK, f"builds {what}"), "allocated_at")
        assert_close(made, wanted, 0.1)
        assert bytes_by_line(worker["cow"]["sites"], "copied", line_of(WORK, f"{does} {what}"), "written_at") >= 0.9 * wanted
        inside = sum(site["copied"] for site in worker["cow"]["sites"] if site["in_large_block"])
        assert inside <= LITTLE if step == "read_items" else inside >= 0.98 * wanted

    def pid(step):
        return found.of(step=step)[0]["pid"]
    (written,) = verdicts(found.report, "fork-cow-write")
    assert {entry["pid"] for entry in written["evidence"]["processes"]} == {pid("write_large"), pid("write_parts")}
    assert_close(written["bytes"], LARGE_BYTES + PARTS * PART_BYTES, 0.02)
    for marker in ("builds large", "writes large"):
        assert "%s:%d" % line_of(WORK, marker) in written["headline"]
    (read,) = verdicts(found.report, "fork-cow-refcount")
    assert {entry["pid"] for entry in read["evidence"]["workers"]} == {pid("read_items")}
    for marker in ("builds items", "reads items"):
        assert "%s:%d" % line_of(WORK, marker) in read["headline"]


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_who_made_small_blocks_of_the_heap(whyrss, tmp_path, mode):
    if not has_module(DEBIAN, "numpy"):
        pytest.skip(f"{DEBIAN} has no numpy")
    found = Run(whyrss, tmp_path, [DEBIAN, HERE / WORK, "LOG", "small_blocks"], "--mode", mode)
    wanted = SMALL_BLOCKS * SMALL_BYTES
    pids = {}
    for step, what, verdict in (("read_small", "builds small items", "fork-cow-refcount"),
                                ("write_small", "builds small arrays", "fork-cow-write")):
        (said,) = found.of(step=step)
        pids[verdict] = said["pid"]
        worker = process_in(found, step, said["pid"])
        truth = copied_truth(said)
        assert wanted <= truth <= 1.2 * wanted
        assert_copied(worker, truth, 128 * PAGE)  # some 80 pages before and after it counts, exact mode
        made = bytes_by_line(worker["cow"]["sites"], "copied", line_of(WORK, what), "allocated_at")
        assert made >= 0.9 * wanted, (step, made)
    (read,), (written,) = verdicts(found.report, "fork-cow-refcount"), verdicts(found.report, "fork-cow-write")
    assert {entry["pid"] for entry in read["evidence"]["workers"]} == {pids["fork-cow-refcount"]}
    assert {entry["pid"] for entry in written["evidence"]["processes"]} == {pids["fork-cow-write"]}
    assert "%s:%d" % line_of(WORK, "builds small items") in read["headline"]
    assert "%s:%d" % line_of(WORK, "builds small arrays") in written["headline"]


def test_a_mapped_file_is_page_cache_in_every_process(run):
    # The kernel maps up to 1 MiB of a large folio per fault: of a child's 24 faults a sample of each seventh has none in 2.5 %.
    found = run("mapped_file", "--touch", "1")
    assert_conserved(found.report)
    readers = found.of(who="child")
    assert len(readers) == 2
    for said in readers:
        worker = process_of(found.report, said["pid"])
        (site,) = [site for site in cause(worker, "file_cache")["sites"] if (site["mapping"] or "").endswith("log.data")]
        assert site["resident"] == BUFFER_BYTES
        assert line_of(WORK, "maps file") in lines_of(site["stack"])
        assert touched_bytes(site, line_of(WORK, "reads file")) >= 0.9 * BUFFER_BYTES
        assert grown(worker, "fork_cow") <= 2 * MIB
    assert all(verdict["severity"] == "ok" for verdict in found.report["verdicts"] if verdict["pid"] in
               {said["pid"] for said in readers})


# A worker that uses nothing of it, one that reads texts, one that does both; each says how many pages it copied.
COLLECTOR = """
import gc, json, os, resource, sys
rows = [(i, [i]) for i in range(300_000)]  # makes rows
texts = ["a text of some length, number %d" % i for i in range(300_000)]
def collect():
    gc.collect()  # collects
def read():
    for text in texts: pass  # reads
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
if sys.argv[2] == "freeze": gc.freeze()
gc.disable()
pid = os.fork()
if pid == 0:
    counts = [faults()]
    for step in sys.argv[1].split("+"):
        {"collect": collect, "read": read}[step]()
        counts.append(faults())
    print(json.dumps([after - before for before, after in zip(counts, counts[1:])]), flush=True)
    os._exit(0)
os.waitpid(pid, 0)
"""


@pytest.fixture
def collected(whyrss, tmp_path):
    """collected(python, steps) -> (bytes each step copied, the report); with gc.freeze() before the fork, if asked for."""
    script = tmp_path / "job.py"
    script.write_text(COLLECTOR)

    def run_job(python, steps, freeze="no"):
        result, report = whyrss.record_whole(tmp_path / f"{steps}-{freeze}.whyrss", [python, script, steps, freeze])
        assert result.returncode == 0, result.stderr
        return [count * PAGE for count in json.loads(result.stdout)], report
    return run_job


def place_in_job(marker):
    return f"job.py:{conftest.line_of(COLLECTOR, marker)}"


@pytest.mark.parametrize("python", CASES)
def test_the_collector_copies_and_freeze_helps(collected, python):
    (copied,), report = collected(python, "collect")
    assert copied >= 300_000 * 100
    (verdict,) = verdicts(report, "fork-cow-collector")
    assert_close(verdict["bytes"], copied, 0.1)
    assert f"fork COW by the garbage collector at {place_in_job('# collects')}; objects made at " \
           f"{place_in_job('# makes rows')}" in verdict["headline"]
    assert "gc.freeze()" in verdict["advice"] and verdicts(report, "fork-cow-refcount") == []

    (frozen,), report = collected(python, "collect", "freeze")
    assert frozen <= copied / 10 and verdicts(report, "fork-cow-collector") == []


@pytest.mark.parametrize("python", CASES)
def test_copies_of_the_collector_and_of_reading_are_two_verdicts(collected, python):
    (by_collector, by_reading), report = collected(python, "collect+read")
    for slug, copied, marker in (("collector", by_collector, "# collects"), ("refcount", by_reading, "# reads")):
        (verdict,) = verdicts(report, f"fork-cow-{slug}")
        assert_close(verdict["bytes"], copied, 0.2)  # shares of what was copied, by samples
        assert place_in_job(marker) in verdict["headline"]
    named = sum(verdict["bytes"] for slug in ("collector", "refcount") for verdict in verdicts(report, f"fork-cow-{slug}"))
    assert_close(named, by_collector + by_reading, 0.05)
    (reading,), report = collected(python, "read")
    assert verdicts(report, "fork-cow-collector") == []
    assert_close(verdicts(report, "fork-cow-refcount")[0]["bytes"], reading, 0.1)
