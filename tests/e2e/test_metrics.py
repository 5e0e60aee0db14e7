"""Live figures while a recording goes on: `record --metrics`, `--metrics-file`, and the variables of a job."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
import urllib.request

import pytest

from conftest import PATIENCE_S, is_running, manifest_of, wait_until
from exports import needs, output_of

PYTHON = "/usr/bin/python3"
MIB = 1 << 20
# Forks workers that take memory of their own, and rests until the file is there; the number of workers comes first.
JOB = r"""
import os, sys, time
count, until = int(sys.argv[1]), sys.argv[2]
kept = [str(i) * 3 for i in range(100_000)]
children = []
for number in range(count):
    pid = os.fork()
    if pid == 0:
        own = bytearray((number % 3 + 1) << 23)
        own[::4096] = b"x" * len(own[::4096])
        open(f"{until}.{number}", "w").close()
        while not os.path.exists(until):
            time.sleep(0.05)
        os._exit(0)
    children.append(pid)
while not os.path.exists(until):
    time.sleep(0.05)
for pid in children:
    os.waitpid(pid, 0)
print("done")
"""


class Job:
    """The program, its recording under way, and what its metrics say."""

    def __init__(self, whyrss, folder, workers=3, name="job"):
        self.whyrss, self.workers = whyrss, workers
        self.recording, self.until = folder / f"{name}.whyrss", folder / f"{name}.until"
        self.script = folder / f"{name}.py"
        self.script.write_text(JOB)
        self.command = [PYTHON, str(self.script), str(workers), str(self.until)]
        self.process = None

    def start(self, command, **options):
        self.process = subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, **options)
        return self

    def record(self, *options, **more):
        return self.start([self.whyrss.program, "record", "-o", self.recording, *options, "--", *self.command], **more)

    def ready(self):
        wait_until(lambda: all(pathlib.Path(f"{self.until}.{i}").exists() for i in range(self.workers)), "workers rest")
        return self

    @property
    def url(self):
        return manifest_of(self.recording)["metrics"]["url"]

    def release(self):
        self.until.touch()

    def end(self):
        """(exit status, stdout, stderr) once it was let go on."""
        self.release()
        out, err = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode, out, err


@pytest.fixture
def jobs(whyrss, tmp_path):
    """jobs(workers=..., name=...) -> Job; all end with the test."""
    made = []

    def make(**options):
        made.append(Job(whyrss, tmp_path, **options))
        return made[-1]
    yield make
    for job in made:
        job.release()
        if job.process is not None and job.process.poll() is None:
            job.process.communicate(timeout=PATIENCE_S)


def scrape(url, accept="text/plain"):
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


def samples(text):
    """(name, labels as a dictionary, value) of each."""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)\{(.*)\} (\S+)", line).groups()
            found.append((name, dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)), float(value)))
    return found


def by_pid(text, name):
    return {labels["pid"]: value for one, labels, value in samples(text) if one == name}


def single(text, name):
    values = [value for one, _, value in samples(text) if one == name]
    assert len(values) == 1, (name, values)
    return values[0]


def kilos(pid, file, *names):
    text = pathlib.Path(f"/proc/{pid}/{file}").read_text()
    return 1024 * sum(int(re.search(rf"^{name}:\s+(\d+)", text, re.M)[1]) for name in names)


def target_of(job):
    return manifest_of(job.recording)["target_pid"]


def family_of(job):
    pid = target_of(job)
    return [pid, *map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def settled(job):
    """A scrape of nothing that was read before all workers rested, and of all of them."""
    time.sleep(1.1)

    def whole():
        text = scrape(job.url)
        return text if sorted(map(int, by_pid(text, "whyrss_rss_bytes"))) == sorted(family_of(job)) else None
    return wait_until(whole, "all processes are shown")


def test_values_against_proc(jobs):
    job = jobs(workers=3).record("--metrics", ":0").ready()
    pids = family_of(job)
    assert len(pids) == 4
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", job.url)
    text = settled(job)
    expected = {"whyrss_rss_bytes": ("status", "VmRSS"), "whyrss_rss_peak_bytes": ("status", "VmHWM"),
                "whyrss_swap_bytes": ("status", "VmSwap"), "whyrss_pss_bytes": ("smaps_rollup", "Pss"),
                "whyrss_uss_bytes": ("smaps_rollup", "Private_Clean", "Private_Dirty")}
    for name, source in expected.items():
        values = by_pid(text, name)
        assert sorted(map(int, values)) == sorted(pids), name
        for pid in pids:
            assert values[str(pid)] == pytest.approx(kilos(pid, *source), abs=MIB), (name, pid)
    kinds = {(labels["pid"], labels["kind"]): value for name, labels, value in samples(text)
             if name == "whyrss_rss_kind_bytes"}
    for pid in pids:
        assert sum(kinds[str(pid), kind] for kind in ("anon", "file", "shmem")) == by_pid(text, "whyrss_rss_bytes")[str(pid)]
        assert kinds[str(pid), "anon"] == pytest.approx(kilos(pid, "status", "RssAnon"), abs=MIB)
    heap = by_pid(text, "whyrss_heap_net_bytes")
    assert sorted(heap[str(pid)] // MIB for pid in pids[1:]) == [8, 16, 24]
    assert (single(text, "whyrss_processes"), single(text, "whyrss_other_processes")) == (4, 0)
    assert single(text, "whyrss_seen_processes_total") == 4
    on_disk = sum(path.stat().st_size for path in job.recording.rglob("*.zst"))
    assert single(text, "whyrss_recording_bytes") == pytest.approx(on_disk, rel=0.5)
    assert single(text, "whyrss_dropped_events_total") == single(text, "whyrss_missed_snapshots_total") == 0
    returncode, out, err = job.end()
    assert (returncode, out) == (0, "done\n")
    assert f"whyrss: live figures: {job.url}\n" in err


def test_labels_are_those_of_the_export(jobs, whyrss):
    """One dashboard shows both."""
    job = jobs(workers=1).record("-q", "--metrics", ":0").ready()
    live = [labels for name, labels, _ in samples(settled(job)) if name == "whyrss_rss_bytes"]
    assert job.end() == (0, "done\n", "")
    text = whyrss.run("export", job.recording, "--format", "openmetrics").stdout
    exported = [re.sub(r" \S+$", "", line) for line in text.splitlines() if line.startswith("whyrss_rss_bytes{")]
    assert len(live) == 2
    for labels in live:
        assert "whyrss_rss_bytes{%s}" % ",".join(f'{key}="{value}"' for key, value in labels.items()) in \
            {re.sub(r" \S+$", "", line) for line in exported}


def test_promtool(jobs):
    needs("promtool")
    job = jobs(workers=2).record("-q", "--metrics", ":0").ready()
    output_of("promtool", "check", "metrics", input=scrape(job.url).encode())
    open_text = scrape(job.url, "application/openmetrics-text;version=1.0.0")
    assert open_text.endswith("# EOF\n")
    assert samples(open_text)


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def query(port, expression):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={expression}", timeout=PATIENCE_S) as answer:
        return json.load(answer)["data"]["result"]


def test_prometheus_scrapes(jobs, tmp_path):
    needs("prometheus")
    job = jobs(workers=2).record("-q", "--metrics", ":0").ready()
    port = free_port()
    target = re.match(r"http://(.*)/metrics", job.url)[1]
    config = tmp_path / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: whyrss\n  static_configs:\n"
                      f"  - targets: ['{target}']\n")
    server = subprocess.Popen([shutil.which("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/tsdb",
                               f"--web.listen-address=127.0.0.1:{port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def found():
            with contextlib.suppress(OSError):
                result = query(port, "whyrss_rss_bytes")
                return result if len(result) == 3 else None
        rss = {int(one["metric"]["pid"]): float(one["value"][1]) for one in wait_until(found, "Prometheus has scraped")}
        assert sorted(rss) == sorted(family_of(job))
        for pid, value in rss.items():
            assert value == pytest.approx(kilos(pid, "status", "VmRSS"), abs=MIB)
        assert query(port, "up")[0]["value"][1] == "1"
    finally:
        server.kill()
        server.wait()
    assert job.end() == (0, "done\n", "")


def test_many_processes_are_bounded(jobs):
    job = jobs(workers=80).record("-q", "--metrics", ":0").ready()
    time.sleep(1.1)
    text = wait_until(lambda: found if single(found := scrape(job.url), "whyrss_processes") == 81 else None, "all are there")
    rss = by_pid(text, "whyrss_rss_bytes")
    assert len(rss) == 65
    assert "other" in rss
    assert single(text, "whyrss_processes") == 81
    assert single(text, "whyrss_other_processes") == 17
    pids = family_of(job)
    assert sum(rss.values()) == pytest.approx(sum(kilos(pid, "status", "VmRSS") for pid in pids), rel=0.05)
    listed = [kilos(pid, "status", "VmRSS") for pid in map(int, set(rss) - {"other"})]
    others = [kilos(pid, "status", "VmRSS") for pid in pids if str(pid) not in rss]
    assert min(listed) >= max(others) - MIB


def test_hostile_clients(jobs):
    """Clients that send nothing, too much or nonsense, or do not read, hinder no other client and no collector."""
    job = jobs(workers=1).record("-q", "--metrics", ":0").ready()
    place = ("127.0.0.1", int(re.search(r":(\d+)/", job.url)[1]))
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(socket.create_connection(place)) for _ in range(60)]
        for number, client in enumerate(clients):
            with contextlib.suppress(OSError):  # it may have been dropped already
                client.sendall([b"", b"GET /metrics HT", b"\0" * 9000, b"\x16\x03\x01\r\n\r\n", b"GET /metrics HTTP/1.1\r\n\r\n"][number % 5])
        before = single(scrape(job.url), "whyrss_collector_cpu_seconds_total")
        begin = time.monotonic()
        while time.monotonic() - begin < 2:  # as fast as it can
            with contextlib.suppress(OSError), socket.create_connection(place) as client:
                client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        time.sleep(1.1)
        used_s = single(scrape(job.url), "whyrss_collector_cpu_seconds_total") - before
        assert used_s < 0.5 * (time.monotonic() - begin)
        last = clients[-5]
        last.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError):
            assert last.recv(100) == b""  # one that said nothing
    assert job.end() == (0, "done\n", "")


def test_port_taken(jobs, whyrss):
    first = jobs(workers=1).record("-q", "--metrics", ":0").ready()
    port = re.search(r":(\d+)/", first.url)[1]
    second = jobs(workers=1, name="second").record("-q", "--metrics", f":{port}").ready()
    line = f"no live figures: cannot serve live figures at 127.0.0.1:{port}: Address already in use"
    assert "metrics" not in manifest_of(second.recording)
    assert second.end() == (0, "done\n", f"whyrss: {line}\n")
    assert line in whyrss.finished_report(second.recording)["recording"]["lost"]["notes"]
    assert by_pid(scrape(first.url), "whyrss_rss_bytes")
    assert first.end() == (0, "done\n", "")
    third = jobs(workers=1, name="third").record("-q", "--metrics", f":{port}").ready()  # connections of the first may stand
    assert third.url == first.url
    assert third.end() == (0, "done\n", "")


def test_two_recordings_at_once(jobs):
    both = [jobs(workers=1, name=name).record("-q", "--metrics", ":0") for name in ("a", "b")]
    for job in both:
        job.ready()
    assert both[0].url != both[1].url
    for job in both:
        settled(job)
    for job in both:
        assert job.end() == (0, "done\n", "")


def test_program_killed(jobs, tmp_path):
    """What lives on is still shown, then nothing is: no file of old figures, no listener at the port."""
    file = tmp_path / "live.prom"
    job = jobs(workers=2).record("-q", "--metrics", ":0", "--metrics-file", file).ready()
    url, (target, *workers) = job.url, family_of(job)
    os.kill(target, signal.SIGKILL)
    assert job.process.wait(timeout=PATIENCE_S) == -signal.SIGKILL
    wait_until(lambda: sorted(map(int, by_pid(scrape(url), "whyrss_rss_bytes"))) == sorted(workers), "the workers are left")
    job.release()
    job.whyrss.wait_until_complete(job.recording)
    wait_until(lambda: not file.exists(), "the file is removed")
    with pytest.raises(OSError):
        scrape(url)


def test_collector_killed(jobs):
    """The program goes on, and the port is free."""
    job = jobs(workers=1).record("-q", "--metrics", ":0").ready()
    url, manifest = job.url, manifest_of(job.recording)
    os.kill(manifest["collector"]["pid"], signal.SIGKILL)
    with pytest.raises(OSError):
        wait_until(lambda: not scrape(url), "nobody answers")
    returncode, out, _ = job.end()
    assert (returncode, out) == (0, "done\n")
    pathlib.Path(manifest["pool_path"]).unlink(missing_ok=True)


def test_file(jobs, tmp_path):
    (tmp_path / "textfiles").mkdir()
    # The script makes its own files, which are not for others: the umask is the job's.
    job = jobs(workers=2).record("-q", "--metrics-file", "textfiles/job-%p.prom", cwd=tmp_path, umask=0o027).ready()
    file = tmp_path / f"textfiles/job-{target_of(job)}.prom"
    seen = wait_until(lambda: by_pid(file.read_text(), "whyrss_rss_bytes") if file.exists() else None, "figures are there")
    wait_until(lambda: sorted(map(int, by_pid(file.read_text(), "whyrss_rss_bytes"))) == sorted(family_of(job)), "all are")
    assert seen
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    if shutil.which("promtool"):
        output_of("promtool", "check", "metrics", input=file.read_bytes())
    written = []

    def thrice():
        text = file.read_text()
        assert single(text, "whyrss_collector_cpu_seconds_total") > 0  # of the last families: never half of it
        assert text.endswith("\n")
        time_s = file.stat().st_mtime
        if time_s not in written:
            written.append(time_s)
        return len(written) > 3
    wait_until(thrice, "it is written again and again")
    assert min(after - before for before, after in zip(written, written[1:])) > 0.5  # at most once a second
    assert job.end() == (0, "done\n", "")
    assert list((tmp_path / "textfiles").iterdir()) == []


@pytest.mark.parametrize("place", ["none/a.prom", "folder", "device"])
def test_file_that_cannot_be_written(jobs, whyrss, tmp_path, place):
    (tmp_path / "folder").mkdir()
    path = "/dev/null" if place == "device" else tmp_path / place
    job = jobs(workers=1).record("-q", "--metrics-file", path, "--metrics", ":0").ready()
    wait_until(lambda: len(by_pid(scrape(job.url), "whyrss_rss_bytes")) == 2, "both are there")
    returncode, out, err = job.end()
    assert (returncode, out) == (0, "done\n")
    assert re.fullmatch(r"whyrss: no live figures: cannot write .*\n", err)
    assert err[len("whyrss: "):-1] in whyrss.finished_report(job.recording)["recording"]["lost"]["notes"]
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


def test_folder_without_permission(whyrss):
    """The folder is root's, and another user records."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        pytest.skip("needs root to become somebody else")
    with tempfile.TemporaryDirectory() as name:
        closed, folder = pathlib.Path(name, "closed"), pathlib.Path(name, "own")
        closed.mkdir()
        folder.mkdir()
        os.chmod(name, 0o755)
        os.chown(folder, 65534, 65534)
        result = subprocess.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", whyrss.program, "record", "-q",
                                 "-o", folder / "rec", "--metrics-file", closed / "a.prom", "--", "sh", "-c", "echo done"],
                                capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert (result.returncode, result.stdout) == (0, "done\n"), result.stderr
        assert re.fullmatch(rf"whyrss: no live figures: cannot write {closed}/a.prom.*: Permission denied\n", result.stderr)
        assert list(closed.iterdir()) == []
        assert whyrss.finished_report(folder / "rec")["processes"]


