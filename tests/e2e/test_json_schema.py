"""Real reports of several kinds of jobs against the published JSON Schema."""
import json
import signal
import subprocess

import jsonschema
import pytest

from conftest import PATIENCE_S, ROOT
from expected.report_reading import read_report

SCHEMA = json.loads((ROOT / "analyzer" / "report" / "report.2.schema.json").read_text())
PLAIN_SCHEMA = json.loads((ROOT / "analyzer" / "report" / "report.schema.json").read_text())
FORKING = ("import os, time\nkept = [bytes(1000) for _ in range(50000)]\npid = os.fork()\nsum(map(len, kept))\n"
           "time.sleep(0.5)\nif pid: os.waitpid(pid, 0)\nos._exit(0)\n")
JOBS = {"short": ["true"], "shell": ["sh", "-c", "sleep 0.3; sleep 0.1 & wait"], "code": ["sh", "-c", "exit 9"],
        "signal": ["sh", "-c", "kill -SEGV $$"], "python": ["/usr/bin/python3", "-c", FORKING]}


def stack_numbers(report):
    """Each number of a stack that a report of schema 2 refers to."""
    for process in report["processes"]:
        for site in (site for cause in process["causes"] for site in cause["sites"]):
            for part in (site, *site["touched_by"], *site.get("advised_by", [])):
                yield from (part[name] for name in ("stack", "during") if name in part)
        for site in process["cow"]["sites"]:
            yield from (site["allocated_at"], site["written_at"])


def causes_of(report):
    return [cause for process in report["processes"] for cause in process["causes"]]


def sites_of(report):
    return [site for cause in causes_of(report) for site in cause["sites"]]


def is_large(site):
    return max(abs(site["growth"]), site["resident"]) >= max(64 << 10, 2 * site["standard_error"])


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_report_follows_the_schema(whyrss, recording, job):
    whyrss.record(recording, job)
    whyrss.wait_until_complete(recording)
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    texts = {options: whyrss.report_text(recording, *options) for options in ((), ("--small-sites",), ("--schema", "1"))}
    short, whole, plain = map(json.loads, texts.values())
    for report in (short, whole):
        jsonschema.validate(report, SCHEMA)
        assert report["schema"] == "whyrss.report/2"
        assert report["recording"]["command"] == job
        numbers = list(range(len(report["stacks"])))
        assert sorted({*stack_numbers(report), 0}) == numbers and report["stacks"][0] == []
        for cause in causes_of(report):  # none where no process was there for a snapshot
            assert sum(site["growth"] for site in cause["sites"]) == cause["growth"]["rss"]

    jsonschema.Draft7Validator.check_schema(PLAIN_SCHEMA)
    jsonschema.validate(plain, PLAIN_SCHEMA)
    assert plain["schema"] == "whyrss.report/1"
    expanded = read_report(texts["--small-sites",])
    assert {**plain, "schema": 2} == {name: value for name, value in {**expanded, "schema": 2}.items() if name in plain}

    # Without what lies in the sites, the report is the same; small ones have one frame, the others are whole.
    expanded = read_report(texts[()])
    sites, all_sites = sites_of(expanded), sites_of(plain)
    assert all(len(site["stack"]) <= 1 for site in sites if "small_sites" in site)
    assert sum(site.get("small_sites", 1) for site in sites) == len(all_sites)
    for site in (*sites, *all_sites):
        site["touched_by"] = sum(touch["growth"] for touch in site["touched_by"])
    assert [site for site in sites if "small_sites" not in site] == [site for site in all_sites if is_large(site)]
    for report in (expanded, plain):
        del report["schema"]
        for process in report["processes"]:
            process["cow"].pop("sites")
        for cause in causes_of(report):
            cause.pop("sites")
    assert {name: value for name, value in expanded.items() if name in plain} == plain


def test_report_of_a_running_job_follows_the_schema(whyrss, recording):
    with subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", "sh", "-c", "echo up; exec sleep 600"],
                          stdout=subprocess.PIPE, text=True) as record:
        assert record.stdout.readline() == "up\n"
        report = json.loads(whyrss.report_text(recording))
        record.send_signal(signal.SIGTERM)
        assert record.wait(PATIENCE_S) == -signal.SIGTERM
    jsonschema.validate(report, SCHEMA)
    assert not report["recording"]["complete"]
    whyrss.wait_until_complete(recording)
    jsonschema.validate(json.loads(whyrss.report_text(recording)), SCHEMA)


