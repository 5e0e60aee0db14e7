"""The README's first answer, at a quarter of its size: every figure against what the program did."""
import os
import sys

import pytest

from conftest import ROOT
from expected.report_reading import assert_conserved, cause

FILE_MIB = 128
MIB = 1 << 20
FILE_BYTES = FILE_MIB * MIB
KEPT_LINES = (FILE_MIB * 8192 + 5) // 6
KEPT_BYTES = KEPT_LINES * 176  # a bytes object of 129 characters in pymalloc's 176-byte class
SCRIPT = ROOT / "demos" / "quickstart.py"


def line_of(text):
    """The number of the only line of the script that contains `text`."""
    hits = [number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if text in line]
    assert len(hits) == 1, text
    return hits[0]


@pytest.fixture(scope="module")
def report(whyrss, tmp_path_factory):
    result, report = whyrss.record_whole(tmp_path_factory.mktemp("quickstart") / "quickstart.whyrss",
                                         ["/usr/bin/python3", SCRIPT], env={**os.environ, "QUICKSTART_MIB": str(FILE_MIB)})
    assert result.returncode == 0, result.stderr
    assert "lines kept of 128 MiB" in result.stdout
    return report


def main_process(report):
    return report["processes"][0]


def workers(report):
    return [process for process in report["processes"] if process["parent"] == main_process(report)["pid"]]


def blamed_lines(sites, function):
    """file:line pairs of the frames of `function` in the sites' stacks."""
    return {(os.path.basename(frame["file"]), frame["line"]) for site in sites for frame in site["stack"]
            if frame["kind"] == "python" and frame["function"] == function}


def test_recording_is_whole(report):
    assert report["recording"]["complete"]
    assert report["recording"]["exit"]["code"] == 0
    assert report["recording"]["lost"]["events"] == 0
    assert len(workers(report)) == 2
    assert all(process["traced"] == "full" for process in report["processes"])
    assert [process["born"] for process in workers(report)] == ["fork", "fork"]
    assert main_process(report)["python"] == "%d.%d.%d" % sys.version_info[:3]


def test_causes_sum_to_rss(report):
    assert_conserved(report)


def test_file_is_page_cache_mapped_in_load(report):
    found = cause(main_process(report), "file_cache")
    # Beside big.txt only the pages of python3 and its libraries: a dozen MiB.
    assert FILE_BYTES <= found["rss"]["peak"] <= FILE_BYTES + 24 * MIB
    sites = [site for site in found["sites"] if (site["mapping"] or "").find("big.txt") >= 0]
    assert sites and max(site["resident"] for site in sites) >= FILE_BYTES
    assert ("quickstart.py", line_of("text = mmap.mmap(")) in blamed_lines(sites, "load")


def test_kept_lines_are_live_heap_made_in_load(report):
    found = cause(main_process(report), "heap_live")
    assert KEPT_BYTES <= found["rss"]["peak"] <= KEPT_BYTES + 16 * MIB
    reading = {("quickstart.py", line_of("line = text.readline()")), ("quickstart.py", line_of("kept.append(line)"))}
    sites = [site for site in found["sites"] if blamed_lines([site], "load") & reading]
    assert sum(site["resident"] for site in sites) >= 0.9 * KEPT_BYTES


def test_workers_copied_the_lines_by_reading_them(report):
    for worker in workers(report):
        copied = cause(worker, "fork_cow")["rss"]["peak"]
        assert 0.9 * KEPT_BYTES <= copied <= KEPT_BYTES + 16 * MIB
        assert worker["cow"]["copied"] >= 0.9 * KEPT_BYTES
        made = [{"stack": site["allocated_at"]} for site in worker["cow"]["sites"]]
        assert ("quickstart.py", line_of("line = text.readline()")) in blamed_lines(made, "load")


def test_verdicts_say_so(report):
    by_id = {verdict["id"]: verdict for verdict in report["verdicts"]}
    assert by_id["file-cache-growth"]["severity"] == "ok"
    assert FILE_BYTES <= by_id["file-cache-growth"]["bytes"] <= FILE_BYTES + 24 * MIB
    assert by_id["heap-growth"]["severity"] == "info"
    assert 0.9 * KEPT_BYTES <= by_id["heap-growth"]["bytes"] <= KEPT_BYTES + 16 * MIB
    assert by_id["fork-cow-refcount"]["severity"] == "warning"
    for name, function_line in (("file-cache-growth", line_of("text = mmap.mmap(")),):
        assert f"quickstart.py:{function_line} in load" in by_id[name]["headline"]