def test_env_only(jobs, whyrss, tmp_path):
    job = jobs(workers=2)
    environment = whyrss.env_only(job.recording, WHYRSS_METRICS=":0", WHYRSS_METRICS_FILE=f"{tmp_path}/a,b.prom")
    job.start(job.command, env=environment).ready()
    settled(job)
    assert (tmp_path / "a,b.prom").exists()
    assert job.end() == (0, "done\n", "")


def test_env_options(jobs, whyrss):
    job = jobs(workers=1)
    job.start(job.command, env=whyrss.env_only(job.recording, WHYRSS_OPTS="metrics=:0,touch=off")).ready()
    assert scrape(job.url)
    assert job.end() == (0, "done\n", "")


@pytest.mark.parametrize("address", ["nonsense", "198.51.100.1:80", "unix:/" + "x" * 6000],
                         ids=["nonsense", "not here", "long"])
def test_env_only_address_that_cannot_be(jobs, whyrss, address):
    """One line, and the job is recorded all the same."""
    job = jobs(workers=1)
    job.start(job.command, env=whyrss.env_only(job.recording, WHYRSS_METRICS=address)).ready()
    returncode, out, err = job.end()
    assert (returncode, out) == (0, "done\n")
    assert re.fullmatch(r"whyrss: no live figures: .*\n", err), err
    report = whyrss.finished_report(job.recording)
    assert len(report["processes"]) == 2
    assert any(note.startswith(err[len("whyrss: "):-1]) for note in report["recording"]["lost"]["notes"])


