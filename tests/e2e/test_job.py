"""whyrss reduce, merge and report of a job: real recordings with ranks, figures equal to the reports' own, bad inputs."""
import itertools
import json
import os
import shutil
import subprocess

import jsonschema
import pytest

from conftest import ROOT, unwrapped
from exports import needs, node_output, readers  # noqa: F401, a fixture

MIB = 1 << 20
PROGRAM = """
import mmap, os, subprocess, sys

def load(number):
    return [bytearray(1 << 20) for _ in range(number)]

def scan(path):
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return mapped, sum(mapped[at] for at in range(0, len(mapped), 4096))

mapped = scan(sys.argv[1])
kept = load(int(sys.argv[2]))
if os.fork() == 0:
    own = load(10)
    os._exit(0)
os.wait()
if len(sys.argv) > 3:  # as torchrun does
    subprocess.run([sys.executable, *sys.argv[:3]], env={**os.environ, "RANK": sys.argv[3], "LOCAL_RANK": "1"}, check=True)
"""
RANKS = {0: 12, 1: 12, 2: 90}  # MiB of each


class Job:
    """Three ranks of a job of four on one of two nodes; the figures of their recordings; their parts."""

    def __init__(self, whyrss, folder, ranks=None):
        self.whyrss, self.folder = whyrss, folder
        (folder / "cache.py").write_text(PROGRAM)
        (folder / "data.bin").write_bytes(os.urandom(16 * MIB))
        self.reports, self.parts = {}, []
        for rank, size in (RANKS if ranks is None else ranks).items():
            recording = self.recorded(f"r{rank}", size, RANK=str(rank), WORLD_SIZE="4")
            self.reports[rank] = whyrss.finished_report(recording)
            self.parts.append(self.reduced(recording))

    def recorded(self, name, size, *more, **environment):
        recording = self.folder / f"{name}.whyrss"
        environment = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "77", "SLURMD_NODENAME": "node1",
                       "SLURM_JOB_NODELIST": "node[1-2]", **environment}
        command = ["/usr/bin/python3", self.folder / "cache.py", self.folder / "data.bin", str(size), *more]
        result = self.whyrss.record(recording, command, env=environment)
        assert result.returncode == 0, result.stderr
        self.whyrss.wait_until_complete(recording)
        return recording

    def reduced(self, recording):
        part = recording.with_suffix(".part")
        result = self.whyrss.run("reduce", recording, "-o", part)
        assert (result.returncode, result.stderr) == (0, ""), result.stderr
        return part

    def merge(self, *inputs, status=0, options=()):
        """The bytes of the job, and stderr."""
        output = self.folder / "job"
        output.unlink(missing_ok=True)
        result = self.whyrss.run("merge", *inputs, "-o", output, *options)
        assert result.returncode == status, result.stderr
        assert output.exists() == (status == 0)
        return output.read_bytes() if status == 0 else b"", result.stderr

    def json(self, *inputs, options=()):
        self.merge(*inputs, options=options)
        result = self.whyrss.run("report", self.folder / "job", "--format", "json")
        assert (result.returncode, result.stderr) == (0, "")
        document = json.loads(result.stdout)
        jsonschema.validate(document, json.loads((ROOT / "analyzer/job/job.schema.json").read_text()))
        return document


@pytest.fixture(scope="module", name="job")
def fixture_job(whyrss, tmp_path_factory):
    return Job(whyrss, tmp_path_factory.mktemp("job"))


def test_figures_are_those_of_the_reports(job):
    document = job.json(*job.parts)
    kept = {(process["rank"], process["pid"]): process for process in document["processes"]}
    assert len(kept) == sum(len(report["processes"]) for report in job.reports.values()) == document["process_count"]
    for rank, report in job.reports.items():
        for process in report["processes"]:
            found = kept[rank, process["pid"]]
            assert found["rss"] == {key: process["rss"][key] for key in ("first", "last", "peak")}
            assert found["copied"] == process["cow"]["copied"]
            causes = {cause["cause"]: cause for cause in process["causes"]}
            assert {cause["cause"]: cause["rss"] for cause in found["causes"]} == \
                {name: cause["rss"] for name, cause in causes.items()}
            for cause in found["causes"]:
                lines = [line for line in found["lines"] if line["cause"] == cause["cause"]]
                for figure in ("growth", "resident"):
                    assert sum(line[figure] for line in lines) + cause["not_listed"][figure] == \
                        sum(site[figure] for site in causes[cause["cause"]]["sites"])
            last = found["moments"][-1]["causes"]
            assert last == {name: cause["rss"]["last"] for name, cause in causes.items() if cause["rss"]["last"]}


