"""Reads the JSON report of a recording: processes, causes, sites, lines. Sizes are bytes; no figure depends on time."""
import os


def cause(process, slug):
    """The process's figures for one cause; zeroes where the report does not list it."""
    for entry in process["causes"]:
        if entry["cause"] == slug:
            return entry
    return {"cause": slug, "rss": dict.fromkeys(("first", "last", "peak", "at_peak"), 0),
            "growth": {"rss": 0, "pss": 0, "uss": 0}, "sites": []}


def assert_conserved(report):
    """Causes sum to RSS exactly, for every process and each of the moments that the contract names."""
    walked = [process for process in report["processes"] if process["causes"]]
    assert walked, "no process was walked"
    for process in walked:
        for moment, total in (("first", "first"), ("last", "last"), ("at_peak", "peak")):
            found = sum(entry["rss"][moment] for entry in process["causes"])
            assert found == process["rss"][total], (process["pid"], process["command"], moment)
        for entry in process["causes"]:
            assert sum(site["growth"] for site in entry["sites"]) == entry["growth"]["rss"], (process["pid"], entry["cause"])


def marked_line(script, marker):
    """file:line of the only line of a script (a path) that ends in "# marker"."""
    hits = [number for number, line in enumerate(script.read_text(encoding="utf-8").splitlines(), 1)
            if line.endswith((f"# {marker}", f"// {marker}"))]
    assert len(hits) == 1, f"{script.name}: {len(hits)} lines are marked {marker}"
    return script.name, hits[0]


def lines_of(stack):
    """file:line of the frames of a stack that have one, innermost first."""
    return [(os.path.basename(frame["file"]), frame["line"]) for frame in stack if frame["line"] > 0]


def bytes_by_line(sites, figure, line, stack="stack"):
    """The sum of a figure over the sites whose stack holds that line."""
    return sum(site[figure] for site in sites if line in lines_of(site[stack]))


def touched_bytes(site, line):
    """What a line made resident of a site."""
    return sum(touch["growth"] for touch in site["touched_by"] if line in lines_of(touch["stack"]))


def verdicts(report, name):
    return [verdict for verdict in report["verdicts"] if verdict["id"] == name]
