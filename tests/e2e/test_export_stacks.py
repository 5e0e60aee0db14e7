"""Exports of stacks and rows, each read by a reader that is not ours; totals equal the JSON report's, to the byte."""
import base64
import collections
import csv
import json
import os
import pty
import re
import subprocess

import jsonschema
import pytest

from conftest import PATIENCE_S
from exports import (HOSTILE, expected_pprof, exported, job, killed, needs, node_output, non_zero,  # noqa: F401
                     output_of, readers, summed, unseen)

PPROF_PROTO = """syntax = "proto3";
message Profile {
  repeated ValueType sample_type = 1; repeated Sample sample = 2; repeated Mapping mapping = 3;
  repeated Location location = 4; repeated Function function = 5; repeated string string_table = 6;
  int64 time_nanos = 9; int64 duration_nanos = 10; ValueType period_type = 11; int64 period = 12;
  repeated int64 comment = 13; int64 default_sample_type = 14;
}
message ValueType { int64 type = 1; int64 unit = 2; }
message Sample { repeated uint64 location_id = 1; repeated int64 value = 2; repeated Label label = 3; }
message Label { int64 key = 1; int64 str = 2; int64 num = 3; int64 num_unit = 4; }
message Mapping { uint64 id = 1; int64 filename = 5; int64 build_id = 6; bool f = 7; bool g = 8; bool h = 9; bool i = 10; }
message Location { uint64 id = 1; uint64 mapping_id = 2; uint64 address = 3; repeated Line line = 4; }
message Line { uint64 function_id = 1; int64 line = 2; }
message Function { uint64 id = 1; int64 name = 2; int64 system_name = 3; int64 filename = 4; }
"""


def pprof_sums(raw):
    """Of `go tool pprof -raw`: (pid, name of the sample type) -> sum."""
    lines = raw.decode().splitlines()
    at = lines.index("Samples:") + 1
    names = [word.partition("/")[0] for word in lines[at].split()]
    sums, values = collections.Counter(), None
    for line in lines[at + 1:lines.index("Locations")]:
        found = re.fullmatch(r"((?:\s*-?\d+)+): [\d ]*", line)
        if found:
            values = [int(word) for word in found[1].split()]
            assert len(values) == len(names)
        elif values and " pid:[" in line:
            pid = int(re.search(r" pid:\[(\d+)\]", line)[1])
            for name, value in zip(names, values):
                sums[pid, name] += value
            values = None
    return sums


def test_pprof_by_go(exported):
    needs("go")
    file = exported.file("pprof")
    raw = output_of("go", "tool", "pprof", "-raw", file)
    assert non_zero(pprof_sums(raw)) == non_zero(expected_pprof(exported.totals()))
    assert b"rss/bytes[dflt]" in raw
    for index in ("rss", "rss_growth"):
        output_of("go", "tool", "pprof", "-top", f"-sample_index={index}", file)


def test_pprof_of_one_process_shows_its_lines(job):
    needs("go")
    pid = job.report()["processes"][1]["pid"]
    file = job.file("pprof", "--pid", str(pid), name="one.pprof")
    assert {key[0] for key in pprof_sums(output_of("go", "tool", "pprof", "-raw", file))} == {pid}
    raw = output_of("go", "tool", "pprof", "-raw", file).decode()
    assert HOSTILE.replace("\n", "?").replace("\x1b", "?") in raw and "\x1b" not in raw  # what made the objects


def test_pprof_follows_its_description(exported, tmp_path):
    """As a protobuf, field by field: what other readers than Go's insist on."""
    needs("protoc", "zcat")
    (tmp_path / "profile.proto").write_text(PPROF_PROTO)
    message = output_of("zcat", "-f", exported.file("pprof"))
    text = output_of("protoc", "--decode=Profile", "-I", tmp_path, "profile.proto", input=message).decode()
    strings = re.findall(r'^string_table: "(.*)"$', text, re.M)
    assert strings[0] == "" and len(set(strings)) == len(strings)
    assert not re.search(r"^\s*\d+:", text, re.M)  # no field that the description does not have
    types = re.findall(r"^sample_type \{\n(.*?)^\}", text, re.M | re.S)
    samples = re.findall(r"^sample \{\n(.*?)^\}", text, re.M | re.S)
    for sample in samples:
        assert len(re.findall(r"^  value:", sample, re.M)) == len(types)
        assert re.search(r"^  location_id: [1-9]", sample, re.M)
    names = [strings[int(re.search(r"type: (\d+)", entry)[1])] for entry in types]
    assert names[:3] == ["rss", "rss_growth", "rss_at_peak"]
    totals = summed(expected_pprof(exported.totals()), 1)
    sums = [sum(int(re.findall(r"^  value: (-?\d+)", sample, re.M)[at]) for sample in samples) for at in range(len(names))]
    assert non_zero({(name,): value for name, value in zip(names, sums)}) == totals


