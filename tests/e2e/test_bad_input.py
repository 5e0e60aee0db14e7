"""Damaged recordings, places that cannot be written, limits set low: one clear line, never a crash."""
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S, manifest_of, wait_until
from expected.report_reading import assert_conserved

WORK = r"""
import os, sys
kept = []
for step in range(200):
    kept.append(bytes(400_000))
    text = bytearray(60_000)
pid = os.fork()
if pid == 0:
    kept[0] = None
    os._exit(0)
os.waitpid(pid, 0)
print("worked", len(kept))
"""


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    script = tmp_path_factory.mktemp("work") / "work.py"
    script.write_text(WORK)
    return ["/usr/bin/python3", str(script)]


@pytest.fixture(scope="module")
def sound(whyrss, tmp_path_factory, work):
    """A sound, complete recording; tests damage copies of it."""
    recording = tmp_path_factory.mktemp("sound") / "recording.whyrss"
    assert whyrss.record(recording, work).returncode == 0
    whyrss.finished_report(recording)
    return recording


def main_files(recording):
    """events.zst and pages.zst of the recorded program."""
    pid = manifest_of(recording)["target_pid"]
    folder = next(path for path in recording.iterdir() if path.is_dir() and path.name.split(".")[-2] == str(pid))
    return [folder / "events.zst", folder / "pages.zst"]


def assert_refused(result, *words):
    assert result.returncode == 1
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1, result.stderr
    assert all(word in result.stderr for word in words), result.stderr


def assert_readable_or_refused(whyrss, recording, truth):
    """Either one clear line, or a report that holds no figure larger than the truth."""
    result = whyrss.run("report", recording, "--format", "json")
    if result.returncode != 0:
        assert_refused(result, "recording")
        return None
    report = json.loads(result.stdout)
    for process in report["processes"]:
        if process["causes"]:
            for moment, total in (("first", "first"), ("last", "last"), ("at_peak", "peak")):
                assert sum(entry["rss"][moment] for entry in process["causes"]) == process["rss"][total]
            assert process["rss"]["peak"] <= truth
    return report


def admits_loss(report):
    """Whether the report says that something is missing, for the recording or for one of its processes."""
    recording = report["recording"]
    return not recording["complete"] or recording["lost"]["notes"] or recording["lost"]["snapshots"] or \
        any(process["notes"] or process["traced"] == "kernel" for process in report["processes"])


# Each CPU keeps up to so many pages to itself before it adds them to the counters of a process (percpu_counter_batch in
# lib/percpu_counter.c, from Linux 6.2 on): statm may be above VmHWM by that.
COUNTER_BYTES = max(32, 2 * os.cpu_count()) * 4096 * os.cpu_count()


def high_water(report):
    """By the kernel's own counter, which no RSS of whatever moment exceeds: a report without the last walk is of another
    moment."""
    return max(process["rss"]["high_water"] or 0 for process in report["processes"]) + COUNTER_BYTES