def test_the_large_rank_is_named_by_its_line(job):
    document = job.json(*job.parts)
    assert document["ranks"] == [0, 1, 2] and document["missing_ranks"] == [3]
    assert document["missing_nodes"] == ["node2"]
    [outlier] = document["outliers"]
    assert outlier["rank"] == 2
    assert outlier["most"]["line"].startswith("cache.py:5 in load")
    assert outlier["most"]["bytes"] - outlier["most"]["median"] == pytest.approx(78 * MIB, rel=0.05)
    [main, workers] = [group for group in document["groups"] if group["name"] == "cache.py"]
    assert main["processes"] == workers["processes"] == 3 and workers["workers"]
    peaks = sorted(report["processes"][0]["rss"]["peak"] for report in job.reports.values())
    assert [main["rss_peak"][key] for key in ("min", "median", "max", "sum")] == [*peaks, sum(peaks)]
    text = unwrapped(job.whyrss.run("report", job.folder / "job").stdout)
    assert "rank 2 of 4 holds " in text and "cache.py:5 in load" in text
    assert "1 of 4 ranks was not recorded: 3" in text and "1 of 2 nodes is missing: node2" in text
    markdown = job.whyrss.run("report", job.folder / "job", "--format", "markdown").stdout
    assert "| cache.py, rank 0-2 | 3 processes |" in markdown


def test_a_file_that_ranks_share_counts_once_a_node(job):
    document = job.json(*job.parts)
    [data] = [file for file in document["files"] if file["mapping"].endswith("data.bin")]
    assert data["processes"] >= 3 and data["nodes"] == 1
    assert data["once"] == 16 * MIB and data["rss_sum"] >= 3 * 16 * MIB
    [node] = document["nodes"]
    assert node["name"] == "node1"
    assert node["total"] == node["private_peak"] + node["files_once"] + node["shared_once"] < node["rss_sum_peak"] * 3


def test_any_order_and_tree_of_merges_is_the_same_bytes(job):
    whole, stderr = job.merge(*job.parts)
    assert "1 of 2 nodes is missing: node2" in stderr
    for order in itertools.permutations(job.parts):
        assert job.merge(*order)[0] == whole
        inner = job.folder / "inner.part"
        inner.write_bytes(job.merge(*order[:2])[0])
        assert job.merge(inner, order[2])[0] == whole
        both, stderr = job.merge(order[2], inner, order[0])
        assert both == whole and "1 recording stood in several parts: counted once" in stderr
    recording = job.folder / "r1.whyrss"
    assert job.merge(job.parts[0], recording, job.parts[2])[0] == whole


def test_workers_have_ranks_of_their_own(job):
    """As torchrun starts them: the recording is of the launcher, and its child knows another rank."""
    part = job.reduced(job.recorded("launcher", 3, "9", RANK="8"))
    processes = job.json(part)["processes"]
    assert {process["rank"] for process in processes} == {8, 9}
    assert {process["local_rank"] for process in processes if process["rank"] == 9} == {1}


def test_no_other_variable_is_recorded(job):
    recording = job.recorded("secret", 1, RANK="0", AWS_SECRET_ACCESS_KEY="hunter2")
    part = job.reduced(recording)
    for path in (*recording.rglob("*"), part):
        if path.is_file() and path.suffix == ".zst":
            plain = subprocess.run(["zstd", "-dcq"], input=path.read_bytes(), capture_output=True, check=False).stdout
            assert b"hunter2" not in plain
        elif path.is_file():
            assert b"hunter2" not in path.read_bytes()


def test_protoc_reads_a_block(job):
    """part.proto says what is in the file."""
    if shutil.which("protoc") is None:
        pytest.skip("protoc is not installed")
    data = job.parts[2].read_bytes()
    size = int.from_bytes(data[16:24], "little")
    block = subprocess.run(["zstd", "-dcq"], input=data[32 + size:], capture_output=True, check=True).stdout
    for kind, message, expected in (("Index", data[32:32 + size], 'job: "77"'), ("Recording", block, "rank: 2")):
        text = subprocess.run(["protoc", f"--decode=whyrss.part.{kind}", "-I", ROOT / "analyzer/job", "part.proto"],
                              input=message, capture_output=True, check=True).stdout.decode()
        assert expected in text and not any(line.strip()[:1].isdigit() for line in text.splitlines())  # unknown fields


def cut(data):
    return data[:-100]


def flipped(data):
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


def of_format_two(data):
    return data[:8] + b"\2" + data[9:]


@pytest.mark.parametrize("damage, complaint", [
    (cut, "is cut off: "), (flipped, "does not fit its checksum"), (of_format_two, "is a part of format 2; this whyrss"),
    (lambda data: b"hello" * 100, "is no part of a job"), (lambda data: b"", "is cut off: 0 bytes")])
