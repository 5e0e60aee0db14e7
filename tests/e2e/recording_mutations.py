#!/usr/bin/python3
"""Random damage to recordings: whatever it is, the report answers soon and in little memory, and what it then says
differently is never called complete.

recording_mutations.py [--seed N] [--count N] [--whyrss PROGRAM] [--only KIND]
"""
import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

from frame_reader import decompress
from recording_parts import FRAME_HEADER, FrameFile, compressed, frame_files, process_directories, report_difference, sealed

MOST_CPU_S = 5
MOST_RSS_BYTES = 512 << 20
HANGS_AFTER_S = 300  # on a machine with a hundred times more work than cores

TREE = r"""
import os, sys, time
kept = [bytes(400_000) for _ in range(8)]
small = [bytearray(100) for _ in range(20_000)]
for number in range(3):
    if os.fork() == 0:
        more = [bytes(200_000) for _ in range(10 * number + 5)]
        small.clear()
        time.sleep(0.2)
        os._exit(0)
kept += [bytearray(60_000) for _ in range(100)]
for _ in range(3):
    os.wait()
"""


def make_recordings(program, folder):
    """name -> a sound recording of a process tree, each in another mode."""
    script = folder / "tree.py"
    script.write_text(TREE)
    recordings = {}
    for name, options in (("tree", []), ("exact", ["--mode", "exact"])):
        recordings[name] = folder / f"{name}.whyrss"
        environment = {**os.environ, "PYTHONMALLOC": "malloc"} if name == "exact" else None
        subprocess.run([program, "record", "-q", "-o", recordings[name], *options, "--", "/usr/bin/python3", script],
                       check=True, env=environment)
        deadline = time.monotonic() + HANGS_AFTER_S
        while json.loads((recordings[name] / "manifest.json").read_text())["state"] != "complete":
            assert time.monotonic() < deadline, "the recording is never complete"
            time.sleep(0.05)
        subprocess.run([program, "report", recordings[name]], check=True, capture_output=True)  # stores all names
    return recordings


# Each changes the recording and says what it did. `chance` is a random.Random.

def any_file(recording, chance):
    return chance.choice([path for path in sorted(recording.rglob("*")) if path.is_file() and path.stat().st_size > 0])


def flip(recording, chance):
    path = any_file(recording, chance)
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice((1, 1, 1, 2, 8, 64))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    return path.name


def overwrite(recording, chance):
    path = any_file(recording, chance)
    data = bytearray(path.read_bytes())
    at, size = chance.randrange(len(data)), chance.choice((1, 4, 8, 64, 4096))
    other = any_file(recording, chance).read_bytes()
    begin = chance.randrange(len(other))
    data[at:at + size] = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size), other[begin:begin + size]))
    path.write_bytes(data)
    return path.name


def cut(recording, chance):
    path = any_file(recording, chance)
    os.truncate(path, chance.randrange(path.stat().st_size))
    return path.name


def insert(recording, chance):
    path = any_file(recording, chance)
    data = path.read_bytes()
    at = chance.choice((len(data), chance.randrange(len(data))))
    path.write_bytes(data[:at] + chance.choice((b"\0" * 64, chance.randbytes(100), data)) + data[at:])
    return path.name


def frames(recording, chance):
    """Whole frames, whose checksums stay right."""
    path = chance.choice([path for path in frame_files(recording) if FrameFile.read(path).frames])
    file = FrameFile.read(path)
    count = len(file.frames)
    one, other = chance.randrange(count), chance.randrange(count)
    what = chance.choice(("pop", "slice", "double", "swap", "shuffle", "end", "foreign", "header", "all"))
    if what == "pop":
        file.frames.pop(one)
    elif what == "slice":
        del file.frames[min(one, other):max(one, other) + 1]
    elif what == "double":
        file.frames.insert(other, file.frames[one])
    elif what == "swap":
        file.frames[one], file.frames[other] = file.frames[other], file.frames[one]
    elif what == "shuffle":
        chance.shuffle(file.frames)
    elif what == "end":
        del file.frames[one:]
    elif what == "foreign":
        source = FrameFile.read(chance.choice(frame_files(recording)))
        file.frames[one:one + 1] = [chance.choice(source.frames or [b""])]
    elif what == "header":
        file.header = FrameFile.read(chance.choice(frame_files(recording))).header
    else:
        file.frames.clear()
    file.write(path)
    return f"{what} {path.name}"


