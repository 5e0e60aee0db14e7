"""Where a recording may lie, and who may read it: in no place that another user can swap, and only this user."""
import os
import pathlib
import shutil
import stat
import subprocess

import pytest

from conftest import PATIENCE_S, is_running, kill_and_wait, manifest_of, wait_until

NOBODY = 65534
OTHER = 54321
WORK = ["/bin/sh", "-c", "echo worked"]
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else too")


@pytest.fixture
def shared(open_folder):
    """A directory as /tmp: root's, sticky, for everybody."""
    return open_folder


def assert_refused(whyrss, output, *words, **options):
    """`record` does not start the program; the program alone runs, unrecorded. Each says why in one line."""
    result = whyrss.run("record", "-q", "-o", output, "--", *WORK, **options)
    assert result.returncode == 125, result.stderr
    assert "worked" not in result.stdout
    messages = [result.stderr]
    result = subprocess.run(WORK, env=whyrss.env_only(output), capture_output=True, text=True, timeout=PATIENCE_S,
                            check=False, **options)
    assert (result.returncode, result.stdout) == (0, "worked\n"), result.stderr
    messages.append(result.stderr)
    for text in messages:
        assert len(text.splitlines()) == 1 and text.startswith("whyrss: "), text
        assert all(str(word) in text for word in words), text


def assert_recorded(whyrss, output, **options):
    result = whyrss.run("record", "-q", "-o", output, "--", *WORK, **options)
    assert (result.returncode, result.stdout, result.stderr) == (0, "worked\n", "")
    assert whyrss.run("report", output, **options).returncode == 0


def test_behind_a_symlink(whyrss, tmp_path):
    """Also a link of one's own: whichever user made it, the recording would lie elsewhere."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for output in (tmp_path / "link", tmp_path / "link" / "recording", tmp_path / "link" / "a" / "b",
                   tmp_path / "dangling", tmp_path / "dangling" / "recording"):
        assert_refused(whyrss, output, output, "symbolic link")
    assert list((tmp_path / "real").iterdir()) == [] and not (tmp_path / "nothing").exists()


def test_links_of_the_system_are_followed(whyrss):
    """As of /var/run to /run, and of scratch directories on clusters."""
    link = pathlib.Path("/var/run")
    if not link.is_symlink() or os.geteuid() != 0:
        pytest.skip("/var/run is no link here, or not to be written")
    output = link / f"whyrss-test-{os.getpid()}"
    try:
        assert_recorded(whyrss, output)
    finally:
        shutil.rmtree(output, ignore_errors=True)


def test_tmp_stays_usable(whyrss, shared):
    assert_recorded(whyrss, shared / "recording")
    (shared / "mine").mkdir()
    assert_recorded(whyrss, shared / "mine")  # one's own empty directory
    assert_recorded(whyrss, shared / "made" / "on the way" / "recording")


@needs_root
def test_tmp_stays_usable_for_others(whyrss, shared):
    assert_recorded(whyrss, shared / "recording", user=OTHER, group=OTHER, extra_groups=[], cwd=shared)
    assert (shared / "recording").stat().st_uid == OTHER


@needs_root
def test_planted_in_tmp(whyrss, shared):
    """A directory or a link that another user has put where the recording, or what is above it, is to lie."""
    for name in ("empty", "open"):
        (shared / name).mkdir(mode=0o777)
        os.chown(shared / name, NOBODY, NOBODY)
    (shared / "open").chmod(0o777)
    (shared / "link").symlink_to("/root")
    os.chown(shared / "link", NOBODY, NOBODY, follow_symlinks=False)
    for output in (shared / "empty", shared / "open", shared / "link", shared / "open" / "recording",
                   shared / "empty" / "recording", shared / "link" / "recording"):
        assert_refused(whyrss, output, output)
    assert list((shared / "open").iterdir()) == []


@needs_root
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_in_a_directory_of_somebody_else_that_others_may_write(whyrss, tmp_path, mode):
    place = tmp_path / "theirs"
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    place.chmod(mode)
    assert_refused(whyrss, place / "recording", place, "belongs to the user with the id", "others may write")
    (place / "mine").mkdir()
    assert_refused(whyrss, place / "mine" / "recording", place, "others may write")
    assert list((place / "mine").iterdir()) == []


@needs_root
def test_somebody_elses_world_writable_directory_without_sticky_bit(whyrss, shared):
    """It is root's own, and another user records."""
    (shared / "of root").mkdir()
    (shared / "of root").chmod(0o777)
    assert_refused(whyrss, shared / "of root" / "recording", "others may write", user=OTHER, group=OTHER,
                   extra_groups=[], cwd=shared)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
@pytest.mark.parametrize("way", ["record", "env"])
def test_nobody_else_may_read_a_recording(whyrss, tmp_path, umask, way):
    """Every directory 0700 and every file 0600, also when the collector was killed, and after a report."""
    recording = tmp_path / "recording.whyrss"
    script = "kept = [bytes(50_000) for _ in range(100)]\nimport time\ntime.sleep(600)\n"
    command = ["/usr/bin/python3", "-c", script]
    if way == "record":
        started = subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", *command], umask=umask)
    else:
        started = subprocess.Popen(command, env=whyrss.env_only(recording), umask=umask)
    with started:
        wait_until(lambda: list(recording.glob("*/pages.zst")), "there is a recording")
        wait_until(lambda: manifest_of(recording)["collector"]["pid"], "the manifest names the collector")
        manifest = manifest_of(recording)
        pool = pathlib.Path(manifest["pool_path"])
        assert stat.S_IMODE(pool.stat().st_mode) == 0o600
        assert_closed(recording)
        for pid in (manifest["collector"]["pid"], manifest["target_pid"], started.pid):
            if is_running(pid):
                kill_and_wait(pid)
    assert whyrss.run("report", recording, umask=umask).returncode == 0
    assert (recording / "pool").exists()
    assert_closed(recording)


def assert_closed(recording):
    for path in [recording, *recording.rglob("*")]:
        try:
            mode = stat.S_IMODE(path.lstat().st_mode)
        except FileNotFoundError:  # manifest.json.new
            continue
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))


def test_an_open_directory_is_closed(whyrss, tmp_path):
    """One that the user has made for it, and one that is replaced."""
    recording = tmp_path / "recording.whyrss"
    recording.mkdir()
    recording.chmod(0o755)
    assert_recorded(whyrss, recording)
    assert_closed(recording)
    recording.chmod(0o777)
    assert whyrss.run("record", "-q", "-f", "-o", recording, "--", *WORK).returncode == 0
    assert_closed(recording)


def test_a_tree_of_programs_says_it_once(whyrss, tmp_path):
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    tree = "/bin/true; /bin/sh -c '/bin/true; /bin/true'; exec /bin/echo worked"
    result = subprocess.run(["/bin/sh", "-c", tree], env=whyrss.env_only(tmp_path / "dangling"), capture_output=True,
                            text=True, timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout) == (0, "worked\n")
    assert len(result.stderr.splitlines()) == 1 and "symbolic link" in result.stderr, result.stderr
