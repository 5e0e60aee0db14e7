"""The table that a person reads, and the JSON that a program reads."""
import dataclasses
import json

from harness.ways import WAYS

RECORDED = [way.name for way in WAYS if way.name != "bare"]


@dataclasses.dataclass
class Row:
    name: str
    timed: bool = True
    skipped: str = ""  # why it did not run
    results: dict = dataclasses.field(default_factory=dict)  # way -> WayResult

    @property
    def verdict(self):
        if self.skipped:
            return "skipped"
        return "differs" if any(result.differing_runs for result in self.results.values()) else "same"

    def ratio(self, way):
        bare = self.results["bare"].cpu_s
        return self.results[way].cpu_s / bare if bare > 0 and self.timed and self.results[way].runs else None


def cell(row, way):
    result = row.results[way]
    ratio = row.ratio(way)
    figure = f"{ratio:.2f}" if ratio is not None else "-"
    if not result.runs:
        return "not run"
    return figure if result.verdict == "same" else f"{figure} DIFFERS {result.differing_runs}/{result.runs}"


def line_of(row):
    if row.skipped:
        return f"{row.name:34} skipped: {row.skipped}"
    bare = row.results["bare"]
    return f"{row.name:34} {bare.cpu_s:8.2f} {bare.wall_s:8.2f}  " + "  ".join(f"{cell(row, way):18}" for way in RECORDED)


def heading():
    return f"{'host':34} {'CPU s':>8} {'wall s':>8}  " + "  ".join(f"{way:18}" for way in RECORDED)


def details_of(row):
    """What differs, in each way, and where its output lies."""
    lines = []
    for way, result in row.results.items():
        if result.differences or result.notes:
            lines.append(f"  {row.name}, {way}:" + (f" (output in {result.log})" if result.log else ""))
            lines += [f"    {text}" for text in result.differences[:12]]
            if len(result.differences) > 12:
                lines.append(f"    and {len(result.differences) - 12} more")
            lines += [f"    note: {text}" for text in result.notes]
    return lines


def closing(rows):
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in ("same", "differs", "skipped")}
    return (f"{counts['same']} hosts as bare in every way, {counts['differs']} differ, {counts['skipped']} were skipped. "
            "Figures are CPU time of the whole tree, of bare.")


def as_json(rows, machine):
    return json.dumps({"schema": "whyrss.hosts/1", "machine": machine, "hosts": [one_as_json(row) for row in rows]}, indent=1)


def one_as_json(row):
    ways = {way: {"verdict": result.verdict, "runs": result.runs, "differing_runs": result.differing_runs,
                  "wall_s": round(result.wall_s, 3), "cpu_s": round(result.cpu_s, 3),
                  "cpu_ratio": row.ratio(way), "differences": result.differences, "notes": result.notes}
            for way, result in row.results.items()}
    return {"host": row.name, "verdict": row.verdict, "skipped": row.skipped or None, "ways": ways}
