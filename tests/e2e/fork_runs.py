"""Records a program that forks, and reads what it said of itself beside what the report says: whole, and by phase."""
import functools
import json
import os
import pathlib
import subprocess

from figure_off import assert_near
from expected.report_reading import cause, marked_line, read_report

HERE = pathlib.Path(__file__).resolve().parent
PAGE, MIB = 4096, 1 << 20
# Of what was copied.
COPIED = {"write_tracking": 0.01, "exclusive_bits": 0.01}


def line_of(script, marker):
    """file:line of the only line of a script of this folder that ends in "# marker"."""
    return marked_line(HERE / script, marker)


@functools.cache
def has_module(python, name):
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


@functools.lru_cache(maxsize=8)
def parsed(path):
    """A report takes tens of MB once it is read, and a module of tests asks for hundreds."""
    return read_report(path.read_text())


class Run:
    """One recorded run of a script, in which LOG stands for the path of the log."""

    def __init__(self, whyrss, folder, command, *options):
        self.whyrss, self.recording, log = whyrss, folder / "recording.whyrss", folder / "log"
        environment = {**os.environ, "PYTHONPATH": f"{whyrss.shim.parent / 'python'}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = [log if word == "LOG" else word for word in command]
        result = whyrss.record(self.recording, arguments, "-f", *options, env=environment)
        assert result.returncode == 0, result.stderr
        self.said = [json.loads(line) for line in log.read_text().splitlines()]
        whyrss.wait_until_complete(self.recording)
        self.reports, self.parts = folder / "reports", {}
        self.reports.mkdir()

    @property
    def report(self):
        """The report of all."""
        return self.part()

    def part(self, *options):
        if options not in self.parts:
            path = self.reports / f"{len(self.parts)}.json"
            result = self.whyrss.run("report", self.recording, "--format", "json", "-o", path, *options)
            assert result.returncode == 0, result.stderr
            self.parts[options] = path
        return parsed(self.parts[options])

    def phase(self, name):
        """The report of what happened within a phase."""
        return self.phases(name, name)

    def phases(self, first, last):
        """The report of what happened from the beginning of a phase to the end of another."""
        return self.part("--from", first, "--to", last)

    def until(self, name):
        """The report of all that happened until a phase ended."""
        return self.part("--to", name)

    def of(self, **wanted):
        """What the processes said, as far as it has these values."""
        return [entry for entry in self.said if wanted.items() <= entry.items()]


def process_of(report, pid):
    return next(process for process in report["processes"] if process["pid"] == pid)


def grown(process, slug):
    return cause(process, slug)["growth"]["rss"]


def copied_truth(entry):
    """Bytes of inherited pages that a process says it copied: by physical pages where it knows them, else by faults."""
    pages = entry["copied"] - entry["copied_before"] if entry["copied"] is not None else entry["faults"]
    return pages * PAGE


def assert_copied(process, truth, least=0):
    """That is what it copied within the interval."""
    assert_close(process["cow"]["copied"], truth, COPIED[process["cow"]["method"]], least)


def main_of(report):
    return report["processes"][0]


def error_of(sites):
    """The standard error of what sites of several lines hold together."""
    return sum(site["standard_error"] ** 2 for site in sites) ** 0.5


def assert_close(found, truth, share, least=0):
    """Within a share of the truth, or within `least` bytes of it."""
    assert_near(found, truth, max(share * truth, least))
