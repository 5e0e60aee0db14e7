"""A case of which nothing but a figure is off, by sampling, polls or timing, is repeated ten times, one after another, each
in a process of its own. Two that are off in those ten fail the case; fewer are listed as unsteady, and tests/run fails
with more than five unsteady cases. Whatever else goes wrong fails it at once, in a repeat too.

Computed for n = 10: a fault that shows in 1 of 3 runs is found in 90 % of the runs in which it shows, by
1 - (2/3)^10 - 10 (1/3) (2/3)^9; a case that is off by chance in 1 % of its runs fails in 0.4 % of them.
"""
import os
import subprocess

REPEATS = 10
MOST_OFF = 1     # of the repeats
FIGURE_OFF = 70  # the exit status of a repeat in which nothing but figures was off
HANGS_S = 900    # one repeat
RECORDINGS = 3   # at most, until one misses no walk: a leaving process waits 0.5 to 2 s for its last, which a busy machine may exceed
IS_REPEAT = "WHYRSS_REPEAT" in os.environ


def note(line):
    """Keeps a line for the end of tests/run, which names the file."""
    if path := os.environ.get("WHYRSS_UNSTEADY"):
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(line + "\n")


def _ended_as(command, folder):
    """How one repeat ended: "passed", "off", or what else it came to with the end of its output."""
    try:
        result = subprocess.run(command, cwd=folder, env={**os.environ, "WHYRSS_REPEAT": "1"}, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, check=False, timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return f"did not end within {HANGS_S} s"
    return {0: "passed", FIGURE_OFF: "off"}.get(result.returncode, f"status {result.returncode}\n{result.stdout[-6000:]}")


def repeat(name, reason, command, folder):
    """(the line that lists the case as unsteady, "") or ("", what fails it). `command` runs the case alone, in `folder`."""
    off = 0
    for number in range(REPEATS):
        ended = _ended_as(command, folder)
        if ended not in ("passed", "off"):
            return "", f"repeat {number + 1} of {REPEATS}: {ended}"
        off += ended == "off"
        if off > MOST_OFF:
            return "", f"a figure was off again in {off} of {number + 1} repeats"
    line = f"unsteady: {name} failed {1 + off} of {1 + REPEATS} ({reason})"
    note(line)
    return line, ""