def forged(recording, chance):
    """Frames that no collector wrote, with right checksums: no reader can tell, but it must survive them."""
    path = chance.choice([path for path in frame_files(recording) if FrameFile.read(path).frames])
    file = FrameFile.read(path)
    for _ in range(chance.choice((1, 3, 10))):
        at = chance.randrange(len(file.frames))
        frame = bytearray(file.frames[at])
        fields = list(FRAME_HEADER.unpack_from(frame))
        what = chance.choice(("kind", "raw", "time", "number", "payload", "payload", "zstd"))
        if what == "kind":
            fields[1] = chance.randrange(20)
        elif what == "raw":
            fields[4] = chance.choice((0, 1, 1 << 26, (1 << 32) - 1))
        elif what == "time":
            fields[5] = chance.choice((0, 1 << 62, (1 << 64) - 1))
        elif what == "number":
            fields[6] = chance.choice((0, fields[6] ^ 1, 1 << 40, (1 << 64) - 1, (1 << 64) - 2))
        FRAME_HEADER.pack_into(frame, 0, *fields)
        stored = bytes(frame[FRAME_HEADER.size:])
        if what == "zstd":
            stored = chance.randbytes(len(stored))
        elif what == "payload":
            payload = forged_payload(stored, fields[4], chance)
            stored = compressed(payload)
            fields[3:5] = [len(stored), len(payload)]
            FRAME_HEADER.pack_into(frame, 0, *fields)
        file.frames[at] = sealed(bytes(frame[:FRAME_HEADER.size]) + stored, file.header)
    file.write(path)
    return path.name


def forged_payload(stored, raw_bytes, chance):
    try:
        payload = bytearray(decompress(stored, min(raw_bytes, 1 << 26)))
    except AssertionError:  # several zstd frames, as exact mode's payloads are, or forged already
        payload = bytearray(chance.randbytes(200))
    for _ in range(chance.choice((1, 4, 20))):
        if not payload:
            break
        at = chance.randrange(len(payload))
        value = chance.choice((b"\0", b"\xff", b"\xff" * 4, b"\xff" * 8, b"\0" * 8, chance.randbytes(4), b"\x7f"))
        payload[at:at + len(value)] = value
    return bytes(payload[:chance.randrange(len(payload) + 1)] if chance.random() < 0.1 else payload)


def kinds(recording, chance):
    """Something else in place of a file or directory."""
    path = chance.choice([path for path in sorted(recording.rglob("*")) if path.name != "lock"])
    other = chance.choice(sorted(recording.rglob("*")))
    what = chance.choice(("empty", "gone", "directory", "file", "dangling", "circle", "link", "pipe", "socket", "zeros"))
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if what in ("empty", "file"):
        path.write_bytes(b"" if what == "empty" else chance.randbytes(1000))
    elif what == "directory":
        path.mkdir()
    elif what in ("dangling", "circle", "link"):
        path.symlink_to({"dangling": "/nowhere/at/all", "circle": path, "link": other}[what])
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "socket":
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    elif what == "zeros":
        path.touch()
        os.truncate(path, 64 << 20)
    return f"{what} {path.name}"


def directories(recording, chance):
    first, second = chance.sample(process_directories(recording), 2)
    what = chance.choice(("delete", "rename", "copy", "swap", "replace", "swap files", "copy file"))
    fresh = first.with_name(".".join([*first.name.split(".")[:-2], str(chance.randrange(1, 1 << 22)), first.name.split(".")[-1]]))
    one, other = (chance.choice(("events.zst", "pages.zst")) for _ in range(2))
    if what == "delete":
        shutil.rmtree(first)
    elif what == "rename":
        first.rename(fresh)
    elif what == "copy":
        shutil.copytree(first, fresh)
    elif what == "swap":
        first.rename(fresh)
        second.rename(first)
        fresh.rename(second)
    elif what == "replace":
        shutil.rmtree(first)
        shutil.copytree(second, first)
    elif what == "swap files":
        kept = (first / one).read_bytes()
        shutil.copy(second / one, first / one)
        (second / one).write_bytes(kept)
    else:
        shutil.copy(second / one, first / other)
    return what


