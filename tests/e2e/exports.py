"""What the tests of exports share: recordings, and the totals that each file is compared with."""
import collections
import json
import shutil
import subprocess
import tempfile

import pytest

from conftest import ROOT

# Names of files and functions that some format gives a meaning to.
HOSTILE = "a;b \"c\" 'd' <script>alert(1)\x1b[31m \n=1+1,{x=\"y\"} \\'); DROP TABLE site; -- é"
PROGRAM = f"""
import mmap, os, sys, time
name = {HOSTILE!r}
code = compile("def grow(n):\\n    return [str(i) * 3 for i in range(n)]\\n", "/tmp/=cmd|'x'!" + name, "exec")
names = {{}}
exec(code, names)
grow = names["grow"]
grow.__code__ = grow.__code__.replace(co_name=name, **({{"co_qualname": name}} if sys.version_info >= (3, 11) else {{}}))
kept = grow(200_000)
passing = bytearray(40 << 20)
path = sys.argv[1].encode() + b"/data \\xff;\\"<b>\\x1b[1m.bin"
with open(path, "w+b") as file:
    file.truncate(12 << 20)
    text = mmap.mmap(file.fileno(), 0)
    total = sum(text[at] for at in range(0, len(text), 4096))
time.sleep(0.3)
del passing
for _ in range(3):
    if os.fork() == 0:
        size = sum(len(item) for item in kept)
        time.sleep(0.3)
        os._exit(0)
for _ in range(3):
    os.wait()
del kept[100_000:]
time.sleep(0.3)
"""


def needs(*programs):
    for program in programs:
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")


def output_of(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, check=False, **options)
    assert result.returncode == 0, result.stderr
    return result.stdout


class Exported:
    """One recording and its exports."""

    def __init__(self, whyrss, recording, folder):
        self.whyrss, self.recording, self.folder = whyrss, recording, folder

    def file(self, form, *options, name=None):
        """The recording in that format; whyrss says nothing but what is in `said`."""
        path = self.folder / (name or f"export.{form}")
        result = self.whyrss.run("export", self.recording, "--format", form, "-o", path, *options)
        assert result.returncode == 0, result.stderr
        assert result.stdout == ""
        self.said = result.stderr
        return path

    def report(self, *options):
        return json.loads(self.whyrss.report_text(self.recording, *options))

    def totals(self, *options):
        """(pid, cause, suffix of FIGURES) -> bytes, of what is not 0."""
        sums = {}
        for process in self.report(*options)["processes"]:
            for cause in process["causes"]:
                values = {"": cause["rss"]["last"], "_growth": cause["growth"]["rss"], "_at_peak": cause["rss"]["at_peak"]}
                for suffix, value in values.items():
                    if value:
                        sums[process["pid"], cause["cause"], suffix] = value
        return sums


def summed(totals, *keys):
    """Over what is not among `keys`, which are positions; sums of 0 are left out."""
    sums = collections.Counter()
    for key, value in totals.items():
        sums[tuple(key[at] for at in keys)] += value
    return {key: value for key, value in sums.items() if value}


def expected_pprof(totals):
    sums = collections.Counter()
    for (pid, cause, suffix), value in totals.items():
        sums[pid, cause + suffix] += value
        sums[pid, "rss" + suffix] += value
    return sums


def non_zero(sums):
    return {key: value for key, value in sums.items() if value}


@pytest.fixture(scope="module")
def job(whyrss, tmp_path_factory):
    """A program of four processes with hostile names, which ends with less than it had."""
    folder = tmp_path_factory.mktemp("exports")
    (folder / "job.py").write_text(PROGRAM)
    result = whyrss.record(folder / "job.whyrss", ["/usr/bin/python3", folder / "job.py", folder])
    assert result.returncode == 0, result.stderr
    whyrss.finished_report(folder / "job.whyrss")
    return Exported(whyrss, folder / "job.whyrss", folder)


@pytest.fixture(scope="module")
def killed(whyrss, tmp_path_factory):
    """A program that dies by SIGKILL while it works."""
    folder = tmp_path_factory.mktemp("killed")
    source = "import os, signal\nkept = [bytes(3000) for _ in range(20_000)]\nos.kill(os.getpid(), signal.SIGKILL)"
    whyrss.record(folder / "killed.whyrss", ["/usr/bin/python3", "-c", source])
    return Exported(whyrss, folder / "killed.whyrss", folder)


@pytest.fixture(scope="module")
def unseen(job, tmp_path_factory):
    """The job's recording without walks, as if no process could be walked."""
    folder = tmp_path_factory.mktemp("unseen")
    shutil.copytree(job.recording, folder / "unseen.whyrss")
    for pages in (folder / "unseen.whyrss").glob("*/pages.zst"):
        pages.unlink()
    made = Exported(job.whyrss, folder / "unseen.whyrss", folder)
    assert made.totals() == {}
    return made


@pytest.fixture(params=["job", "killed", "unseen"])
def exported(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="session")
def readers():
    """The folder of npm packages that read our files."""
    folder = ROOT / "build/readers/node_modules"
    if not folder.is_dir() or not shutil.which("node"):
        pytest.skip("no npm packages that read exports: tests/fetch-readers installs them")
    return folder


def node_output(readers, script, *arguments):
    """What a module prints that may import those packages."""
    with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=readers.parent) as file:
        file.write(script)
        file.flush()
        return output_of("node", file.name, *arguments)
