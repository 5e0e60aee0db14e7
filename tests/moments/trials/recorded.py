"""One recorded run of a job: what it said, and what the report says."""
import functools
import json
import os
import pathlib
import re
import signal
import subprocess
import time
from datetime import datetime

from expected import report_reading

from .figures import ABSENT, MIB, Line, Reported, Size, Words, doubt_of

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "programs"
FORBID = PROGRAMS.parents[1] / "programs" / "forbid_calls.c"
PYTHON = "/usr/bin/python3"
GIVE_UP_S = 240     # of one run
COLLECTOR_S = 30    # until a recording is complete
KEPT = ("heap_live", "heap_slack", "anonymous")  # the causes of what a job keeps


class Failed(Exception):
    """A job did not do what it is meant to, or could not be recorded."""


class OffDesign(Failed):
    """A job grew by more or less than it is designed to: by its own timing."""


class Build:
    """A built whyrss, and programs compiled for the jobs."""

    def __init__(self, whyrss, folder):
        self.whyrss, self.folder = pathlib.Path(whyrss).resolve(), folder

    @property
    def library(self):
        """Where whyrss.py lies."""
        return self.whyrss.parents[1] / "lib" / "python"

    def command(self, job):
        program = PROGRAMS / job.command[0]
        if program.suffix == ".py":
            return [PYTHON, program, *job.command[1:]]
        return [self.compiled(program), *job.command[1:]]

    @functools.cache
    def compiled(self, source):
        program = self.folder / source.stem
        compiler = ["g++", "-std=c++20"] if source.suffix == ".cc" else ["gcc"]
        subprocess.run([*compiler, "-O1", "-g", "-o", program, source], check=True)
        return program

    def refusing(self, calls):
        """Words before a command that refuse system calls to all that it starts."""
        return [self.compiled(FORBID), "eperm", ",".join(calls)] if calls else []


