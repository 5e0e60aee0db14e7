"""demos/torch_dataloader.py: four workers of a DataLoader copy a list by reading it, and the report says which lines."""
import pytest

from conftest import ROOT, assert_conserved, cause
from fork_runs import has_module, lines_of, main_of, verdicts
from interpreters import DEBIAN

SCRIPT = ROOT / "demos" / "torch_dataloader.py"
RECORDS = 120_000
# What CPython needs in pymalloc for one: two texts, a list of four floats with its array, a dictionary.
RECORD_BYTES = 80 + 176 + 64 + 32 + 4 * 32 + 64
WORKERS = 4
ATTEMPTS = 3  # a process that leaves waits a moment for its last look: on a busy machine one may be missed


def lines_with(*texts):
    return {(SCRIPT.name, number) for number, line in enumerate(SCRIPT.read_text().splitlines(), 1)
            if any(text in line for text in texts)}


MADE = lines_with('"image": ', '"caption": ', '"box": ', "records.append(", "            })")


@pytest.fixture(scope="module")
def report(whyrss, tmp_path_factory):
    if not has_module(DEBIAN, "torch"):
        pytest.skip(f"{DEBIAN} has no torch: demos/setup --torch installs it")
    for attempt in range(ATTEMPTS):
        recording = tmp_path_factory.mktemp("torch") / f"{attempt}.whyrss"
        result = whyrss.record(recording, [DEBIAN, SCRIPT])
        assert result.returncode == 0, result.stderr
        assert "epoch 2: " in result.stdout
        finished = whyrss.finished_report(recording)
        if finished["recording"]["lost"]["snapshots"] == 0:
            return finished
    pytest.fail(f"{ATTEMPTS} recordings in a row missed a look")


def workers(report):
    return [process for process in report["processes"] if process["parent"] == main_of(report)["pid"]]


def test_every_process_is_conserved(report):
    assert_conserved(report)
    assert len(workers(report)) == WORKERS
    assert main_of(report)["rss"]["peak"] < 512 << 20
    assert report["family"]["pss"]["peak"] < 1 << 30


def test_each_worker_copied_the_list(report):
    for worker in workers(report):
        made = sum(site["copied"] for site in worker["cow"]["sites"] if MADE.intersection(lines_of(site["allocated_at"])[:1]))
        assert 0.75 * RECORDS * RECORD_BYTES <= made <= 1.25 * RECORDS * RECORD_BYTES
        assert cause(worker, "fork_cow")["rss"]["last"] >= made
        assert abs(worker["rss"]["last"] - worker["rss"]["peak"]) <= 16 << 20


def test_the_report_names_the_line_that_made_it(report):
    (verdict,) = verdicts(report, "fork-cow-refcount")
    assert {worker["pid"] for worker in verdict["evidence"]["workers"]} == {worker["pid"] for worker in workers(report)}
    assert any(f"{name}:{line}" in verdict["headline"] for name, line in MADE)
