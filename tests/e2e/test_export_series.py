"""Exports with the causes over time, each read by a reader that is not ours; totals equal the JSON report's."""
import collections
import contextlib
import re
import sqlite3

import pytest

from exports import (HOSTILE, exported, job, killed, needs, non_zero, output_of, unseen)  # noqa: F401

SHOWN = HOSTILE.replace("\n", "?").replace("\x1b", "?")

PERFETTO_PROTO = """syntax = "proto2";
message Trace { repeated Packet packet = 1; }
message Packet {
  optional Clocks clock_snapshot = 6; optional uint64 timestamp = 8; optional uint32 sequence_id = 10;
  optional Event track_event = 11; optional Interned interned_data = 12; optional uint32 sequence_flags = 13;
  optional Profile profile_packet = 37; optional Track track_descriptor = 60;
}
message Clocks { repeated Clock clocks = 1; }
message Clock { optional uint32 clock_id = 1; optional uint64 timestamp = 2; }
message Track {
  optional uint64 uuid = 1; optional string name = 2; optional Process process = 3; optional uint64 parent_uuid = 5;
  optional Counter counter = 8;
}
message Process { optional int32 pid = 1; repeated string cmdline = 2; optional string process_name = 6; }
message Counter { optional int32 unit = 3; }
message Event {
  optional int32 type = 9; optional uint64 track_uuid = 11; optional string name = 23; optional int64 counter_value = 30;
}
message Interned {
  repeated String function_names = 5; repeated Frame frames = 6; repeated Callstack callstacks = 7;
  repeated String mapping_paths = 17; repeated String source_paths = 18; repeated Mapping mappings = 19;
}
message String { optional uint64 iid = 1; optional string str = 2; }
message Mapping { optional uint64 iid = 1; repeated uint64 path_string_ids = 7; }
message Frame {
  optional uint64 iid = 1; optional uint64 function_name_id = 2; optional uint64 mapping_id = 3;
  optional uint64 rel_pc = 4; optional uint64 source_path_iid = 5; optional uint32 line_number = 6;
}
message Callstack { optional uint64 iid = 1; repeated uint64 frame_ids = 2; }
message Profile { repeated Dump process_dumps = 5; optional uint64 index = 7; }
message Dump {
  optional uint64 pid = 1; repeated Sample samples = 2; optional uint64 timestamp = 9; optional string heap_name = 11;
}
message Sample { optional uint64 callstack_id = 1; optional uint64 self_allocated = 2; optional uint64 self_freed = 3; }
"""


def last_totals(exported):
    return {key[:2]: value for key, value in exported.totals().items() if key[2] == ""}


@pytest.fixture
def database(exported):
    with contextlib.closing(sqlite3.connect(f"file:{exported.file('sqlite')}?mode=ro", uri=True)) as connection:
        yield connection


def test_sqlite(exported, database):
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("PRAGMA user_version").fetchone() == (1,)
    sums = {}
    for pid, cause, *values in database.execute("SELECT pid, cause, resident, growth, at_peak FROM cause_total"):
        sums.update({(pid, cause, suffix): value for suffix, value in zip(("", "_growth", "_at_peak"), values)})
    assert non_zero(sums) == exported.totals()
    by_line = database.execute("SELECT sum(resident), sum(growth), sum(at_peak) FROM line_total").fetchone()
    assert [value or 0 for value in by_line] == [
        sum(value for key, value in sums.items() if key[2] == suffix) for suffix in ("", "_growth", "_at_peak")]
    report = exported.report()
    assert database.execute("SELECT pid, parent, rss_last FROM process ORDER BY process_id").fetchall() == [
        (process["pid"], process["parent"], process["rss"]["last"]) for process in report["processes"]]
    assert database.execute("SELECT complete, duration_s FROM recording").fetchone() == (
        report["recording"]["complete"], report["recording"]["duration_s"])


def test_sqlite_snapshots_sum_to_rss(exported, database):
    unequal = database.execute("""SELECT process_id, time_s FROM snapshot LEFT JOIN snapshot_cause USING (process_id, time_s)
        GROUP BY process_id, time_s HAVING sum(bytes) <> rss""").fetchall()
    assert unequal == []
    last = database.execute("""SELECT pid, cause, bytes FROM snapshot_cause JOIN process USING (process_id)
        WHERE (process_id, time_s) IN (SELECT process_id, max(time_s) FROM snapshot GROUP BY process_id)""")
    assert {(pid, cause): size for pid, cause, size in last} == last_totals(exported)


def test_sqlite_holds_hostile_names_as_text(job):
    with contextlib.closing(sqlite3.connect(job.file("sqlite"))) as connection:
        assert connection.execute("SELECT count(*) FROM frame WHERE function = ?", (SHOWN,)).fetchone()[0] >= 1
        calls = [row[0] for row in connection.execute("SELECT calls FROM stack")]
        assert any(SHOWN in text for text in calls)
        assert connection.execute("SELECT count(*) FROM site").fetchone()[0] > 0


def metrics_of(text):
    """(pid, cause) -> samples as (bytes, seconds), in the order of the file."""
    label = r'"((?:[^"\\\n]|\\["\\n])*)"'
    found = collections.defaultdict(list)
    for line in text.splitlines():
        if line.startswith("whyrss_resident_bytes{"):
            fields = re.fullmatch(rf"\w+\{{host={label},recording={label},pid={label},born_s={label},process={label},cause={label}\}} "
                                  r"(\d+) (\d+\.\d{3})", line)
            found[int(fields[3]), fields[6]].append((int(fields[7]), float(fields[8])))
    return found