def test_report_on_what_is_no_recording(whyrss, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.json").write_text("{}")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "manifest.json").write_text('{"name": "a web page"}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "manifest.json").write_text('{"version": ')
    (tmp_path / "blob").write_bytes(random.Random(1).randbytes(100_000))
    for name in ("missing", "empty", "file.json", "foreign", "broken", "blob"):
        for form in ("text", "json"):
            assert_refused(whyrss.run("report", tmp_path / name, "--format", form), name)


def test_usage_errors(whyrss, sound):
    """2, but 125 for record, whose status is the job's otherwise."""
    for code, arguments in ((2, ["report"]), (2, ["report", sound, "--format", "yaml"]), (2, ["report", sound, "--top", "many"]),
                            (125, ["record", "--no-such-option", "true"]), (125, ["record"])):
        result = whyrss.run(*arguments)
        assert result.returncode == code, arguments
        assert result.stderr and result.stdout == "", arguments


def test_cut_at_every_4_kib(whyrss, sound, tmp_path):
    truth = high_water(whyrss.report(sound))
    for file in main_files(sound):
        data = file.read_bytes()
        for length in [0, 1, 63, 64, 65, *range(4096, len(data), 4096), len(data) - 1]:
            copy = tmp_path / f"cut-{file.name}-{length}.recording"
            shutil.copytree(sound, copy)
            (copy / file.relative_to(sound)).write_bytes(data[:length])
            report = assert_readable_or_refused(whyrss, copy, truth)
            assert report is None or admits_loss(report), (file.name, length)
            shutil.rmtree(copy)


def test_flipped_bits(whyrss, sound, tmp_path):
    """Each flip costs the frame that it hits, the report says so, and no figure grows."""
    truth = high_water(whyrss.report(sound))
    chance = random.Random(2)
    for file in main_files(sound):
        data = file.read_bytes()
        for at in [0, 9, 20, 60, 64, 70, 80, 90, 96, *(chance.randrange(len(data)) for _ in range(40))]:
            damaged = bytearray(data)
            damaged[at] ^= 1 << chance.randrange(8)
            copy = tmp_path / f"flip-{file.name}-{at}.recording"
            shutil.copytree(sound, copy, dirs_exist_ok=True)
            (copy / file.relative_to(sound)).write_bytes(damaged)
            report = assert_readable_or_refused(whyrss, copy, truth)
            assert report is None or admits_loss(report), (file.name, at)
            shutil.rmtree(copy)


def test_damaged_manifest(whyrss, sound, tmp_path):
    data = (sound / "manifest.json").read_bytes()
    truth = high_water(whyrss.report(sound))
    chance = random.Random(3)
    for number in range(60):
        copy = tmp_path / f"manifest-{number}.recording"
        shutil.copytree(sound, copy)
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] = chance.randrange(256)
        (copy / "manifest.json").write_bytes(damaged if number % 2 else data[:chance.randrange(len(data))])
        assert_readable_or_refused(whyrss, copy, truth)
        shutil.rmtree(copy)


def test_files_swapped_or_gone(whyrss, sound, tmp_path):
    truth = high_water(whyrss.report(sound))
    for number, change in enumerate((lambda events, pages: events.rename(pages), lambda events, pages: events.unlink(),
                                     lambda events, pages: pages.unlink(), lambda events, pages: shutil.rmtree(pages.parent))):
        copy = tmp_path / f"changed-{number}.recording"
        shutil.copytree(sound, copy)
        change(*(copy / file.relative_to(sound) for file in main_files(sound)))
        assert_readable_or_refused(whyrss, copy, truth)


def test_existing_output_is_kept(whyrss, sound, tmp_path, work):
    copy = tmp_path / "recording.whyrss"
    shutil.copytree(sound, copy)
    result = whyrss.record(copy, work)
    assert result.returncode == 125
    assert len(result.stderr.splitlines()) == 1 and str(copy) in result.stderr
    assert "worked" not in result.stdout
    assert whyrss.report(copy)["recording"]["started"] == whyrss.report(sound)["recording"]["started"]
    assert whyrss.record(copy, work, "-f").returncode == 0
    assert whyrss.finished_report(copy)["recording"]["started"] != whyrss.report(sound)["recording"]["started"]


def test_force_removes_no_foreign_directory(whyrss, tmp_path, work):
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis.txt").write_text("years of work")
    result = whyrss.record(home, work, "-f")
    assert result.returncode == 125 and str(home) in result.stderr
    assert (home / "thesis.txt").read_text() == "years of work"


