"""A scenario: a program with a memory mystery, and the account that whyrss must give of it.

A module of this folder defines its scenarios with @scenario; the decorated function gets an Account of the recorded run
and states what is expected. Each statement is kept with what was found, so that one that fails hides none of the others.
"""
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess
from collections.abc import Callable

from .report_reading import (assert_conserved, bytes_by_line, cause, contradictions, contradictions_in_text, marked_line,
                             touched_bytes, verdicts)

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYPI_PYTHON = ROOT / "build/pypi/bin/python"  # of demos/setup --pypi; scenarios that need "pypi" run with it
PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "scenarios"
MIB = 1 << 20
UNKNOWN_SHARE = 0.01         # of the growth of all processes together
UNKNOWN_LEAST = MIB // 2     # growth below this explains itself: an interpreter's start
ALL = []


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    mystery: str        # what a person sees, in a sentence
    command: tuple      # after the interpreter, if its first word ends in .py; programs of demos/scenarios by their names
    check: Callable
    family: str         # the module that defines it
    needs: tuple = ()   # "module:numpy", "library:libjemalloc.so.2", "program:gcc", "gpu:", "cgroup", "pypi"; a missing one skips it
    options: tuple = ()       # of whyrss record
    variables: tuple = ()     # ("NAME", "VALUE") pairs of the program's environment
    statuses: tuple = (0,)    # that the program ends with one of; -9: by SIGKILL


def scenario(name, mystery, *command, **more):
    """Registers the function below it as the check of a scenario: check(account)."""
    def register(check):
        ALL.append(Scenario(name, mystery, command, check, check.__module__.rpartition(".")[2], **more))
        return check
    return register


# Debian's names of what a scenario may need, where they are not the obvious ones.
PACKAGES = {"libjemalloc.so.2": "libjemalloc2", "libtcmalloc_minimal.so.4": "libtcmalloc-minimal4",
            "libmimalloc.so.2": "libmimalloc2.0"}
NOT_IN_DEBIAN = ("datasets", "pyarrow")


@functools.cache
def runs(*command):
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@functools.cache
def can_limit_memory(whyrss):
    """Whether a program may be run under a memory limit here."""
    doctor = subprocess.run([whyrss, "doctor"], capture_output=True, text=True, check=False)
    return any(line.split()[:2] == ["ok", "memory_max"] for line in doctor.stdout.splitlines())