def test_openmetrics_by_promtool(exported, tmp_path):
    """Into a database and out again: the last sample of each series is what is resident at the end."""
    needs("promtool")
    file = exported.file("openmetrics")
    if not exported.totals():
        assert file.read_text().endswith("# EOF\n")
        return
    (tmp_path / "tsdb/wal").mkdir(parents=True)  # without one it dumps nothing
    output_of("promtool", "tsdb", "create-blocks-from", "openmetrics", file, tmp_path / "tsdb")
    last = {}
    for line in output_of("promtool", "tsdb", "dump", tmp_path / "tsdb").decode().splitlines():
        found = re.fullmatch(r'\{__name__="whyrss_resident_bytes", .*cause="(\w+)".* pid="(\d+)".*\} (\S+) (\d+)', line)
        if found:
            key, time_ms = (int(found[2]), found[1]), int(found[4])
            last[key] = max(last.get(key, (0, 0)), (time_ms, int(float(found[3]))))
    assert {key: size for key, (_, size) in last.items() if size} == last_totals(exported)


def test_openmetrics_is_clean(exported):
    """No complaint of promtool about names, types and texts of help; it knows the older format only, without times."""
    needs("promtool")
    text = exported.file("openmetrics").read_text()
    timeless = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            timeless[line.rpartition(" ")[0].rpartition(" ")[0]] = line.rpartition(" ")[0].rpartition(" ")[2]
    head = [line for line in text.splitlines() if line.startswith("#")]
    families = []
    for family in ("whyrss_resident_bytes", "whyrss_rss_bytes"):
        families += [line for line in head if f" {family} " in line and not line.startswith("# UNIT")]
        families += [f"{name} {value}" for name, value in timeless.items() if name.startswith(family + "{")]
    output_of("promtool", "check", "metrics", input=("\n".join(families) + "\n").encode())


def test_openmetrics_series_are_in_order(exported):
    text = exported.file("openmetrics").read_text()
    assert text.isprintable() or set(text) - set("\n") == {char for char in text if char.isprintable()}
    metrics = metrics_of(text)
    assert {key: samples[-1][0] for key, samples in metrics.items() if samples[-1][0]} == last_totals(exported)
    for samples in metrics.values():
        times = [time_s for _, time_s in samples]
        assert times == sorted(set(times))


def decoded(exported, tmp_path, *options):
    """The packets of the trace, each as protoc's text."""
    needs("protoc")
    (tmp_path / "trace.proto").write_text(PERFETTO_PROTO)
    trace = exported.file("perfetto", *options).read_bytes()
    text = output_of("protoc", "--decode=Trace", "-I", tmp_path, "trace.proto", input=trace).decode()
    assert not re.search(r"^\s*\d+:|^\s*\d+ \{", text, re.M)  # no field that is not described
    return re.findall(r"^packet \{\n(.*?)^\}", text, re.M | re.S)


def field(text, name):
    found = re.search(rf"\b{name}: (\S.*)", text)
    return found and found[1].strip('"')


def test_perfetto_counters(exported, tmp_path):
    tracks, pids, last = {}, {}, {}
    for packet in decoded(exported, tmp_path):
        if "track_descriptor" in packet:
            uuid = field(packet, "uuid")
            if "process {" in packet:
                pids[uuid] = int(field(packet, "pid"))
            elif "counter {" in packet:
                assert field(packet, "unit") == "3"
                tracks[uuid] = (pids[field(packet, "parent_uuid")], field(packet, "name"))
        elif "track_event" in packet and field(packet, "type") == "4":
            key = tracks[field(packet, "track_uuid")]
            last[key] = max(last.get(key, (0, 0)), (int(field(packet, "timestamp")), int(field(packet, "counter_value"))))
    sums = {key: size for key, (_, size) in last.items() if key[1] != "rss as polled" and size}
    assert sums == last_totals(exported)


@pytest.mark.parametrize("value", ["resident", "growth"])
def test_perfetto_heap_profiles(exported, tmp_path, value):
    packets = decoded(exported, tmp_path, "--value", value)
    interned = next(packet for packet in packets if "interned_data" in packet)
    frames = set(re.findall(r"frames \{\n\s*iid: (\d+)", interned))
    callstacks = {}
    for number, body in re.findall(r"callstacks \{\n\s*iid: (\d+)\n(.*?)\}", interned, re.S):
        callstacks[number] = re.findall(r"frame_ids: (\d+)", body)
        assert callstacks[number] and set(callstacks[number]) <= frames
    sums = collections.Counter()
    for at, packet in enumerate(packet for packet in packets if "profile_packet" in packet):
        assert field(packet, "index") == str(at)
        assert set(re.findall(r"callstack_id: (\d+)", packet)) <= set(callstacks)
        key = int(field(packet, "pid")), field(packet, "heap_name")
        sums[key] += sum(int(size) for size in re.findall(r"self_allocated: (\d+)", packet))
        sums[key] -= sum(int(size) for size in re.findall(r"self_freed: (\d+)", packet))
    suffix = {"resident": "", "growth": "_growth"}[value]
    assert non_zero(sums) == {key[:2]: size for key, size in exported.totals().items() if key[2] == suffix}