PAGES = """
import ctypes, json, mmap
snapshot = ctypes.CDLL(None).whyrss_snapshot
def hold(step):
    area = mmap.mmap(-1, 600 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    area.madvise(15)  # MADV_NOHUGEPAGE
    for at in range(0, 600, step):
        area[at * 4096] = 1
    return area
early = hold(1)
snapshot()
late = hold(3)
blocks = [bytearray(1000) for _ in range(40000)]
del blocks[20000:]
blocks[:20000] = blocks[:20000:40]
snapshot()
print(json.dumps([ctypes.addressof(ctypes.c_char.from_buffer(area)) for area in (early, late)]))
"""


def of_columns(columns):
    return [dict(zip(columns, values)) for values in zip(*columns.values())]


def pages_at(picture, address, what):
    """(page from `address` on, pages, entry) of the 600 pages there."""
    for mapping in picture["mappings"]:
        for entry in of_columns(mapping[what]):
            first = entry["page"] - (address - mapping["start"]) // 4096
            if mapping["start"] <= address < mapping["end"] and 0 <= first < 600:
                yield first, entry["pages"], entry


def test_pages_of_the_address_space(whyrss, recording):
    """Which pages are resident, what they are, whose, and since when; the bytes sum to those of the causes."""
    output = whyrss.record(recording, ["/usr/bin/python3", "-c", PAGES]).stdout
    early, late = json.loads(output)
    whyrss.wait_until_complete(recording)
    report = json.loads(whyrss.report_text(recording, "--pages"))
    jsonschema.validate(report, SCHEMA)
    [process] = report["processes"]
    pictures = process["pages"]["pictures"]
    assert 2 <= len(pictures) <= process["pages"]["snapshots"]
    for picture in pictures:
        runs = [run for mapping in picture["mappings"] for run in of_columns(mapping["runs"])]
        assert all(mapping["cell_pages"] == 1 for mapping in picture["mappings"])
        assert 4096 * sum(run["resident_pages"] for run in runs) == picture["rss"]
    last = pictures[-1]
    [[first, pages, run]] = pages_at(last, early, "runs")
    assert (first, pages, run["cause"]) == (0, 600, "anonymous")
    frames = report["stacks"][run["stack"]]
    assert [frame["function"] for frame in frames if frame["kind"] == "python"] == ["hold", "<module>"]
    assert [(first, pages) for first, pages, _ in pages_at(last, late, "runs")] == [(at, 1) for at in range(0, 600, 3)]
    ages = list(pages_at(last, early, "ages"))  # of two, where a snapshot came while they were written
    assert [first for first, _, _ in ages] == [sum(pages for _, pages, _ in ages[:at]) for at in range(len(ages))]
    assert sum(pages for _, pages, _ in ages) == 600
    newest = max(age["since_s"] for _, _, age in ages)
    assert {newest < later["since_s"] for _, _, later in pages_at(last, late, "ages")} == {True}

    assert process["moments"]["last"]["looked_s"] == last["time_s"] == process["moments"]["last"]["time_s"]
    by_cause = dict.fromkeys((cause["cause"] for cause in process["causes"]), 0)
    sparse = 0
    for mapping in last["mappings"]:
        for run in of_columns(mapping["runs"]):
            by_cause[run["cause"]] += 4096 * run["resident_pages"]
            sparse += 4096 * run["resident_pages"] * (run["live_sixteenths"] <= 4)
    of_heap = ("heap_live", "heap_slack", "heap_retained", "heap_metadata", "unknown")
    reported = {cause["cause"]: cause["rss"]["last"] for cause in process["causes"]}
    for cause, bytes_there in reported.items():
        if cause not in of_heap:
            assert by_cause[cause] == bytes_there, cause
    # Every 40th of 20,000 blocks was kept: pages with one of 1,000 bytes, or none.
    assert sparse > 3 << 19 and reported["heap_slack"] > 0.75 * sparse
    assert by_cause["heap_retained"] > 15 << 20
    assert by_cause["heap_retained"] == pytest.approx(reported["heap_retained"], rel=0.02)


@pytest.mark.parametrize("options", [["--format", "text", "--pages"], ["--format", "json", "--pages", "--schema", "1"]])
def test_pages_need_json_with_a_table_of_stacks(whyrss, recording, options):
    result = whyrss.run("report", recording, *options)
    assert (result.returncode, result.stdout) == (2, "") and "--pages" in result.stderr
    assert len(result.stderr.splitlines()) == 1
