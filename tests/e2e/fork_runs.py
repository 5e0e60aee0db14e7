"""Records a program that forks, and reads what it said of itself beside what the report says: whole, and by phase."""
import json
import os
import pathlib
import subprocess

from conftest import cause

HERE = pathlib.Path(__file__).resolve().parent
PAGE, MIB = 4096, 1 << 20
# Of what was copied. Exclusive bits alone may take a copy that was made during a look for memory left by others.
COPIED = {"write_tracking": 0.01, "exclusive_bits": 0.06}


def line_of(script, marker):
    """file:line of the only line of a script of this folder that ends in "# marker"."""
    hits = [number for number, line in enumerate((HERE / script).read_text().splitlines(), 1) if line.endswith(f"# {marker}")]
    assert len(hits) == 1, marker
    return script, hits[0]


def lines_of(stack):
    """file:line of the Python frames of a stack, innermost first."""
    return [(os.path.basename(frame["file"]), frame["line"]) for frame in stack if frame["kind"] == "python"]


def has_module(python, name):
    return subprocess.run([python, "-c", f"import {name}"], capture_output=True, check=False).returncode == 0


class Run:
    """One recorded run of a script; its arguments are the path of the log and `arguments`."""

    def __init__(self, whyrss, folder, command):
        self.whyrss, self.recording, log = whyrss, folder / "recording.whyrss", folder / "log"
        environment = {**os.environ, "PYTHONPATH": f"{whyrss.shim.parent / 'python'}:{HERE}", "PYTHONDONTWRITEBYTECODE": "1"}
        arguments = [log if word == "LOG" else word for word in command]
        result = whyrss.record(self.recording, arguments, env=environment)
        assert result.returncode == 0, result.stderr
        self.said = [json.loads(line) for line in log.read_text().splitlines()]
        self.report = whyrss.finished_report(self.recording)
        self.parts = {}

    def part(self, *options):
        if options not in self.parts:
            result = self.whyrss.run("report", self.recording, "--format", "json", *options)
            assert result.returncode == 0, result.stderr
            self.parts[options] = json.loads(result.stdout)
        return self.parts[options]

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
    """Bytes of inherited pages that a process says it copied, by physical pages where those are told, else by faults."""
    pages = entry["copied"] - entry["copied_before"] if entry["copied"] is not None else entry["faults"]
    return pages * PAGE


def assert_copied(process, truth, least=0):
    """That is what it copied within the interval."""
    assert_close(process["cow"]["copied"], truth, COPIED[process["cow"]["method"]], least)


def main_of(report):
    return report["processes"][0]


def bytes_by_line(sites, figure, line, stack="stack"):
    """The sum of a figure over the sites whose stack holds that line."""
    return sum(site[figure] for site in sites if line in lines_of(site[stack]))


def touched_bytes(site, line):
    """What a line made resident of a site."""
    return sum(touch["growth"] for touch in site["touched_by"] if line in lines_of(touch["stack"]))


def verdicts(report, name):
    return [verdict for verdict in report["verdicts"] if verdict["id"] == name]


def assert_close(found, truth, share, least=0):
    """Within a share of the truth, or within `least` bytes of it."""
    assert abs(found - truth) <= max(share * truth, least), (found, truth)
