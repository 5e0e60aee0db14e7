"""Reads the JSON report of a recording: processes, causes, sites, lines. Sizes are bytes; no figure depends on time."""
import json
import os
import re


def _stack_holders(report):
    """Each object of a report that refers to stacks, with the names of those members."""
    for process in report["processes"]:
        for entry in process["causes"]:
            for site in entry["sites"]:
                for part in [site, *site["touched_by"], *site.get("advised_by", [])]:
                    yield part, ["stack", "during"] if "during" in part else ["stack"]
        for site in process["cow"]["sites"]:
            yield site, ["allocated_at", "written_at"]


def read_report(text):
    """A JSON report of either schema, with each stack as a list of frames where it is referred to."""
    report = json.loads(text)
    if "stacks" not in report:
        return report
    stacks = report["stacks"]
    for holder, names in _stack_holders(report):
        for name in names:
            holder[name] = stacks[holder[name]]
    return report


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


# The cause whose growth the headline of a verdict states.
VERDICT_CAUSES = {"heap-growth": "heap_live", "heap-retained": "heap_retained", "heap-fragmented": "heap_slack",
                  "lazy-free-growth": "lazy_free", "file-cache-growth": "file_cache"}


def contradictions(report):
    """Figures of a report that must be the same wherever they stand, and are not."""
    found = []

    def expect(holds, *what):
        if not holds:
            found.append(" ".join(map(str, what)))

    end = report["interval"]["to_s"]
    walked = {process["pid"]: process for process in report["processes"] if process["causes"]}
    for pid, process in walked.items():
        for total in ("rss", "uss"):
            figure = process[total]
            expect(figure["peak"] >= max(figure["first"], figure["last"]), pid, total, figure)
        expect(process["rss"]["high_water"] >= process["rss"]["peak"], pid, "VmHWM", process["rss"])
        expect(process["pss"]["last"] is None or process["pss"]["last"] <= process["rss"]["last"], pid, "PSS", process["pss"])
        for name, moment in process["moments"].items():
            expect(moment is None or moment["looked_s"] <= moment["time_s"] <= max(end, moment["time_s"]), pid, name, moment)
    family = report["family"]
    accounting, peak = family["accounting"], family["accounting"]["at_peak"]
    expect(accounting["rss_sum"] >= family["rss_sum"]["peak"] >= family["rss_sum"]["last"], "RSS summed", family["rss_sum"])
    if peak is not None:
        expect(peak["rss_sum"] == sum(entry["rss"] for entry in peak["processes"]), "RSS of the peak's processes")
        expect(peak["rss_sum"] <= accounting["rss_sum"], "RSS at the peak", peak["rss_sum"])
        if peak["pss_sum"] is not None:
            expect(peak["pss_sum"] <= family["pss"]["peak"], "PSS at the peak", peak["pss_sum"], family["pss"])
    for verdict in report["verdicts"]:
        slug = VERDICT_CAUSES.get(verdict["id"]) or verdict["evidence"].get("cause")
        growth = verdict["evidence"].get("growth_bytes") if "until_s" not in verdict["evidence"] else None  # of then
        if growth is not None and slug and verdict["pid"] in walked and verdict["id"] != "cause-growth":
            expected = cause(walked[verdict["pid"]], slug)["growth"]["rss"]
            expect(growth == expected, verdict["id"], verdict["pid"], growth, expected)
    return found


def mib(size):
    return f"{size / (1 << 20):.1f}"


def contradictions_in_text(report, text):
    """What the text of the same report says otherwise."""
    found = []
    for process in report["processes"]:
        head = re.search(rf"^.*\(pid {process['pid']}\)   RSS ([+-]?)([\d.]+) (B|KiB|MiB|GiB) in ", text, re.MULTILINE)
        if head and process["causes"]:
            unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[head[3]]
            shown = float(head[2]) * unit * (-1 if head[1] == "-" else 1)
            growth = process["rss"]["last"] - process["rss"]["first"]
            if abs(shown - growth) > 0.51 * unit:
                found.append(f"pid {process['pid']}: RSS {head[0]}, not {growth}")
        row = re.search(rf"^ +{process['pid']}  (?:start|fork of \d+|child of \d+|\S+) .*$", text, re.MULTILINE)
        if row and process["causes"] and mib(process["rss"]["last"]) not in row[0].split():
            found.append(f"pid {process['pid']}: {row[0]}")
    words = " ".join(text.split())  # whatever the width
    for head in re.finditer(r"\(pid (\d+)\) RSS \+([\d.]+) [KMGT]?i?B in (?:the )?[\d.]+ \w+(?: that were recorded)?(?: \(then [^)]*\))?"
                            r" = (.*?)(?:;| (?:ok|info|warning|problem) )", words):
        parts = re.findall(r"(?:^|([+-]) )([\d.]+) [a-z]", head[3])
        if abs(sum(float(size) * (-1 if sign == "-" else 1) for sign, size in parts) - float(head[2])) > 0.01:
            found.append(f"pid {head[1]}: parts of its growth do not sum to it: {head[0]}")
    for verdict in report["verdicts"]:
        if verdict["severity"] == "problem" and " ".join(verdict["headline"].split()) not in words:
            found.append(f"not in the text: {verdict['headline']}")
    return found


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
