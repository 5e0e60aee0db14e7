"""Runs a recipe of demos/recipes as it stands there, in a folder with the programs that it names, and compares its output with
what it shows."""
import collections
import os
import pathlib
import re
import shutil
import socket
import subprocess

from conftest import PATIENCE_S, ROOT

RECIPES = ROOT / "demos/recipes"
TOLERANCE = 0.05

# What the host does without whyrss: the same recipe, with this in its place.
STAND_IN = """#!/bin/bash
[[ $1 == record ]] || exit 0
while [[ $1 != -- ]]; do shift; done
shift
exec "$@"
"""


def expected_lines(recipe):
    """The lines of output that a recipe shows: `#> LINE`, `...` for what differs from run to run."""
    return [line.removeprefix("#> ") for line in recipe.read_text().splitlines() if line.startswith("#> ")]


def number_parts(line):
    """(the text between its numbers, its numbers); what is part of a word is no number."""
    pattern = r"(?<![\w.:/])\d+(?:\.\d+)?(?![\w:])"
    return re.split(pattern, line), [float(number) for number in re.findall(pattern, line)]


def matches(expected, line):
    """Whether a line is as shown: the same words, numbers within 5 %."""
    texts, numbers = number_parts(expected)
    gap = r"(\d+(?:\.\d+)?)"
    found = re.match(gap.join(re.escape(text).replace(re.escape("..."), ".*") for text in texts), line)
    return found is not None and all(abs(float(got) - wanted) <= TOLERANCE * wanted
                                     for got, wanted in zip(found.groups(), numbers))


def missing_lines(recipe, output):
    lines = output.splitlines()
    return [expected for expected in expected_lines(recipe) if not any(matches(expected, line) for line in lines)]


def without_numbers(output):
    """How often each line is there, whatever its numbers are."""
    return collections.Counter(re.sub(r"0x[0-9a-f]+|\d+(\.\d+)*", "#", line).rstrip() for line in output.splitlines())


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def environment(whyrss, folder, more):
    """As after an installation: whyrss is in PATH, its Python modules are found. Debian's programs come first."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PYENV", "WHYRSS", "LD_PRELOAD"))}
    path = f"{folder}/bin:{whyrss.program.parent}:/usr/bin:/bin:/usr/sbin:/sbin"
    return {**kept, "PATH": path, "HOME": str(folder / "home"), "PYTHONPATH": str(whyrss.program.parent.parent / "lib/python"),
            "PORT": str(free_port()), "PYTHONDONTWRITEBYTECODE": "1", **more}


def copied_files(folder, commands):
    """The folder that a recipe runs in, with these commands before all others."""
    shutil.copytree(RECIPES / "programs", folder / "work")
    for name in ("bin", "home"):
        (folder / name).mkdir()
    for name, text in commands.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    return folder / "work"


def run(whyrss, folder, name, commands, **variables):
    folder.mkdir()
    work = copied_files(folder, commands)
    # Its own process group: a recipe that is given up takes what it started with it.
    return subprocess.run(["timeout", "--kill-after=5", str(2 * PATIENCE_S), "bash", str(RECIPES / name)], cwd=work,
                          env=environment(whyrss, folder, variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          errors="replace", text=True, check=False)


class RecipeRuns:
    def __init__(self, whyrss, folder):
        self.whyrss, self.folder = whyrss, folder
        self.work = folder / "recorded/work"

    def follow(self, name, commands=None, bare=True, **variables):
        """Output of a recipe that printed what it shows, and left the output and status of what it records as they were."""
        done = run(self.whyrss, self.folder / "recorded", name, commands or {}, **variables)
        assert done.returncode == 0, done.stdout
        assert expected_lines(RECIPES / name)
        broken = missing_lines(RECIPES / name, done.stdout)
        assert not broken, "\n".join([*broken, "came out as", done.stdout])
        if bare:
            without = run(self.whyrss, self.folder / "bare", name, {**(commands or {}), "whyrss": STAND_IN}, **variables)
            assert without.returncode == 0, without.stdout
            missing = without_numbers(without.stdout) - without_numbers(done.stdout)
            assert not missing, (missing, done.stdout)
        return done.stdout

    def report(self, pattern):
        """The JSON report of the recording with that name in the recipe's folder."""
        (recording,) = self.work.glob(pattern)
        return self.whyrss.report(recording)


def needs(*programs):
    """Skips where a program is missing."""
    import pytest
    for program in programs:
        if not shutil.which(program, path="/usr/bin:/bin:/usr/sbin:/sbin"):
            pytest.skip(f"{program} is not installed (tests/fetch-recipes)")


def line_of(program, text):
    """(file, line) of the line of a recipe's program that holds a text."""
    lines = (RECIPES / "programs" / program).read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines, 1) if text in line]
    return pathlib.Path(program).name, number
