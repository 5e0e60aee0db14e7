"""A recording made by another user: a report of it touches nothing outside of it, and waits for nothing in it.

That user may write anything into it, swap its directories while it is read, and name any file as the shared memory
that its collector left. A report reads and removes that memory only for the user who recorded.
"""
import json
import os
import pathlib
import shutil
import socket
import stat
import subprocess

import pytest

from conftest import PATIENCE_S, kill_and_wait, manifest_of, wait_until

NOBODY = 65534
SHARED_MEMORY = pathlib.Path("/dev/shm")
VERBS = (["report"], ["report", "--format", "json"], ["prove"], ["export", "--format", "csv"])
WAITS = "import time; kept = [bytes(50_000) for _ in range(200)]; time.sleep(600)"


def is_root():
    return os.geteuid() == 0


needs_root = pytest.mark.skipif(not is_root(), reason="only root can be somebody else too")


def tree_of(folder):
    """Everything below a folder: name, kind, and contents of files."""
    return {str(path.relative_to(folder)): (stat.S_IFMT(path.lstat().st_mode), path.read_bytes() if path.is_file() else b"")
            for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def sound(whyrss, tmp_path_factory):
    """A complete recording, of a program with native names; tests damage copies of it."""
    recording = tmp_path_factory.mktemp("sound") / "recording.whyrss"
    assert whyrss.record(recording, ["/usr/bin/python3", "-c", "kept = [bytes(50_000) for _ in range(200)]"]).returncode == 0
    whyrss.finished_report(recording)
    return recording


@pytest.fixture(scope="module")
def killed(whyrss, tmp_path_factory):
    """A recording whose collector and program were killed, and a copy of the pool that they left: (folder, pool)."""
    folder = tmp_path_factory.mktemp("killed")
    recording = folder / "recording.whyrss"
    command = [whyrss.program, "record", "-q", "-o", recording, "--", "/usr/bin/python3", "-c", WAITS]
    with subprocess.Popen(command) as record:
        manifest = wait_until(lambda: manifest_of(recording), "there is a manifest")
        wait_until(lambda: list(recording.glob("*/events.zst")), "the program is followed")
        kill_and_wait(record.pid, manifest["collector"]["pid"], manifest["target_pid"])
    pool = pathlib.Path(manifest["pool_path"])
    assert pool.parent == SHARED_MEMORY
    shutil.copy(pool, folder / "pool")
    pool.unlink()
    pool.with_name(pool.name + ".memory").unlink(missing_ok=True)
    return recording, folder / "pool"


class Attack:
    """A copy of the killed recording, whose manifest can be rewritten."""

    def __init__(self, killed, folder):
        self.recording = folder / "attack" / "recording.whyrss"
        self.recording.parent.mkdir(mode=0o755)
        shutil.copytree(killed[0], self.recording)
        self.pool = killed[1]
        self.session = self.manifest()["session"]
        self.shared = SHARED_MEMORY / f"whyrss.{self.session}"

    def manifest(self, **changed):
        manifest = {**manifest_of(self.recording), **changed}
        if changed:
            (self.recording / "manifest.json").write_text(json.dumps(manifest))
        return manifest

    def give_to(self, user):
        for path in [self.recording, *self.recording.rglob("*")]:
            os.chown(path, user, user, follow_symlinks=False)

    def put_pool(self, path, owner=None):
        shutil.copy(self.pool, path)
        path.chmod(0o600)
        if owner is not None:
            os.chown(path, owner, owner)
        return path

    def report(self, whyrss):
        result = whyrss.run("report", self.recording, "--format", "json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["recording"]["lost"]["notes"]


@pytest.fixture
def attack(killed, tmp_path):
    made = Attack(killed, tmp_path)
    yield made
    for left in (made.shared, made.shared.with_name(made.shared.name + ".memory")):
        left.unlink(missing_ok=True)


@pytest.fixture
def precious(tmp_path):
    """A file of the user that no report may touch, though it is a pool of the right session."""
    def make(attack, name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return attack.put_pool(path)
    return make


def assert_untouched(path, before):
    assert path.is_file() and path.read_bytes() == before


def test_own_leftovers_are_taken_with_the_socket(whyrss, attack):
    """What the checks are not to break: the pool moves into the recording, and nothing stays in memory."""
    attack.put_pool(attack.shared)
    dead = attack.shared.with_name(attack.shared.name + ".memory")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(dead))
    assert not any("was not read" in note for note in attack.report(whyrss))
    assert not attack.shared.exists() and not dead.exists()
    rescued = attack.recording / "pool"
    assert stat.S_IMODE(rescued.stat().st_mode) == 0o600
    assert not any("was not read" in note for note in attack.report(whyrss))  # from the recording now
    assert rescued.is_file()


def test_a_pool_in_the_recording_stays(whyrss, attack):
    """Where /dev/shm had no room; a report once removed it."""
    rescued = attack.put_pool(attack.recording / "pool")
    attack.manifest(pool_path=str(rescued))
    for _ in range(2):
        attack.report(whyrss)
        assert_untouched(rescued, attack.pool.read_bytes())


def test_a_foreign_pool_path(whyrss, attack, precious):
    """A pool of the right session even: another recording's, which the user who made this recording could not read."""
    victim = precious(attack, "home/secret")
    before = victim.read_bytes()
    attack.manifest(pool_path=str(victim))
    notes = attack.report(whyrss)
    assert_untouched(victim, before)
    assert not (attack.recording / "pool").exists()
    assert [note for note in notes if str(victim) in note and "was not read" in note], notes


@pytest.mark.parametrize("up", ["..", "../../dev/shm/../.."])
def test_a_pool_path_with_dots(whyrss, attack, precious, up):
    victim = precious(attack, "secret")
    attack.manifest(pool_path=f"/dev/shm/{up}{victim}")
    attack.report(whyrss)
    assert_untouched(victim, attack.pool.read_bytes())
    assert not (attack.recording / "pool").exists()


def test_symlinked_parents_of_the_pool(whyrss, attack, precious, tmp_path):
    victim = precious(attack, f"home/whyrss.{attack.session}")
    (tmp_path / "link").symlink_to(victim.parent)
    attack.manifest(pool_path=str(tmp_path / "link" / victim.name))
    attack.report(whyrss)
    assert_untouched(victim, attack.pool.read_bytes())


def test_a_symlink_in_place_of_the_pool(whyrss, attack, precious):
    victim = precious(attack, "secret")
    attack.shared.symlink_to(victim)
    notes = attack.report(whyrss)
    assert_untouched(victim, attack.pool.read_bytes())
    assert attack.shared.is_symlink()
    assert [note for note in notes if "was not read" in note], notes


def test_a_hardlink_in_place_of_the_pool(whyrss, attack):
    """It has another name too: the program that made that name may need the file."""
    victim = attack.put_pool(SHARED_MEMORY / "another-program's-file")
    try:
        os.link(victim, attack.shared)
        notes = attack.report(whyrss)
        assert_untouched(victim, attack.pool.read_bytes())
        assert attack.shared.exists() and not (attack.recording / "pool").exists()
        assert [note for note in notes if "was not read" in note], notes
    finally:
        victim.unlink()


@pytest.mark.parametrize("kind", ["fifo", "directory", "another session"])
def test_something_else_in_place_of_the_pool(whyrss, attack, kind):
    if kind == "fifo":
        os.mkfifo(attack.shared)
    elif kind == "directory":
        attack.shared.mkdir()
    else:
        data = bytearray(attack.pool.read_bytes())
        at = 16  # of the session in the header (shim/trace/pool.h)
        data[at] ^= 1
        attack.shared.write_bytes(data)
    try:
        notes = attack.report(whyrss)
        assert attack.shared.exists() and not (attack.recording / "pool").exists()
        assert [note for note in notes if "was not read" in note], notes
    finally:
        if kind == "directory":
            attack.shared.rmdir()


@needs_root
def test_a_pool_of_somebody_else(whyrss, attack):
    attack.put_pool(attack.shared, NOBODY)
    notes = attack.report(whyrss)
    assert_untouched(attack.shared, attack.pool.read_bytes())
    assert [note for note in notes if "was not read" in note and str(NOBODY) in note], notes


@needs_root
@pytest.mark.parametrize("whose", ["all", "directory", "manifest"])
def test_a_recording_of_somebody_else(whyrss, attack, whose):
    """root reads what another user recorded: the report comes, and says what it left alone."""
    attack.put_pool(attack.shared, NOBODY if whose == "all" else None)
    if whose == "all":
        attack.give_to(NOBODY)
    else:
        os.chown(attack.recording if whose == "directory" else attack.recording / "manifest.json", NOBODY, NOBODY)
    before = tree_of(attack.recording)
    notes = attack.report(whyrss)
    after = tree_of(attack.recording)
    if whose == "manifest":
        after.pop("symbols.zst", None)  # names may be kept in a directory of one's own
        before.pop("symbols.zst", None)
    assert after == before
    assert_untouched(attack.shared, attack.pool.read_bytes())
    assert [note for note in notes if "was not read" in note and str(NOBODY) in note], notes


def test_a_recording_that_others_may_write(whyrss, attack):
    """A user who may put a manifest there could have a pool of this user moved to where that user reads it."""
    attack.put_pool(attack.shared)
    attack.recording.chmod(0o777)
    notes = attack.report(whyrss)
    assert_untouched(attack.shared, attack.pool.read_bytes())
    assert [note for note in notes if "was not read" in note and "others may write" in note], notes


@needs_root
def test_nobody_reads_the_recording_of_root(whyrss, attack, open_folder):
    """The other way round, as that user; the recording is made readable for it."""
    attack.put_pool(attack.shared)
    recording = open_folder / "recording.whyrss"
    shutil.copytree(attack.recording, recording)
    for path in [recording, *recording.rglob("*")]:
        path.chmod(0o755)
    before = tree_of(recording)
    result = whyrss.run("report", recording, user=NOBODY, group=NOBODY, extra_groups=[],
                        env={**os.environ, "HOME": str(open_folder / "nothing")})
    assert result.returncode == 0, result.stderr
    assert "was not read" in result.stdout and "user with the id 0" in result.stdout
    assert tree_of(recording) == before
    assert_untouched(attack.shared, attack.pool.read_bytes())


def holds_open(tracer, path):
    """Whether a child of this process has something open there."""
    for pid in pathlib.Path(f"/proc/{tracer}/task/{tracer}/children").read_text().split():
        try:
            if any(os.readlink(link).startswith(str(path)) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()):
                return True
        except OSError:  # it comes and goes
            continue
    return False


def test_parents_swapped_while_it_is_read(whyrss, attack, tmp_path):
    """Each path component of the recording becomes a link to the victim's directory after it was opened.

    The report is held up where it asks for the lock, which is after it has opened the recording.
    """
    if not shutil.which("strace"):
        pytest.skip("strace is not installed")
    attack.put_pool(attack.shared)
    home = tmp_path / "home" / "recording.whyrss"
    home.mkdir(parents=True)
    (home / "symbols.zst").write_text("mine")
    (home / "pool").write_text("mine")
    for name in [path.name for path in attack.recording.iterdir() if path.is_dir()]:
        (home / name).mkdir()
        (home / name / "events.zst").write_text("mine")
    (attack.recording / "symbols.zst").unlink(missing_ok=True)
    before = tree_of(home)
    slowed = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e",
              "inject=flock:delay_enter=3000000:when=1"]
    with subprocess.Popen([*slowed, whyrss.program, "report", attack.recording], stdout=subprocess.PIPE, text=True) as report:
        wait_until(lambda: report.poll() is not None or holds_open(report.pid, attack.recording), "it is open")
        attack.recording.parent.rename(tmp_path / "moved")
        attack.recording.parent.symlink_to(home.parent)
        text, _ = report.communicate(timeout=PATIENCE_S)
    assert report.returncode == 0
    assert tree_of(home) == before
    assert "the collector was killed" in text
    moved = tmp_path / "moved" / "recording.whyrss"
    assert (moved / "pool").is_file() and not attack.shared.exists()  # the recording's own, wherever it is now


def entries_of(recording):
    """Each file of a recording and the directory of a process, relative to it."""
    return [path.relative_to(recording) for path in sorted(recording.rglob("*"))]


KINDS = ("fifo", "socket", "device", "directory", "file", "link", "sparse")


def put(kind, path):
    """Replaces what is there; false where it is of that kind already."""
    if (kind == "directory" and path.is_dir()) or (kind == "file" and path.is_file()):
        return False
    if kind == "device" and not is_root():
        return False
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        here = os.getcwd()
        os.chdir(path.parent)  # the whole path is too long
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path.name)
        finally:
            os.chdir(here)
    elif kind == "device":
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero has no end
    elif kind == "directory":
        path.mkdir()
    elif kind == "file":
        path.write_text("")
    elif kind == "link":
        path.symlink_to("/dev/zero")
    else:
        with open(path, "wb") as file:
            file.truncate(64 << 30)
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_of_file(whyrss, sound, tmp_path, kind):
    """In place of each entry: one line and status 1, without waiting, and without memory for what it claims to be."""
    (tmp_path / "with pool").mkdir()
    model = tmp_path / "with pool" / "recording.whyrss"
    shutil.copytree(sound, model)
    (model / "pool").write_bytes(b"")
    (model / "collector.log").write_text("")
    tried = 0
    for entry in entries_of(model):
        copy = tmp_path / "copy.whyrss"
        shutil.copytree(model, copy)
        if put(kind, copy / entry):
            for verb in VERBS:
                tried += 1
                # 2 GiB of address space hold no 64 GiB; the time is that of a machine with other work.
                command = ["prlimit", f"--as={2 << 30}", str(whyrss.program), verb[0], copy, *verb[1:]]
                result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
                assert result.returncode == 1, (entry, verb, result.stdout[:500])
                assert result.stdout == "" and len(result.stderr.splitlines()) == 1, (entry, verb, result.stderr)
                assert entry.name in result.stderr, result.stderr
        shutil.rmtree(copy)
    assert tried >= len(VERBS)


def test_sparse_files_are_not_read_to_their_end(whyrss, sound, tmp_path):
    """What belongs to the recording, and then a hole of 64 GiB: the frames are read, the hole is damage."""
    copy = tmp_path / "copy.whyrss"
    shutil.copytree(sound, copy)
    for file in copy.glob("*/*.zst"):
        os.truncate(file, 64 << 30)
    began_s = os.times().children_user + os.times().children_system
    result = whyrss.run("report", copy, "--format", "json")
    cpu_s = os.times().children_user + os.times().children_system - began_s
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert not report["recording"]["complete"]
    assert any(".zst" in note for note in report["recording"]["lost"]["notes"])
    assert cpu_s < 5, cpu_s  # CPU time: 64 GiB of zeros would take more than 10 s


def test_a_manifest_that_is_too_long(whyrss, sound, tmp_path):
    copy = tmp_path / "copy.whyrss"
    shutil.copytree(sound, copy)
    with open(copy / "manifest.json", "ab") as file:
        file.truncate(65 << 20)
    result = whyrss.run("report", copy)
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
