"""Each verdict on a real program that deserves it, and on the nearest one that does not."""
import pytest

from expected.report_reading import assert_conserved, cause, lines_of, verdicts
from fork_runs import HERE, MIB, Run, has_module, line_of
from interpreters import DEBIAN
from verdicts_work import (ARRAY_BYTES, CACHE_ROWS, FILE_BYTES, HUGE_BYTES, HUGE_PAGES, PAGE, SAW_ROWS, SHARED_BYTES,
                           WORKERS)

WORK = "verdicts_work.py"
LITTLE = 2 * MIB
ITEM_BYTES = 160  # of a row in pymalloc
needs_numpy = pytest.mark.skipif(not has_module(DEBIAN, "numpy"), reason=f"{DEBIAN} has no numpy")


@pytest.fixture(scope="module")
def runs(whyrss, tmp_path_factory):
    """runs(SCENARIO) -> the recorded run, made once."""
    made = {}

    def run(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            made[name] = Run(whyrss, folder, [DEBIAN, HERE / WORK, "LOG", folder, name])
            assert_conserved(made[name].report)
        return made[name]
    return run


def at(marker):
    return "%s:%d" % line_of(WORK, marker)


def only(report, name):
    (found,) = verdicts(report, name)
    return found


def file_report(run):
    report = run.until("work")
    if cause(report["processes"][0], "file_cache")["growth"]["rss"] < FILE_BYTES / 2:
        pytest.skip("the folder for temporary files lies on a tmpfs")
    return report


def test_pages_written_through_a_mapping_are_dirty(runs):
    run = runs("written_file")
    report = file_report(run)
    (said,) = (entry for entry in run.said if "dirty" in entry)
    if min(said["dirty"]) < FILE_BYTES // 2:
        pytest.skip(f"the kernel had written most of it back: {said['dirty']} bytes were dirty")
    found = only(report, "file-dirty-growth")
    assert min(said["dirty"]) - LITTLE <= found["bytes"] <= max(said["dirty"]) + LITTLE
    assert found["severity"] == "info"
    assert at("maps file") in found["headline"] and "data.bin" in found["headline"]


def test_a_private_mapping_copies_what_is_written(runs):
    """And one that is as the advice says, `written_file`, does not."""
    report = runs("copied_file").until("work")
    (found,) = [verdict for verdict in verdicts(report, "cause-growth") if verdict["evidence"]["cause"] == "file_cow"]
    assert FILE_BYTES <= found["bytes"] <= FILE_BYTES + LITTLE
    assert f"mapped at {at('maps copies')}" in found["headline"] and f"written at {at('writes copies')}" in found["headline"]
    assert "map it so that writes go to the file" in found["advice"] and "ACCESS_WRITE" in found["advice"]
    assert cause(file_report(runs("written_file"))["processes"][0], "file_cow")["growth"]["rss"] <= LITTLE


def test_clean_pages_are_no_dirty_ones(runs):
    report = file_report(runs("flushed_file"))
    assert verdicts(report, "file-dirty-growth") == []
    assert only(report, "file-cache-growth")["severity"] == "ok"


def test_shared_memory_counts_once(runs):
    run = runs("shared_memory")
    found = only(run.until("work"), "shared-memory-growth")
    main = run.report["processes"][0]["pid"]
    assert found["pid"] == main
    assert SHARED_BYTES <= found["bytes"] <= SHARED_BYTES + LITTLE
    assert at("maps segment") in found["headline"] and at("fills segment") in found["headline"]
    assert f"mapped by {WORKERS + 1} processes" in found["headline"]
    assert found["evidence"]["lifetime"] == "named"
    readers = {entry["pid"]: entry for entry in found["evidence"]["processes"] if entry["pid"] != main}
    assert set(readers) == {entry["worker"] for entry in run.said if "worker" in entry}
    for reader in readers.values():
        assert reader["resident_bytes"] >= SHARED_BYTES
        assert at("reads pages") in reader["touched_at"][0]["line"]


def test_shared_memory_that_a_worker_filled(runs):
    run = runs("shared_anonymous")
    found = only(run.until("work"), "shared-memory-growth")
    (worker,) = (entry["worker"] for entry in run.said if entry.get("number") == 1)
    assert found["pid"] == worker
    assert SHARED_BYTES <= found["bytes"] <= SHARED_BYTES + LITTLE
    assert found["evidence"]["lifetime"] == "anonymous"
    assert at("maps anonymous") in found["headline"] and at("fills anonymous") in found["headline"]


def test_own_memory_is_neither_shared_nor_counted_twice(runs):
    report = runs("own_buffers").until("work")
    assert verdicts(report, "shared-memory-growth") == []
    assert verdicts(report, "rss-double-counted") == []
    assert verdicts(report, "fork-cow-write") == []


@needs_numpy
def test_writing_to_inherited_memory_is_a_copy(runs):
    run = runs("copied")
    found = only(run.until("work"), "fork-cow-write")
    assert {entry["pid"] for entry in found["evidence"]["processes"]} == {entry["worker"] for entry in run.said if "worker" in entry}
    assert WORKERS * ARRAY_BYTES * 0.98 <= found["bytes"] <= WORKERS * (ARRAY_BYTES + LITTLE)
    assert at("makes array") in found["headline"] and at("writes copy") in found["headline"]
    assert verdicts(run.report, "fork-cow-refcount") == []


def huge_run(runs, name):
    run = runs(name)
    (said,) = (entry for entry in run.said if "huge" in entry)
    if said["huge"] < HUGE_PAGES * HUGE_BYTES:
        pytest.skip(f"this machine gives no huge pages: {said['huge']} bytes are on such")
    return run, said["huge"]


def test_huge_pages_that_are_hardly_used(runs):
    run, huge = huge_run(runs, "sparse_huge")
    found = only(run.until("work"), "huge-page-padding")
    used = huge // HUGE_BYTES * PAGE
    assert abs(found["bytes"] - (huge - used)) <= 0.1 * huge  # every n-th page was read
    assert at("maps huge") in found["headline"]
    site = next(site for site in cause(run.until("work")["processes"][0], "anonymous")["sites"]
                if line_of(WORK, "maps huge") in lines_of(site["stack"]))
    assert site["huge_bytes"] == found["bytes"]


@pytest.mark.parametrize("name", ["full_huge", "zeroed_huge"])
def test_huge_pages_that_are_used(runs, name):
    run, _ = huge_run(runs, name)
    assert verdicts(run.until("work"), "huge-page-padding") == []


def test_small_pages_are_not_padded(runs):
    assert verdicts(runs("sparse_small").until("work"), "huge-page-padding") == []


def test_a_full_cache_is_flat(runs):
    report = runs("full_cache").until("work")
    found = only(report, "heap-growth")
    assert found["severity"] == "info"
    assert found["evidence"]["trend"]["kind"] == "flat", found
    assert "flat since" in found["headline"]
    assert "It has not grown since" in found["advice"]
    assert found["bytes"] >= CACHE_ROWS * ITEM_BYTES


def test_rows_that_come_and_go_are_no_leak(runs):
    found = only(runs("sawtooth").until("work"), "heap-growth")
    assert found["severity"] == "info"
    assert found["evidence"]["trend"] == {"kind": "waves", "falls": 4}
    assert "comes and goes" in found["headline"]
    assert found["bytes"] >= SAW_ROWS * ITEM_BYTES


def test_rows_that_are_gone_have_not_grown(runs):
    assert verdicts(runs("dropped_rows").until("work"), "heap-growth") == []


def test_a_program_that_does_nothing_is_steady(whyrss, recording):
    result = whyrss.record(recording, [DEBIAN, "-c", "pass"])
    assert result.returncode == 0, result.stderr
    (found,) = whyrss.finished_report(recording)["verdicts"]
    assert (found["id"], found["severity"]) == ("steady", "ok")


# Each wave is larger than the one before, and all come from the line that also makes what is kept.
GROWING_WAVES = """
import time
kept = []
def parse(rows):
    return [b"p" * (2000 + row % 64) for row in range(rows)]
def wave():
    rows = parse(30_000)
    time.sleep(0.12)
begin = time.monotonic()
while time.monotonic() - begin < 11:
    wave()
    kept.append(parse(300))
    time.sleep(0.1)
"""


def test_what_grows_below_waves_of_its_line_still_grows(whyrss, recording, tmp_path):
    script = tmp_path / "waves.py"
    script.write_text(GROWING_WAVES)
    assert whyrss.record(recording, [DEBIAN, script]).returncode == 0
    found = only(whyrss.report(recording), "heap-growth")
    assert found["evidence"]["trend"]["kind"] == "growing", found
    assert 10 * MIB < found["bytes"] < 40 * MIB, found["headline"]
    assert "as it ended" not in found["headline"]