def test_a_damaged_part_is_named(job, damage, complaint):
    bad = job.folder / "bad.part"
    bad.write_bytes(damage(job.parts[1].read_bytes()))
    _, stderr = job.merge(job.parts[0], bad, status=1)
    assert f"{bad}: " in stderr or str(bad) in stderr
    assert complaint in stderr
    _, stderr = job.merge(job.parts[0], bad, job.parts[2], options=["--skip-damaged"])
    assert f"{bad}" in stderr and "left out" in stderr
    document = json.loads(job.whyrss.run("report", job.folder / "job", "--format", "json").stdout)
    assert document["ranks"] == [0, 2]
    result = job.whyrss.run("report", bad)
    assert result.returncode == 1 and complaint in result.stderr and result.stdout == ""


def test_what_does_not_belong_together(job):
    other = job.reduced(job.recorded("other", 1, SLURM_JOB_ID="78", RANK="5"))
    _, stderr = job.merge(*job.parts, other, status=1)
    assert "is of job 77" in stderr and f"{other} of job 78" in stderr
    document = job.json(*job.parts, other, options=["--several-jobs"])
    assert document["jobs"] == ["77", "78"]
    assert any("recordings of 2 jobs are merged" in note for note in document["notes"])


def test_other_bad_input(job):
    whyrss, part = job.whyrss, job.parts[0]
    cases = [(["merge", job.folder / "nothing", "-o", "x"], 1, "nothing"),
             (["reduce", job.folder, "-o", "x"], 1, "manifest.json"),
             (["reduce", part, "-o", "x"], 1, part),
             (["merge", part], 2, "--output is required"),
             (["merge", part, "-o", job.folder / "no/such/folder"], 1, "cannot write"),
             (["merge", part, "-o", "x", "--nodes", "node[3-1]"], 2, "is no list of nodes"),
             (["report", part, "--pid", "1"], 2, "--pid is for recordings"),
             (["report", part, "--format", "github"], 2, "--format github is for recordings"),
             (["report", "/dev/null"], 1, "/dev/null")]
    for arguments, status, complaint in cases:
        result = whyrss.run(*arguments, cwd=job.folder)
        assert result.returncode == status, (arguments, result.stderr)
        assert str(complaint) in result.stderr and len(result.stderr.splitlines()) <= 2, result.stderr
        assert not (job.folder / "x").exists()


def test_a_full_disk_leaves_the_old_job(job):
    whole, _ = job.merge(*job.parts)
    result = job.whyrss.run("merge", job.parts[0], "-o", "/dev/full")
    assert result.returncode == 1 and "cannot write /dev/full: No space left" in result.stderr
    assert (job.folder / "job").read_bytes() == whole


def test_nodes_that_were_asked_for(job):
    _, stderr = job.merge(*job.parts, options=["--nodes", "node[1-4]"])
    assert "3 of 4 nodes are missing: node2, node3, node4" in stderr
    document = job.json(*job.parts, options=["--nodes", "5"])
    assert document["expected_nodes"] == 5


def sql_example(number):
    """The commands that the docs show for many jobs."""
    chapter = (ROOT / "analyzer/docs/export.md").read_text().split("## Many jobs, by SQL")[1]
    return chapter.split("```")[number * 2 - 1]


@pytest.fixture(scope="module", name="many")
def fixture_many(job):
    """The recordings, as jobs of their own; and what of each the line `load` grew by."""
    folder = job.folder / "many"
    grown = []
    for rank, report in job.reports.items():
        shutil.copytree(job.folder / f"r{rank}.whyrss", folder / f"jobs/{rank}.whyrss")
        grown.append(sum(site["growth"] for process in report["processes"] for cause in process["causes"]
                         for site in cause["sites"] if cause["cause"] == "heap_live"
                         and any(frame["function"].startswith("load") for frame in site["stack"])))
    assert min(grown) > 10 * MIB
    return folder, grown


def in_shell(job, folder, commands):
    environment = {**os.environ, "PATH": f"{job.whyrss.program.parent}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-ec", commands], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_the_sql_example_with_sqlite(job, many):
    needs("sqlite3")
    folder, grown = many
    rows = [line.split("|") for line in in_shell(job, folder, sql_example(2)).splitlines()]
    assert rows[0][0].startswith("cache.py:5 in load")
    assert [int(value) for value in rows[0][1:]] == [3, max(grown), sum(grown)]


def test_the_sql_example_with_duckdb(job, many, readers):  # noqa: F811
    folder, grown = many
    exporting, query = sql_example(1).split('duckdb -c "')
    in_shell(job, folder, exporting)
    script = """
        import { DuckDBInstance } from "@duckdb/node-api";
        const connection = await (await DuckDBInstance.create()).connect();
        const reader = await connection.runAndReadAll(process.argv[2]);
        console.log(JSON.stringify(reader.getRowsJson()));"""
    query = query.rstrip().removesuffix('"').replace("'jobs/", f"'{folder}/jobs/")
    rows = json.loads(node_output(readers, script, query))
    assert rows[0][1].startswith("load") and [int(value) for value in rows[0][3:]] == [3, max(grown), sum(grown)]
