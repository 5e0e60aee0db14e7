"""Runs a host in all ways, and says of each whether it was harmed.

A host is not always the same as itself: where a way differs from the bare run, both are run again, and what any
bare run has shown is no harm.
"""
import dataclasses
import re
import shutil

from harness import recording_check, tree
from harness.host import CannotRun
from harness.ways import WAYS, command_line


@dataclasses.dataclass
class WayResult:
    runs: int = 0
    differing_runs: int = 0
    differences: list = dataclasses.field(default_factory=list)  # of the first run that differs
    notes: list = dataclasses.field(default_factory=list)  # not compared with bare: what whyrss says or leaves behind
    wall_s: float = 0.0
    cpu_s: float = 0.0
    log: str = ""  # folder with the output of the run that differs

    @property
    def verdict(self):
        if not self.runs:
            return "not run"
        return "differs" if self.differing_runs else "same"


class Trial:
    def __init__(self, host, scene, build, options):
        self.host = host
        self.scene = scene
        self.build = build
        self.repeats = options.repeats  # of bare and of a way that differs
        self.patience = options.patience  # what the host's limit of time is multiplied by
        self.formats = options.formats  # of the reports of each recording
        self.seen_bare = {}  # what is compared -> the values that bare runs had
        self.results = {way.name: WayResult() for way in WAYS}

    def run(self, ways):
        outcome = self.run_bare()
        if self.host.ends is not None and outcome.status != self.host.ends:
            raise CannotRun(f"bare it ends with {outcome.status_name()}, not {self.host.ends}: {last_line(outcome)}")
        for way in ways:
            if way.name != "bare":
                self.run_way(way)
        return self.results

    def run_bare(self):
        outcome, found, _ = self.run_once(WAYS[0], 0)
        if outcome.survivors:
            self.results["bare"].notes.append(f"had to be killed: {'; '.join(outcome.survivors)}")
        for name, value in found.items():
            self.seen_bare.setdefault(name, set()).add(value)
        return outcome

    def run_way(self, way):
        result = self.results[way.name]
        for attempt in range(1 + self.repeats):
            outcome, found, logs = self.run_once(way, attempt)
            differences = self.differences(found)
            for _ in range(self.repeats if differences and attempt == 0 else 0):
                self.run_bare()
                differences = self.differences(found)
            if attempt == 0 and not differences:
                shutil.rmtree(logs, ignore_errors=True)
                return
            if differences:
                result.differing_runs += 1
                if not result.differences:
                    result.differences, result.log = differences, str(logs)
                    result.notes += whyrss_lines(outcome.stderr)
            if outcome.status is None:
                return  # a hang costs the whole limit each time

    def differences(self, found):
        """`what: bare is this, here it is that`, for each value that no bare run had."""
        lines = []
        for name in sorted(found.keys() | self.seen_bare.keys()):
            seen = self.seen_bare.get(name, {"missing"})
            value = found.get(name, "missing")
            if value not in seen and name != "recording":
                lines.append(f"{name}: {first_difference(sorted(seen)[0], value)}")
        return lines + [line for line in found.get("recording", "").splitlines() if line]

    def run_once(self, way, attempt):
        """(outcome of the tree, what is compared, folder of the logs)."""
        scene, host = self.scene, self.host
        logs = scene.folder / f"{way.name}.{attempt}"
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir()
        scene.own(logs)
        recording = logs / "recording.whyrss"
        scene.begin_run()
        words, environment = command_line(way, host, scene, self.build, recording)
        outcome = tree.run(words, environment, scene, logs, self.patience * host.limit_s, host.memory_max)
        self.count(way, outcome)
        found = {"status": outcome.status_name(), **self.compared(outcome)}
        if way.records:
            found["recording"] = "\n".join(recording_check.mistakes(self.build, recording, self.formats, host.reported,
                                                                      bool(outcome.survivors)))
        if outcome.survivors and way.name != "bare":
            self.results[way.name].notes.append(f"had to be killed: {'; '.join(outcome.survivors)}")
        return outcome, found, logs

    def compared(self, outcome):
        values = self.host.outcome(self.scene, outcome.stdout)
        if self.host.files_at_exec:
            values["state at exec"] = self.scene.probe_log.read_text(errors="replace")
        return values

    def count(self, way, outcome):
        result = self.results[way.name]
        result.runs += 1
        result.wall_s += (outcome.wall_s - result.wall_s) / result.runs
        result.cpu_s += (outcome.cpu_s - result.cpu_s) / result.runs


def last_line(outcome):
    return shorten((outcome.stderr.strip() or outcome.stdout.strip() or "it says nothing").splitlines()[-1])


def whyrss_lines(stderr):
    return sorted({line[:200] for line in stderr.splitlines() if line.startswith("whyrss")})[:5]


def first_difference(bare, here):
    """The first line in which two texts differ, of both."""
    ours, theirs = bare.splitlines() or [""], here.splitlines() or [""]
    for mine, other in zip(ours, theirs):
        if mine != other:
            return f"bare `{shorten(mine)}`, here `{shorten(other)}`"
    if len(ours) > len(theirs):
        return f"here the line `{shorten(ours[len(theirs)])}` is missing"
    return f"here one more line, `{shorten(theirs[len(ours)] if len(theirs) > len(ours) else '')}`"


def shorten(line):
    return re.sub(r"\s+", " ", line.strip())[:120]