def test_output_that_cannot_be_made(whyrss, tmp_path, work):
    (tmp_path / "file").write_text("")
    for output in (tmp_path / "file" / "below", "/proc/no/such/place"):
        result = whyrss.record(output, work)
        assert result.returncode == 125
        assert len(result.stderr.splitlines()) == 1 and str(output) in result.stderr
        assert "worked" not in result.stdout


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 512 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine does not let us mount a small tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_disk_full_from_the_start(whyrss, small_disk, work):
    with open(small_disk / "filler", "wb", buffering=0) as filler:
        fill(filler)
    result = whyrss.record(small_disk / "recording", work)
    assert result.returncode in (0, 125)  # 125 when not even the directory can be made
    assert len(result.stderr.splitlines()) <= 1
    assert ("worked" in result.stdout) == (result.returncode == 0)


def fill(file):
    try:
        while True:
            file.write(bytes(4096))
    except OSError:
        pass


def test_disk_full_in_the_middle(whyrss, small_disk, tmp_path):
    """The job ends as ever; the recording reads, and says that something is missing."""
    recording = small_disk / "recording"
    script = tmp_path / "filling.py"
    script.write_text(f"""
import os, time
kept = [bytearray(1 << 20) for _ in range(40)]
time.sleep(1.5)
with open({str(small_disk / "filler")!r}, "wb", buffering=0) as filler:
    try:
        while True:
            filler.write(bytes(512))
    except OSError:
        pass
kept += [bytearray(1 << 20) for _ in range(40)]
for step in range(300_000):
    bytearray(50_000 + step)
for step in range(5):
    if os.fork() == 0:
        kept.clear()
        os._exit(0)
    os.wait()
print("worked", len(kept))
""")
    result = whyrss.record(recording, ["/usr/bin/python3", script])
    assert result.returncode == 0
    assert result.stdout == "worked 80\n"
    report = wait_until(lambda: whyrss.report(recording), "the recording reads")
    assert report["processes"][0]["rss"]["peak"] >= 40 << 20
    assert admits_loss(report)
    assert_conserved(report)


def limited(kind, value):
    def set_limit():
        resource.setrlimit(kind, (value, value))
    return set_limit


LIMITS = {"AS 96 MiB": (resource.RLIMIT_AS, 96 << 20), "AS 256 MiB": (resource.RLIMIT_AS, 256 << 20),
          "FSIZE 0": (resource.RLIMIT_FSIZE, 0), "FSIZE 64 KiB": (resource.RLIMIT_FSIZE, 64 << 10),
          "NOFILE 16": (resource.RLIMIT_NOFILE, 16), "NOFILE 4": (resource.RLIMIT_NOFILE, 4)}


@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("way", ["env", "inside"])
def test_low_limits(whyrss, recording, tmp_path, limit, way):
    """A job under a limit does what it does without us; set before the shim starts, or by a shell of the job."""
    script = tmp_path / "small.py"
    script.write_text("import os\nkept = bytes(4_000_000)\npid = os.fork()\nif pid == 0:\n    os._exit(0)\n"
                      "os.waitpid(pid, 0)\nprint('worked', len(kept))\n")
    options = {"capture_output": True, "text": True, "timeout": PATIENCE_S, "check": False}
    bare = subprocess.run(["/usr/bin/python3", script], preexec_fn=limited(*limit), **options)
    if way == "env":
        result = subprocess.run(["/usr/bin/python3", script], preexec_fn=limited(*limit), env=whyrss.env_only(recording), **options)
    else:
        code = (f"import os, resource, sys; resource.setrlimit({int(limit[0])}, ({limit[1]}, {limit[1]})); "
                "os.execv('/usr/bin/python3', ['/usr/bin/python3', sys.argv[1]])")
        result = whyrss.record(recording, ["/usr/bin/python3", "-c", code, script])
    assert (result.returncode, result.stdout) == (bare.returncode, bare.stdout)
    own_lines = [line for line in result.stderr.splitlines() if line.startswith("whyrss")]
    assert len(own_lines) <= 1
    assert [line for line in result.stderr.splitlines() if line not in own_lines] == bare.stderr.splitlines()
    if pathlib.Path(recording).exists():
        assert whyrss.run("report", recording).returncode in (0, 1)
