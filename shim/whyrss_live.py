"""The recording that this process is part of, while it is being made: where it is, and what whyrss reports of it.

For the notebook and pytest extensions beside this file; CPython 3.8 or newer, standard library alone.
"""

import functools
import glob
import json
import os
import re
import subprocess
import time

import whyrss

CAUSES = ("file_cache", "file_cow", "shared_memory", "heap_live", "heap_slack", "heap_retained", "heap_metadata",
          "heap_unsplit", "anonymous", "lazy_free", "fork_shared", "fork_cow", "stack", "device", "whyrss", "unknown",
          "not_looked_at")
_SHIM = "libwhyrss.so"
_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
          "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_DRAINED_S = 10  # the collector stores events a second later, after a snapshot at once; a busy machine needs longer
_DRAIN_S = 0.05


class Unavailable(Exception):
    """Why there is no report: one line."""


def is_recorded():
    """Whether this process runs with whyrss's library and writes into a recording."""
    return whyrss.is_loaded() and os.environ.get("WHYRSS_SESSION", "none") != "none" and _shim_path() is not None


def _shim_path():
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                if path.endswith("/" + _SHIM):
                    return "/" + path
    except OSError:
        pass
    return None


def program():
    """The whyrss program that belongs to the loaded library, else to this file, else the one on PATH; or None."""
    shim = _shim_path()
    beside = os.path.join(os.path.dirname(os.path.dirname(shim)), "bin", "whyrss") if shim else None
    return beside if beside and os.access(beside, os.X_OK) else whyrss.find_program()


def shim():
    """The library of program(); or None."""
    found = program()
    library = found and os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(found))), "lib", _SHIM)
    return library if library and os.path.isfile(library) else None


def recording():
    """The directory of the recording that this process writes to."""
    session = os.environ.get("WHYRSS_SESSION", "").partition(":")[0]
    named = os.environ.get("WHYRSS_OUTPUT", "")
    # Tokens are filled in by who began the recording; where the name was taken, a number follows it.
    pattern = "".join("*" if re.fullmatch("%[a-z]", part) else glob.escape(part)
                      for part in re.split("(%[a-z])", named))
    for candidate in [named] + sorted(glob.glob(pattern) + glob.glob(pattern + ".[0-9]*")):
        try:
            with open(os.path.join(candidate, "manifest.json"), encoding="utf-8") as manifest:
                if session and json.load(manifest).get("session") == session:
                    return candidate
        except (OSError, ValueError, AttributeError):
            continue
    raise Unavailable("cannot find the recording of this process (WHYRSS_OUTPUT=%s)" % named)


def _environment():
    """That of a program that is to stay out of the recording."""
    clean = {name: value for name, value in os.environ.items() if name not in ("WHYRSS_SESSION", "WHYRSS_OUTPUT")}
    others = [library for library in re.split("[: ]", clean.pop("LD_PRELOAD", ""))
              if library and not library.endswith("/" + _SHIM)]
    if others:
        clean["LD_PRELOAD"] = ":".join(others)
    return clean