def test_pprof_by_npm(exported, readers):
    """Datadog's reader: another parser, the same sums."""
    script = """
        import { Profile } from "pprof-format"; import { readFileSync } from "fs"; import { gunzipSync } from "zlib";
        const profile = Profile.decode(gunzipSync(readFileSync(process.argv[2])));
        const text = (number) => profile.stringTable.strings[Number(number)];
        const sums = profile.sampleType.map((type, at) =>
          [text(type.type), profile.sample.reduce((sum, sample) => sum + BigInt(sample.value[at]), 0n).toString()]);
        console.log(JSON.stringify({ sums: Object.fromEntries(sums), shown: text(profile.defaultSampleType) }));"""
    read = json.loads(node_output(readers, script, exported.file("pprof")))
    assert read["shown"] == "rss"
    sums = {(name,): int(value) for name, value in read["sums"].items() if value != "0"}
    assert sums == summed(expected_pprof(exported.totals()), 1)


@pytest.mark.parametrize("value", ["resident", "growth", "at_peak"])
def test_collapsed(exported, value):
    file = exported.file("collapsed", "--value", value)
    sums = collections.Counter()
    text = file.read_bytes().decode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
    for line in text.splitlines():
        stack, _, size = line.rpartition(" ")
        assert int(size) > 0
        frames = stack.split(";")
        assert len(frames) >= 3
        sums[int(re.search(r"\(pid (\d+)\)$", frames[0])[1]), frames[1]] += int(size)
    suffix = {"resident": "", "growth": "_growth", "at_peak": "_at_peak"}[value]
    totals = {key[:2]: size for key, size in exported.totals().items() if key[2] == suffix}
    left_out = re.search(r"\((-\d+) bytes\) in all", exported.said)
    assert value == "growth" or not left_out
    assert sum(sums.values()) + (int(left_out[1]) if left_out else 0) == sum(totals.values())
    if not left_out:
        assert dict(sums) == totals


def test_collapsed_growth_that_is_negative_is_reported(job):
    duration = job.report()["recording"]["duration_s"]
    job.file("collapsed", "--value", "growth", "--from", str(duration / 3), name="late.collapsed")
    assert "that shrank" in job.said