class Run:
    """A job that has ended, and what it said."""

    def __init__(self, build, job, folder):
        self.build, self.job, self.folder = build, job, folder
        self.recording, self.log, self.parts = folder / "recording.whyrss", folder / "said.jsonl", {}
        self.status, self.output = self.run()
        if self.status != job.status:
            raise Failed(f"{job.name} ended with {self.status} instead of {job.status}: {self.output[-2000:]}")
        self.wait_until_complete()

    def run(self):
        environment = {**os.environ, "MOMENTS_LOG": str(self.log), "PYTHONPATH": str(self.build.library),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        command = [*self.build.refusing(self.job.refused), self.build.whyrss, "record", "-q", "-o", self.recording,
                   *self.job.options, "--", *self.build.command(self.job)]
        with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, process_group=0) as process:
            try:
                if self.job.stopped_after_s is not None:
                    self.wait_until_served(process)
                    process.send_signal(signal.SIGTERM)
                output, _ = process.communicate(timeout=GIVE_UP_S)
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return process.returncode, output

    def wait_until_served(self, process):
        """A service is stopped some time after it began to serve."""
        deadline = time.monotonic() + GIVE_UP_S
        while not (self.log.exists() and self.log.stat().st_size > 0):
            if process.poll() is not None or time.monotonic() > deadline:
                raise Failed(f"{self.job.name} does not serve")
            time.sleep(0.02)
        time.sleep(self.job.stopped_after_s)

    def wait_until_complete(self):
        manifest, deadline = self.recording / "manifest.json", time.monotonic() + COLLECTOR_S
        while time.monotonic() < deadline:
            if manifest.exists() and json.loads(manifest.read_text())["state"] == "complete":
                return
            time.sleep(0.05)

    @functools.cached_property
    def said(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def all_said(self, what):
        """At least one."""
        found = [entry for entry in self.said if entry["what"] == what]
        if not found:
            raise Failed(f"{self.job.name} said nothing of {what}")
        return found

    def last_said(self, what):
        return self.all_said(what)[-1]

    # The report

    def whyrss_report(self, *options):
        result = subprocess.run([self.build.whyrss, "report", self.recording, *options], capture_output=True, text=True,
                                check=False)
        if result.returncode != 0:
            raise Failed(f"whyrss report {' '.join(options)}: {result.stderr.strip()}")
        return result.stdout

    def report(self, *options):
        if options not in self.parts:
            self.parts[options] = json.loads(self.whyrss_report("--format", "json", "--schema", "1", "--top", "300", *options))
        return self.parts[options]

    @functools.cached_property
    def text(self):
        return self.whyrss_report()

    @property
    def head(self):
        """The part of the text report that a person reads first, with its line breaks taken out."""
        return re.sub(r"\s+", " ", self.text.partition("Memory by process and cause")[0])

    def at(self, entry):
        """The report of the moment in which the job said that."""
        started = datetime.fromisoformat(self.report()["recording"]["started"].replace("Z", "+00:00"))
        moment = f"{entry['time'] - started.timestamp():.6f}"
        return self.report("--from", moment, "--to", moment)

    # Figures of it

    def main(self, report=None):
        return (report or self.report())["processes"][0]

    def process(self, pid, report=None):
        """None if the report does not have it."""
        return next((process for process in (report or self.report())["processes"] if process["pid"] == pid), None)


def figure_of(process, name, moment):
    """rss, pss or uss of a process."""
    return ABSENT if process is None else Reported(process[name][moment], doubt_of(process))


def family_of(report, name, moment):
    """pss or rss_sum of all processes."""
    sums = report["family"][name]
    return Reported(sums[moment], doubt_of(sums, *report["processes"]))


def causes_of(process, slugs, figure):
    """A figure of the rss of some causes together; "growth" is one of them."""
    if process is None:
        return ABSENT
    chosen = [entry for entry in process["causes"] if entry["cause"] in slugs]
    total = sum(entry["growth"]["rss"] if figure == "growth" else entry["rss"][figure] for entry in chosen)
    return Reported(total, doubt_of(process, *chosen))


def copied_by(process):
    return ABSENT if process is None else Reported(process["cow"]["copied"], doubt_of(process, process["cow"]))


def line_in_job(run, stack):
    """file:line of the innermost frame that lies in the job's own program, "" for none."""
    program = run.job.command[0]
    for frame in stack:
        if os.path.basename(frame["file"]) == program:
            return f"{program}:{frame['line']}"
    return ""


def marked_line(run, marker):
    """file:line of the only line of the job's program that ends in "# marker"."""
    return "%s:%d" % report_reading.marked_line(PROGRAMS / run.job.command[0], marker)


def sites_by_line(run, sites, stack="stack"):
    by_line = {}
    for site in sites:
        by_line.setdefault(line_in_job(run, site[stack]), []).append(site)
    return by_line


def growth_at_line(run, process, marker):
    if process is None:
        return ABSENT
    sites = [site for entry in process["causes"] if entry["cause"] in KEPT for site in entry["sites"]]
    named = sites_by_line(run, sites).get(marked_line(run, marker), [])
    return Reported(sum(site["growth"] for site in named), doubt_of(process, *named))


def line_with_most(run, name, process, marker):
    """The line with most growth of what the process keeps, or of what no recorded call explains."""
    sites = [site for entry in process["causes"] if entry["cause"] in (*KEPT, "unknown", "heap_retained", "heap_metadata")
             for site in entry["sites"]] if process else []
    sums = {line: sum(site["growth"] for site in found) for line, found in sites_by_line(run, sites).items()}
    most = max(sums, key=sums.get, default="")
    return Line(name, marked_line(run, marker), most or "(none)")


def never_says(run, name, pattern):
    """In what a person reads first."""
    found = re.search(pattern, run.head)
    return Words(name, "never", found.group(0) if found else "")


def verdict_reported(run, name, *, expected, pid=None):
    """Whether a verdict with that id is there; of that process, if one is named."""
    found = [verdict for verdict in run.report()["verdicts"] if verdict["id"] == name and pid in (None, verdict["pid"])]
    return Words(f"verdict {name}", "always" if expected else "never", name if found else "")


def called_complete(run, size):
    """A recording whose end was missed, unmarked, must not be called complete."""
    missed = size.wrong and "the recording is complete" in run.text
    return Words("complete, while its end was missed", "never", "the recording is complete" if missed else "")


def headline_growth(run, truth):
    """The RSS of the first line of the text."""
    found = re.search(r"RSS ([+-]?[\d.]+) ([KMG]?i?B) in", run.head)
    units = {"B": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
    reported = Reported(round(float(found.group(1)) * units[found.group(2)]), 0) if found else ABSENT
    return Size("headline RSS", truth, reported)