def missing(needs, python, whyrss):
    """Of what a scenario needs, what this machine lacks, in words; None if nothing."""
    for need in needs:
        kind, _, name = need.partition(":")
        if kind == "module" and not runs(python, "-c", f"import {name}"):
            how = f"pip install {name}" if name in NOT_IN_DEBIAN else f"Debian: python3-{name}"
            return f"{python} has no {name} ({how})"
        if kind == "pypi" and "WHYRSS_SKIPS" in os.environ and "WHYRSS_ALL" not in os.environ:
            return "with tests/run --all alone"
        if kind == "pypi" and not PYPI_PYTHON.exists():
            return "build/pypi is not there (demos/setup --pypi)"
        if kind == "cgroup" and not can_limit_memory(whyrss):
            return "record --memory-max does not work here (whyrss doctor says what it needs)"
        if kind == "program" and shutil.which(name) is None:
            return f"{name} is not installed (Debian: {PACKAGES.get(name, name)})"
        if kind == "library" and subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True,
                                                check=False).stdout.find(f"{name} ") < 0:
            return f"{name} is not installed (Debian: {PACKAGES.get(name, name)})"
        if kind == "gpu" and not runs(python, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"):
            return f"{python} sees no GPU through torch"
    return None


@dataclasses.dataclass(frozen=True)
class Finding:
    text: str
    holds: bool
    kind: str = "fact"  # or "figure": it depends on sampling, polls or timing, and is repeated where it is off


class Account:
    """The report of one run, and the statements about it. Lines are named by the marks in the scenario's own programs."""

    def __init__(self, report, output, program, part):
        self.report, self.output, self.findings = report, output, []
        self.program = program  # path of the file whose marks name lines
        self.part = part        # part(OPTION...) -> whyrss report of the same recording with these options
        self.processes = report["processes"]
        self.blamed = []        # (line, share of what it should have): of the statements about lines

    def phase(self, name):
        """The Account of a phase of the program, whose statements count among this one's."""
        phase = Account(self.part("--from", name, "--to", name), self.output, self.program, self.part)
        phase.findings, phase.blamed = self.findings, self.blamed
        phase.state_conserved()
        return phase

    def same(self, process):
        """What this account says of a process of another account of the recording."""
        return next(found for found in self.processes if found["pid"] == process["pid"])

    def said(self, what):
        """A size that the program printed: the N of "WHAT: N bytes", of the first such line."""
        return int(re.search(rf"\b{re.escape(what)}: (\d+) bytes", self.output)[1])

    @property
    def main(self):
        return self.processes[0]

    @property
    def children(self):
        """Processes below the main one, without multiprocessing's helpers."""
        return [process for process in self.processes[1:] if not any("resource_tracker" in word for word in process["command"])]

    def expect(self, holds, text, kind="fact"):
        self.findings.append(Finding(text, bool(holds), kind))

    def expect_close(self, found, wanted, share, what, least=0):
        """Within a share of what is wanted, or within `least` bytes of it."""
        allowed = max(share * wanted, least)
        self.expect(abs(found - wanted) <= allowed,
                    f"{what}: {found / MIB:.1f} MiB (expected {wanted / MIB:.1f} ± {allowed / MIB:.1f})", "figure")

    def line(self, marker, program=None):
        return marked_line(PROGRAMS / program if program else self.program, marker)

    def grew(self, process, slug, wanted, share, least=0, figure="growth"):
        """The growth of a cause; figure: growth, at_peak, last."""
        entry = cause(process, slug)
        found = entry["growth"]["rss"] if figure == "growth" else entry["rss"][figure]
        self.expect_close(found, wanted, share, f"pid {process['pid']}: {slug}" + ("" if figure == "growth" else f" {figure}"),
                          least)

    def stayed(self, process, slug, below):
        found = cause(process, slug)["growth"]["rss"]
        self.expect(found <= below, f"pid {process['pid']}: {slug} {found / MIB:.1f} MiB (expected at most {below / MIB:.1f})",
                    "figure")

    def made_at(self, process, slug, marker, wanted, share, figure="growth", program=None):
        """What of a cause stands under the line that mapped or allocated it; figure: growth, resident."""
        line = self.line(marker, program)
        found = bytes_by_line(cause(process, slug)["sites"], figure, line)
        self.blamed.append((line, found / wanted))
        self.expect_close(found, wanted, share, f"pid {process['pid']}: {slug} made at {line[0]}:{line[1]}")

    def unpickled(self, process, wanted, share, least=0):
        """What of the live heap a process unpickled when it was started, beside what that imported."""
        def starts(stack):
            lines = [(pathlib.Path(frame["file"]).name, frame["function"]) for frame in stack]
            others = any(name.startswith("<frozen") or name == "process.py" for name, _ in lines)  # imports, and its own work
            return ("spawn.py", "_main") in lines and not others
        found = sum(site["resident"] for site in cause(process, "heap_live")["sites"] if starts(site["stack"]))
        self.expect_close(found, wanted, share, f"pid {process['pid']}: unpickled at its start", least)

    def workers(self):
        """The processes that do the work: the children, or where a forkserver starts them, its children."""
        servers = {child["pid"] for child in self.children if child["parent"] == self.main["pid"]
                   and any("forkserver" in word for word in child["command"])}
        return [child for child in self.children if child["parent"] in (servers or {self.main["pid"]})]

    def touched_at(self, process, slug, marker, wanted, share, program=None):
        """What of a cause became resident by a line."""
        line = self.line(marker, program)
        found = sum(touched_bytes(site, line) for site in cause(process, slug)["sites"])
        self.blamed.append((line, found / wanted))
        self.expect_close(found, wanted, share, f"pid {process['pid']}: {slug} touched at {line[0]}:{line[1]}")

    def copied(self, process, wanted, share, made=None, written=None, least=0):
        """What a process copied of what a fork made shared, and under which lines most of it stands."""
        self.expect_close(process["cow"]["copied"], wanted, share, f"pid {process['pid']}: copied since fork", least)
        for what, marker in (("allocated_at", made), ("written_at", written)):
            if marker is not None:
                line = self.line(marker)
                found = bytes_by_line(process["cow"]["sites"], "copied", line, what)
                self.blamed.append((line, found / wanted))
                self.expect_close(found, wanted, max(share, 0.1), f"pid {process['pid']}: copied, {what} {line[0]}:{line[1]}")

    def says(self, name, process=None, severity=None, at=None, text=None, program=None, text_kind="fact"):
        """One verdict of that id is given: of that process, with that severity, naming that line (of another program)."""
        found = [verdict for verdict in verdicts(self.report, name) if process is None or verdict["pid"] == process["pid"]]
        self.expect(found, f"verdict {name}" + (f" of pid {process['pid']}" if process else ""))
        for verdict in found[:1]:
            if severity:
                self.expect(verdict["severity"] == severity, f"{name} is {verdict['severity']} (expected {severity})")
            if at:
                line = "%s:%d" % self.line(at, program)
                self.expect(line in verdict["headline"], f"{name} names {line}: {verdict['headline']}")
            if text:
                self.expect(text in verdict["headline"] + verdict["why"] + verdict["advice"], f"{name} says {text!r}", text_kind)

    def imported_by(self, module, processes, at=None):
        """By the report these processes, and no others, have each imported a module for itself."""
        self.says("per-process-import", at=at, text=module)
        reported = {worker["pid"] for verdict in verdicts(self.report, "per-process-import")
                    for worker in verdict["evidence"]["workers"]}
        self.expect(reported == {process["pid"] for process in processes}, f"{len(reported)} processes import {module}")

    def silent(self, *names):
        """No verdict of these ids is given."""
        for name in names:
            found = verdicts(self.report, name)
            self.expect(not found, f"no verdict {name}" + (f": {found[0]['headline']}" if found else ""))

    def unknown(self):
        """(growth, unknown growth) of all processes together: the sum of what grew, cause by cause."""
        grown = unknown = 0
        for process in self.processes:
            for entry in process["causes"]:
                growth = max(entry["growth"]["rss"], 0)
                grown += growth
                unknown += growth if entry["cause"] == "unknown" else 0
        return grown, unknown

    def state_one_truth(self, text):
        """The same figures stand wherever the report and its text tell them."""
        for found in contradictions(self.report) + contradictions_in_text(self.report, text):
            self.expect(False, f"told otherwise elsewhere: {found}")

    def state_conserved(self):
        """Bytes are conserved."""
        try:
            assert_conserved(self.report)
        except AssertionError as error:
            self.expect(False, f"causes sum to RSS, sites to their causes: {error}")

    def state_common(self, lost=0):
        """What holds for every scenario: bytes are conserved, next to nothing is unknown, nothing was lost."""
        self.state_conserved()
        grown, unknown = self.unknown()
        self.expect(unknown <= max(UNKNOWN_SHARE * grown, UNKNOWN_LEAST),
                    f"unknown: {unknown / MIB:.2f} of {grown / MIB:.1f} MiB of growth")
        self.expect(self.report["recording"]["lost"]["events"] <= lost, "no event was lost")