def manifest(recording, chance):
    """Still JSON, with other values."""
    path = recording / "manifest.json"
    value = json.loads(path.read_text())
    for _ in range(chance.choice((1, 1, 3))):
        place, key = value, chance.choice(sorted(value))
        while isinstance(place[key], (dict, list)) and place[key] and chance.random() < 0.8:
            place = place[key]
            key = chance.choice(sorted(place)) if isinstance(place, dict) else chance.randrange(len(place))
        place[key] = chance.choice((0, -1, 1 << 62, 1.5e308, "", "complete", "../../etc", None, [], {}, True, "x" * 5000,
                                    [[[[]]]]))
    path.write_text(json.dumps(value, indent=1))
    return "values"


MUTATIONS = {kind.__name__: kind for kind in (flip, overwrite, cut, insert, frames, forged, kinds, directories, manifest)}


class Answer:
    """What a report of a recording was, and cost."""

    def __init__(self, program, recording, form):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            child = subprocess.Popen([program, "report", recording, "--format", form], stdout=out, stderr=errors,
                                     stdin=subprocess.DEVNULL)
            deadline = time.monotonic() + HANGS_AFTER_S
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            pause = 0.002
            while pid == 0 and time.monotonic() < deadline:
                time.sleep(pause)
                pause = min(pause * 1.5, 0.1)
                pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            self.hung = pid == 0
            if self.hung:
                child.send_signal(signal.SIGKILL)
                _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.status, self.cpu_s, self.rss_bytes = child.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10
            out.seek(0)
            errors.seek(0)
            self.out, self.errors = out.read().decode(), errors.read().decode()

    def complaint(self):
        """What is wrong with it whatever the recording is, or None."""
        if self.hung:
            return f"hung for {HANGS_AFTER_S} s"
        if self.status not in (0, 1):
            return f"status {self.status}: {self.errors[:300]}"
        if self.status == 1 and (self.out or len(self.errors.splitlines()) != 1):
            return f"refused with: {self.errors[:300]!r}, and {len(self.out)} bytes of output"
        if self.cpu_s > MOST_CPU_S:
            return f"{self.cpu_s:.1f} s of CPU"
        if self.rss_bytes > MOST_RSS_BYTES:
            return f"{self.rss_bytes >> 20} MiB"
        return None


def check(program, sound, copy, kind, with_text):
    """What is wrong with the reports of a damaged copy of a recording whose report was `sound`, or None."""
    if with_text:  # before, as a report may store names anew
        text = Answer(program, copy, "text")
        if text.complaint():
            return "text: " + text.complaint()
    answer = Answer(program, copy, "json")
    if answer.complaint():
        return answer.complaint()
    if answer.status == 1 or kind == "forged":
        return None
    report = json.loads(answer.out)
    difference = report_difference(sound, report)
    recording = report["recording"]
    if difference and recording["complete"]:
        return f"complete, but {difference}"
    if not recording["complete"] and not recording["incomplete_why"]:
        return "incomplete, and does not say why"
    if with_text and text.status == 0 and difference and "nothing; the recording is complete" in text.out:
        return f"nothing lost, but {difference}"
    return None


def run(program, recordings, folder, seed, count, only=None):
    """The complaints about `count` mutations, each with what repeats it."""
    sound = {name: json.loads(Answer(program, path, "json").out) for name, path in recordings.items()}
    complaints, most_cpu_s = [], 0
    for number in range(count):
        chance = random.Random(f"{seed} {number}")
        base = chance.choice(sorted(recordings))
        kind = only or chance.choice(sorted(MUTATIONS))
        copy = pathlib.Path(folder) / "mutated.whyrss"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(recordings[base], copy)
        times = 1 if kind in ("kinds", "directories") else chance.choice((1, 1, 1, 2))
        what = " and ".join(MUTATIONS[kind](copy, chance) for _ in range(times))
        wrong = check(program, sound[base], copy, kind, number % 4 == 0)
        if wrong:
            complaints.append(f"seed {seed}, number {number}, {base}, {kind} {what}: {wrong}")
            print(complaints[-1], flush=True)
    return complaints


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", choices=sorted(MUTATIONS))
    root = pathlib.Path(__file__).resolve().parents[2]
    parser.add_argument("--whyrss", type=pathlib.Path, default=root / "build/release/bin/whyrss")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="whyrss-mutations-") as folder:
        folder = pathlib.Path(folder)
        recordings = make_recordings(arguments.whyrss, folder)
        complaints = run(arguments.whyrss, recordings, folder, arguments.seed, arguments.count, arguments.only)
    print(f"seed {arguments.seed}: {arguments.count} mutations, {len(complaints)} complaints")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