def test_speedscope(exported):
    """By its published shape: numbers of frames, samples and weights fit each other."""
    text = exported.file("speedscope").read_text()
    document = json.loads(text)
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    frames = document["shared"]["frames"]
    assert all(frame["name"] for frame in frames)
    totals = exported.totals()
    by_name = summed(expected_pprof(totals), 1)
    for profile in document["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "bytes" and profile["startValue"] == 0
        assert len(profile["samples"]) == len(profile["weights"])
        assert profile["endValue"] == sum(profile["weights"])
        assert all(0 <= number < len(frames) for sample in profile["samples"] for number in sample)
        if "_growth" not in profile["name"]:
            assert profile["endValue"] == by_name.get((profile["name"],), 0)
    assert document["profiles"][0]["name"] == "rss"
    assert len({profile["name"] for profile in document["profiles"]}) == len(document["profiles"])


def test_speedscope_by_its_schema(exported, readers):
    schema = json.loads((readers / "speedscope/dist/release/file-format-schema.json").read_text())
    jsonschema.validate(json.loads(exported.file("speedscope").read_text()), schema)


def test_speedscope_draws_it(job, readers, tmp_path):
    """In Chromium: it names the first profile and counts the others."""
    needs("chromium")
    data = job.file("speedscope").read_bytes()
    (tmp_path / "profile.js").write_text(f'speedscope.loadFileFromBase64("job", "{base64.b64encode(data).decode()}")')
    page = f"file://{readers}/speedscope/dist/release/index.html#localProfilePath={tmp_path}/profile.js"
    document = output_of("chromium", "--headless", "--no-sandbox", f"--user-data-dir={tmp_path}/chromium",
                         "--allow-file-access-from-files", "--virtual-time-budget=60000", "--dump-dom", page,
                         timeout=PATIENCE_S).decode()
    assert re.search(rf"<span>rss <span[^>]*>\(1/{len(json.loads(data)['profiles'])}\)", document)


class FirefoxProfiler:
    """The Firefox Profiler's own code, as a command; it keeps a profile in a process of its own."""

    def __init__(self, readers, folder, file):
        self.command = ["node", readers / "@firefox-devtools/profiler-cli/dist/profiler-cli.js"]
        self.environment = {**os.environ, "PROFILER_CLI_SESSION_DIR": str(folder), "PROFILER_CLI_NO_SYMBOLICATE": "1"}
        self.file = file

    def __enter__(self):
        self("load", self.file)
        return self

    def __exit__(self, *_):
        self("stop")

    def __call__(self, *arguments):
        return output_of(*self.command, *arguments, "--session", "test", env=self.environment)


@pytest.mark.parametrize("value", ["resident", "growth"])
def test_firefox(job, readers, tmp_path, value):
    """Its sums of what the outermost calls, which are the causes, stand for."""
    file = job.file("firefox", "--value", value)
    suffix = {"resident": "", "growth": "_growth"}[value]
    totals = {key[:2]: size for key, size in job.totals().items() if key[2] == suffix}
    causes = {cause for _, cause in totals}
    sums = {}
    with FirefoxProfiler(readers, tmp_path, file) as profiler:
        threads = json.loads(profiler("thread", "list", "--json"))["threads"]
        for thread in threads:
            found = json.loads(profiler("thread", "functions", "--limit", "0", "--include-idle", "--json", "--thread",
                                        thread["threadHandle"]))
            assert found["weightType"] == "bytes" and len(found["functions"]) == found["totalFunctionCount"]
            for function in found["functions"]:
                if function["name"] in causes:
                    sums[int(thread["pid"]), function["name"]] = function["totalSamples"]
    assert len(threads) == 4
    left_out = re.search(r"\((-\d+) bytes\) in all", job.said)
    assert sum(sums.values()) + (int(left_out[1]) if left_out else 0) == sum(totals.values())
    if not left_out:
        assert sums == totals


def test_firefox_shape(exported):
    """Tables of columns, all as long as they say; each number is one of its table."""
    document = json.loads(exported.file("firefox").read_text())
    strings = document["shared"]["stringArray"]
    assert len(set(strings)) == len(strings)
    for thread in document["threads"]:
        tables = {name: table for name, table in thread.items() if isinstance(table, dict)}
        for table in tables.values():
            assert all(len(column) == table["length"] for column in table.values() if isinstance(column, list))
        assert all(0 <= number < len(strings) for number in tables["funcTable"]["name"])
        assert all(prefix is None or prefix < at for at, prefix in enumerate(tables["stackTable"]["prefix"]))
        size = sum(value for key, value in exported.totals().items() if key[0] == int(thread["pid"]) and key[2] == "")
        assert sum(tables["samples"]["weight"]) == size
    ends = {int(counter["pid"]): sum(counter["samples"]["count"]) for counter in document["counters"]}
    assert ends == {process["pid"]: process["rss"]["last"] for process in exported.report()["processes"]
                    if process["rss"]["last"] is not None}


def test_csv(exported):
    with exported.file("csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    sums = collections.Counter()
    for row in rows:
        assert None not in row and None not in row.values()
        for suffix, column in (("", "resident"), ("_growth", "growth"), ("_at_peak", "at_peak")):
            sums[int(row["pid"]), row["cause"], suffix] += int(row[column])
        for name in ("process", "mapping", "line", "stack"):
            assert not row[name].startswith(("=", "+", "-", "@")) and row[name].isprintable()
    assert non_zero(sums) == exported.totals()


def test_csv_shows_hostile_names(job):
    with job.file("csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, strict=True))
    shown = HOSTILE.replace("\n", "?").replace("\x1b", "?")
    assert any(shown in row["stack"] for row in rows)
    assert any(row["line"].startswith("'=cmd|") and shown in row["line"] for row in rows)
    assert any(row["mapping"].endswith('/data ?;"<b>?[1m.bin') for row in rows)


def test_ndjson(exported):
    needs("zstd")
    text = output_of("zstd", "-dcq", exported.file("ndjson")).decode()
    sums = collections.Counter()
    for line in text.splitlines():
        row = json.loads(line)
        for suffix, column in (("", "resident"), ("_growth", "growth"), ("_at_peak", "at_peak")):
            sums[row["pid"], row["cause"], suffix] += row[column]
        assert row["line"] >= 0 and isinstance(row["stack"], list)
    assert non_zero(sums) == exported.totals()


def test_ndjson_holds_hostile_names_as_they_are(job):
    needs("zstd")
    rows = [json.loads(line) for line in output_of("zstd", "-dcq", job.file("ndjson")).decode().splitlines()]
    assert any(frame["function"] == HOSTILE for row in rows for frame in row["stack"])
    assert any(row["file"] == "/tmp/=cmd|'x'!" + HOSTILE for row in rows)


def test_ndjson_by_duckdb(job, readers):
    file = job.file("ndjson", name="rows.ndjson.zst")
    script = """
        import { DuckDBInstance } from "@duckdb/node-api";
        const connection = await (await DuckDBInstance.create()).connect();
        const reader = await connection.runAndReadAll(
          `SELECT pid, cause, sum(resident)::VARCHAR, sum(growth)::VARCHAR, sum(at_peak)::VARCHAR
           FROM read_json_auto('${process.argv[2]}') GROUP BY pid, cause`);
        console.log(JSON.stringify(reader.getRowsJson()));"""
    sums = {}
    for pid, cause, *values in json.loads(node_output(readers, script, file)):
        sums.update({(int(pid), cause, suffix): int(value) for suffix, value in zip(("", "_growth", "_at_peak"), values)})
    assert non_zero(sums) == job.totals()


@pytest.mark.parametrize("form", ["pprof", "collapsed", "speedscope", "csv", "ndjson", "sqlite", "openmetrics",
                                  "perfetto", "firefox"])
def test_what_is_missing_is_reported(job, unseen, form):
    unseen.file(form)
    assert "no process was walked" in unseen.said
    job.file(form)
    assert "looked at" not in job.said


def test_refusals(whyrss, job, tmp_path):
    for arguments, status, words in (
            (["--format", "gif"], 2, "--format"), ([], 2, "--format is required"),
            (["--format", "pprof", "--value", "growth"], 2, "holds all figures"),
            (["--format", "csv", "--pid", "1"], 2, "not in this recording"),
            (["--format", "csv", "--from", "nowhere"], 2, "not seconds, a phase, a mark"),
            (["--format", "csv", "-o", tmp_path / "none" / "file"], 1, "cannot write")):
        result = whyrss.run("export", job.recording, *arguments)
        assert result.returncode == status and words in result.stderr and result.stderr.count("\n") == 1
        assert result.stdout == ""
    result = whyrss.run("export", tmp_path / "gone", "--format", "csv")
    assert result.returncode == 1 and result.stderr.count("\n") == 1


def test_bytes_are_not_for_a_terminal(whyrss, job):
    terminal, other_end = pty.openpty()
    try:
        result = whyrss.run("export", job.recording, "--format", "pprof", capture_output=False, stdout=other_end,
                            stderr=subprocess.PIPE)
        assert result.returncode == 2 and "-o FILE" in result.stderr
        csv_result = whyrss.run("export", job.recording, "--format", "csv", "--from", "0", "--to", "0",
                                capture_output=False, stdout=other_end, stderr=subprocess.PIPE)
        assert csv_result.returncode == 0, csv_result.stderr
    finally:
        os.close(terminal)
        os.close(other_end)


def test_interval(job):
    duration = job.report()["recording"]["duration_s"]
    options = ["--from", str(duration / 4), "--to", str(duration / 2)]
    with job.file("csv", *options, name="part.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sums = collections.Counter()
    for row in rows:
        for suffix, column in (("", "resident"), ("_growth", "growth"), ("_at_peak", "at_peak")):
            sums[int(row["pid"]), row["cause"], suffix] += int(row[column])
    assert non_zero(sums) == job.totals(*options)