def run(*arguments):
    """Standard output of whyrss ARGUMENTS, as text."""
    found = program()
    if found is None:
        raise Unavailable("cannot find the program whyrss")
    # Descriptors of Python are closed by exec anyway; without close_fds no fork is needed, which would share all
    # memory of a large process for a moment and show in its recording.
    done = subprocess.run([found, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          close_fds=False, env=_environment(), check=False)
    if done.returncode != 0:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["whyrss ended with %d" % done.returncode]
        raise Unavailable(re.sub("^whyrss: ", "", lines[-1]))
    return done.stdout.decode("utf-8", "replace")


@functools.lru_cache(maxsize=None)
def has_verb(verb):
    """Whether this whyrss knows a verb."""
    try:
        return re.search(r"^\s+whyrss %s\b" % re.escape(verb), run("--help"), re.MULTILINE) is not None
    except Unavailable:
        return False


def report(phase, *options, folder=None):
    """What `whyrss report` prints of a phase that has ended, in the format that `options` ask for."""
    folder = folder or recording()
    deadline = time.monotonic() + _DRAINED_S
    while True:
        try:
            return run("report", folder, "--from=" + phase, "--to=" + phase, *options)
        except Unavailable as reason:  # its marks may not have been read yet
            if "nor a phase" not in str(reason) or time.monotonic() > deadline:
                raise
        time.sleep(_DRAIN_S)


def report_json(phase, *options, folder=None):
    """The same as an object, with the end of the phase in it, which is a moment ago."""
    deadline = time.monotonic() + _DRAINED_S
    whyrss.snapshot()
    while True:
        time.sleep(_DRAIN_S)  # a report takes longer than that
        found = json.loads(report(phase, "--format", "json", "--small-sites", *options, folder=folder))
        # A phase that has not been seen to end lasts until the last event: then something was written later.
        ended = [one["to_s"] for one in found["phases"] if one["name"] == phase]
        if max(ended, default=0) < found["recording"]["duration_s"] or time.monotonic() > deadline:
            return found


class Growth:
    """How much a cause, or rss, pss or uss, grew in a report: of one process and those that descend from it."""

    def __init__(self, found, pid, cause):
        self.growth, self.error, self.is_estimate = 0, 0, False
        end_s = found["interval"]["to_s"]  # what has ended holds nothing any more
        self.processes = [one for one in family(found, pid) if one["ended_s"] is None or one["ended_s"] > end_s]
        if not self.processes:
            raise Unavailable("process %d is not in the recording yet" % pid)
        variance = 0
        for process in self.processes:
            if cause in CAUSES:
                for one in process["causes"]:
                    if one["cause"] == cause:
                        self.growth += one["growth"]["rss"]
                        self.is_estimate = self.is_estimate or one["estimate"]
                        variance += one.get("standard_error", 0) ** 2
            else:
                first, last = process[cause]["first"], process[cause]["last"]
                if process["pid"] == pid and (first is None or last is None):
                    raise Unavailable("%s of process %d was not read" % (cause, pid))
                self.growth += (last or 0) - (first or 0)
        self.error = variance ** 0.5

    def text(self):
        """"120.0 MiB", with what is known of its error."""
        if self.error:
            return "%s ± %s" % (size_text(self.growth), size_text(self.error))
        return size_text(self.growth) + (" (an estimate)" if self.is_estimate else " (exact)")


def _descendants(found, pid):
    """The pids of a process and of all that descend from it."""
    pids, grew = {pid}, True
    while grew:
        more = {process["pid"] for process in found["processes"] if process["parent"] in pids} - pids
        pids, grew = pids | more, bool(more)
    return pids


def family(found, pid):
    """The entries of a process, first, and of all that descend from it, but for the reports that it has asked for."""
    pids = _descendants(found, pid)
    return sorted((process for process in found["processes"] if process["pid"] in pids and
                   os.path.basename((process["command"] or [""])[0]) != "whyrss"),
                  key=lambda process: process["pid"] != pid)


def has_children():
    """Whether this process has any now, dead ones that nobody has waited for included."""
    for thread in glob.glob("/proc/self/task/*/children"):
        try:
            with open(thread, "rb") as children:
                if children.read().strip():
                    return True
        except OSError:
            continue
    return False


def is_alone(found, pid):
    """Whether the recording is of a process and its descendants only. (Those without a parent were gone at once.)"""
    return {process["pid"] for process in found["processes"] if process["parent"] is not None} <= _descendants(found, pid)


def lines_of(processes, stacks, cause, most=3):
    """(bytes, standard error, "file:line in function") of the lines with the most growth of a cause. `stacks`: the report's."""
    sums = {}
    for process in processes:
        for one in process["causes"]:
            if one["cause"] != cause and cause in CAUSES:
                continue
            for site in one["sites"]:
                line = _line([frame for name in ("stack", "during") for frame in stacks[site.get(name, 0)]])
                if line:
                    growth, variance = sums.get(line, (0, 0))
                    sums[line] = growth + site["growth"], variance + site["standard_error"] ** 2
    found = [(growth, variance ** 0.5, line) for line, (growth, variance) in sums.items() if growth > 0]
    # What lies within twice its error of zero may be nothing; nor does anybody act on a hundredth.
    whole = sum(growth for growth, _, _ in found)
    return sorted((one for one in found if one[0] > 2 * one[1] and one[0] >= whole / 100), reverse=True)[:most]


def _line(stack):
    """The innermost Python frame that is no library's, else the innermost that has a line; "" for none."""
    named = [frame for frame in stack if frame["line"] and frame["file"]]
    own = [frame for frame in named if frame["kind"] == "python" and not frame["file"].startswith("<frozen ")
           and not re.search(r"/lib(64)?/python3(\.[0-9]+t?)?/", frame["file"])]
    for frame in own[:1] or named[:1]:
        return "%s:%d in %s" % (os.path.basename(frame["file"]), frame["line"], frame["function"])
    return ""


def name_files(names, folder=None):
    """Has reports of this recording call files of Python code by other names: a mapping from path to name."""
    folder = folder or recording()
    path = os.path.join(folder, "code_names.json")
    try:
        with open(path, encoding="utf-8") as file:
            known = json.load(file)
    except (OSError, ValueError):
        known = {}
    known = known if isinstance(known, dict) else {}
    if all(known.get(file) == name for file, name in names.items()):
        return
    known.update(names)
    fresh = "%s.%d" % (path, os.getpid())
    with open(fresh, "w", encoding="utf-8") as file:
        json.dump(known, file)
    os.replace(fresh, path)


def parse_size(text):
    """Bytes of "100 MiB", "2GB" or a number; ValueError for anything else."""
    if isinstance(text, (int, float)) and not isinstance(text, bool) and 0 <= text < float("inf"):
        return int(text)
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)\s*", text) if isinstance(text, str) else None
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("not a size: %r (as 100 MiB)" % (text,))
    return int(float(match[1]) * _UNITS[match[2].lower()])


def size_text(size):
    """As reports write it: "517 MiB", "9.4 MiB", "120 KiB"."""
    for unit, bytes_of_one in (("GiB", 10 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= bytes_of_one:
            value = size / min(bytes_of_one, 1 << 30)
            return "%.*f %s" % (unit == "GiB" or (unit == "MiB" and abs(value) < 9.95), value, unit)
    return "%d B" % size


def rss():
    """Resident bytes of this process, as the kernel counts them now."""
    with open("/proc/self/statm", "rb") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