def test_unix_socket(jobs, tmp_path):
    job = jobs(workers=1).record("-q", "--metrics", "unix:live.sock", cwd=tmp_path).ready()
    path = tmp_path / "live.sock"
    assert job.url == str(path)
    assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = b"".join(iter(lambda: client.recv(65536), b"")).decode()
    assert by_pid(answer.partition("\r\n\r\n")[2], "whyrss_rss_bytes")
    assert job.end() == (0, "done\n", "")
    assert not path.exists()


def test_address_is_checked_before_the_command_runs(whyrss, recording):
    result = whyrss.record(recording, ["true"], "--metrics", "example.org:80")
    assert result.returncode == 125
    assert result.stderr.count("\n") == 1
    assert not recording.exists()


def test_without_metrics_nothing_listens(jobs):
    job = jobs(workers=1).record("-q").ready()
    collector = manifest_of(job.recording)["collector"]["pid"]
    assert is_running(collector)
    sockets = [os.readlink(path) for path in pathlib.Path(f"/proc/{collector}/fd").iterdir()]
    listening = {line.split()[9] for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]
                 if line.split()[3] == "0A"}
    assert not [name for name in sockets if name.removeprefix("socket:[").rstrip("]") in listening]
    assert job.end() == (0, "done\n", "")
