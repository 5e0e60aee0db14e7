"""Writes to pages that a fork shares, as the kernel tells them: which pages are protected, and which have been written."""
import os
import pathlib
import re
import subprocess

import pytest

import conftest
import frame_reader
from conftest import compiled

PAGES = 400
LONG_MS = 60_000


def capability(recording):
    return conftest.manifest_of(recording)["capabilities"]["write_tracking"]


class CowRun:
    """A recorded run of cow_pages."""

    def __init__(self, recording, output):
        if capability(recording) != "yes":
            pytest.skip(f"no write tracking here: {capability(recording)}")
        self.said = dict(re.findall(r"(?m)^(\w+) (\w+)", output))
        self.start = int(self.said["pages"], 16)
        self.snapshots = {name: frame_reader.snapshots(recording, self.said[name]) for name in ("parent", "child")}

    def walks(self, name):
        """The bits of the pages in each walk that saw them tracked, or later."""
        bits = [frame_reader.bits_between(one, self.start, PAGES) for one in self.snapshots[name]
                if isinstance(one, frame_reader.Walk)]
        first = next(index for index, walk in enumerate(bits) if walk[-1] & frame_reader.WRITE_TRACKED)
        return bits[first:]

    def protected(self, name):
        """The pages that are listed as protected, of the region."""
        return {page for one in self.snapshots[name] if isinstance(one, frame_reader.Tracked)
                for start, count in one.runs for page in range((start - self.start) // 4096,
                                                                (start - self.start) // 4096 + count)
                if 0 <= page < PAGES}


def pages_without(walk, bit):
    return [page for page, bits in enumerate(walk) if not bits & bit]


def pages_with(walk, bit):
    return [page for page, bits in enumerate(walk) if bits & bit]


AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def as_nobody(whyrss):
    """What runs a command as another user without any privilege."""
    if os.geteuid() != 0 or not conftest.shutil.which("setpriv"):
        pytest.skip("needs root and setpriv")
    if subprocess.run([*AS_NOBODY, whyrss.program, "--version"], capture_output=True, check=False).returncode != 0:
        pytest.skip("other users cannot run this build of whyrss")
    return AS_NOBODY


@pytest.mark.parametrize("user", ["same", "nobody"])
def test_exactly_the_written_pages_lose_their_protection(whyrss, open_folder, user):
    recording = open_folder / "recording.whyrss"
    program = compiled(open_folder, "cow_pages")
    prefix = as_nobody(whyrss) if user == "nobody" else []
    command = [*prefix, whyrss.program, "record", "-q", "-o", recording, "--", program, str(LONG_MS)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=conftest.PATIENCE_S)
    assert result.returncode == 0, result.stderr
    run = CowRun(recording, result.stdout)
    assert run.said["tracked"] == "1"
    for name in ("parent", "child"):
        assert run.protected(name) == set(range(PAGES))
        first = run.walks(name)[0]
        assert not pages_without(first, frame_reader.WRITE_TRACKED) and not pages_with(first, frame_reader.EXCLUSIVE)

    child, parent = run.walks("child")[-1], run.walks("parent")[-1]
    assert pages_without(child, frame_reader.WRITE_TRACKED) == list(range(130))  # 100 copied, 30 reused
    assert pages_with(child, frame_reader.EXCLUSIVE) == list(range(150))
    assert pages_without(parent, frame_reader.WRITE_TRACKED) == [*range(20), *range(100, 150)]
    assert pages_with(parent, frame_reader.EXCLUSIVE) == list(range(PAGES))  # the child has ended
    before_end = next(walk for walk in reversed(run.walks("parent")) if not walk[-1] & frame_reader.EXCLUSIVE)
    assert pages_with(before_end, frame_reader.EXCLUSIVE) == list(range(150))


@pytest.mark.parametrize("held_up, held_up_ms", [("both", 400), ("parent", 400), ("parent", 1500)])
def test_whoever_has_no_turn_is_waited_for(whyrss, recording, tmp_path, held_up, held_up_ms):
    """As on a busy machine: strace holds up what a process does first to hand over its memory."""
    if not conftest.shutil.which("strace"):
        pytest.skip("strace is not installed")
    program = compiled(tmp_path, "cow_pages")
    slowed = ["strace", *(["-f"] if held_up == "both" else []), "-qq", "-o", "/dev/null", "-e", "trace=userfaultfd",
              "-e", f"inject=userfaultfd:delay_enter={held_up_ms * 1000}"]
    recorded = ["env", f"LD_PRELOAD={whyrss.shim}", f"WHYRSS_OUTPUT={recording}", program, str(LONG_MS)]
    result = subprocess.run([*slowed, *recorded], capture_output=True, text=True, check=False, timeout=conftest.PATIENCE_S)
    assert result.returncode == 0, result.stderr
    run = CowRun(recording, result.stdout)
    assert run.said["tracked"] == "1"
    for name in ("parent", "child"):
        assert run.protected(name) == set(range(PAGES))


def test_switched_off_nothing_is_protected(whyrss, recording, tmp_path):
    program = compiled(tmp_path, "cow_pages")
    result = whyrss.record(recording, [program, "300"], "--write-tracking", "off")
    assert result.returncode == 0, result.stderr
    said = dict(re.findall(r"(?m)^(\w+) (\w+)", result.stdout))
    assert said["tracked"] == "0" and capability(recording) == "switched off"
    for pid in (said["parent"], said["child"]):
        snapshots = frame_reader.snapshots(recording, pid)
        assert snapshots and not any(isinstance(one, frame_reader.Tracked) for one in snapshots)


def tracked_pids(recording):
    """Of the processes whose shared pages were protected."""
    return {path.parent.name.rsplit(".", 2)[1] for path in recording.glob("*/pages.zst")
            if any(kind == frame_reader.TRACKED for kind, _ in frame_reader.frames(path))}


def notes(report):
    return [note for process in report["processes"] for note in process["notes"]]


def run_guest(whyrss, recording, folder, *words, **options):
    program = compiled(folder, "fork_guests")
    result = whyrss.record(recording, [program, *words], **options)
    assert result.returncode == 0 and not result.stderr, (words, result)
    assert result.stdout.endswith(f"{words[0]} 0\n"), result.stdout
    return result


def test_no_descriptor_of_ours_is_ever_there(whyrss, recording, tmp_path):
    bare = subprocess.run([compiled(tmp_path, "fork_guests"), "descriptors"], capture_output=True, text=True, check=True)
    recorded = run_guest(whyrss, recording, tmp_path, "descriptors")
    assert sorted(recorded.stdout.splitlines()) == sorted(bare.stdout.splitlines())


@pytest.mark.parametrize("mode", ["close_range", "own_userfaultfd"])
def test_programs_that_close_all_or_watch_their_own_memory(whyrss, recording, tmp_path, mode):
    run_guest(whyrss, recording, tmp_path, mode, str(LONG_MS))
    if capability(recording) == "yes":
        assert tracked_pids(recording)


@pytest.mark.parametrize("mode", ["threads", "signal", "raw"])
def test_forks_from_anywhere(whyrss, recording, tmp_path, mode):
    run_guest(whyrss, recording, tmp_path, mode)


def test_spawned_programs_share_nothing_that_is_written(whyrss, recording, tmp_path):
    run_guest(whyrss, recording, tmp_path, "spawn")
    assert not tracked_pids(recording)


def test_says_that_no_descriptor_was_left(whyrss, recording, tmp_path):
    run_guest(whyrss, recording, tmp_path, "no_descriptors")
    assert not tracked_pids(recording)
    if capability(recording) == "yes":
        assert any("not tracked" in note for note in notes(whyrss.finished_report(recording)))


def test_says_that_the_collector_is_out_of_reach(whyrss, recording, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("needs root to chroot")
    jail = tmp_path / "jail"
    jail.mkdir()
    run_guest(whyrss, recording, tmp_path, "chroot", str(jail))
    assert not tracked_pids(recording)
    if capability(recording) == "yes":
        assert any("not tracked" in note for note in notes(whyrss.finished_report(recording)))


def test_the_program_goes_on_when_the_collector_is_killed(whyrss, recording, tmp_path):
    program = compiled(tmp_path, "fork_guests")
    with subprocess.Popen([program, "outlive", str(LONG_MS)], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          env=whyrss.env_only(recording)) as process:
        tracked = process.stdout.readline()
        manifest = conftest.manifest_of(recording)
        conftest.kill_and_wait(manifest["collector"]["pid"])
        output, _ = process.communicate("\n", timeout=conftest.PATIENCE_S)
    for leftover in (pathlib.Path(manifest["pool_path"]), pathlib.Path(manifest["pool_path"] + ".memory")):
        leftover.unlink(missing_ok=True)
    assert tracked == ("tracked 1\n" if capability(recording) == "yes" else "tracked 0\n")
    assert output == "outlive 0\n" and process.returncode == 0


@pytest.mark.parametrize("action", ["eperm", "enosys", "kill"])
def test_a_filter_that_came_later_is_not_put_to_the_test(whyrss, forbid, recording, tmp_path, action):
    program = compiled(tmp_path, "cow_pages")
    result = whyrss.record(recording, [*forbid(action, "userfaultfd"), program, "300"])
    assert result.returncode == 0 and "tracked 0" in result.stdout, (result.stdout, result.stderr)
    assert not tracked_pids(recording)
    if capability(recording) == "yes":
        assert any("seccomp" in note for note in notes(whyrss.finished_report(recording)))


@pytest.mark.parametrize("action", ["eperm", "enosys"])
def test_where_userfaultfd_is_refused_shared_bits_are_all(whyrss, forbid, recording, tmp_path, action):
    program = compiled(tmp_path, "cow_pages")
    result = subprocess.run([*forbid(action, "userfaultfd"), whyrss.program, "record", "-q", "-o", recording, "--", program,
                             "300"], capture_output=True, text=True, check=False, timeout=conftest.PATIENCE_S)
    assert result.returncode == 0 and "tracked 0" in result.stdout, (result.stdout, result.stderr)
    assert capability(recording).startswith("userfaultfd") and not tracked_pids(recording)
    report = whyrss.finished_report(recording)
    assert report["recording"]["capabilities"]["write_tracking"] is False
    assert not any("not tracked" in note for note in notes(report))  # said once, of the machine
