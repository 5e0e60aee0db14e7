"""The table that a person reads, and the JSON that a program reads."""
import dataclasses

from .figures import MIB, Line, Size, Words

COLUMNS = ("job", "figure", "truth", "told", "runs", "wrong", "marked", "wrong line", "false word")
KINDS = {Size: "wrong", Line: "wrong line", Words: "false word"}


@dataclasses.dataclass
class Row:
    """A figure of a job over all of its runs; of several workers each run has several."""
    job: str
    figure: str
    found: list = dataclasses.field(default_factory=list)

    @property
    def kind(self):
        return KINDS[type(self.found[0])]

    @property
    def wrong(self):
        return sum(one.wrong for one in self.found)

    @property
    def marked(self):
        return sum(one.marked for one in self.found)

    def cells(self):
        counts = {kind: "-" for kind in KINDS.values()}
        counts[self.kind] = str(self.wrong)
        return (self.job, self.figure, span([one.truth for one in self.found]),
                span([reported_of(one) for one in self.found]), str(len(self.found)), counts["wrong"], str(self.marked),
                counts["wrong line"], counts["false word"])

    def as_json(self):
        reported = [one.reported.bytes if isinstance(one, Size) else one.reported for one in self.found]
        return {"job": self.job, "figure": self.figure, "kind": self.kind, "truth": [one.truth for one in self.found],
                "told": reported, "wrong": self.wrong, "marked": self.marked}


def reported_of(one):
    if not isinstance(one, Size):
        return one.reported or "-"
    if one.reported.bytes is None:
        return "absent" if one.reported.absent else "not known"
    return one.reported.bytes


def span(values):
    """min..max of sizes in MiB; texts as they are, each once."""
    sizes = [value for value in values if not isinstance(value, str)]
    texts = sorted({value for value in values if isinstance(value, str)})
    if sizes:
        low, high = (f"{size / MIB:.1f}" for size in (min(sizes), max(sizes)))
        texts.insert(0, low if low == high else f"{low}..{high}")
    return ", ".join(texts)


def rows_of(job, runs):
    """A row for each name of a figure, in the order of the first run."""
    rows = {}
    for figures in runs:
        for figure in figures:
            rows.setdefault(figure.name, Row(job, figure.name)).found.append(figure)
    return list(rows.values())


def lines_of(rows):
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]


def closing(rows):
    sums = {kind: sum(row.wrong for row in rows if row.kind == kind) for kind in KINDS.values()}
    total = {kind: sum(len(row.found) for row in rows if row.kind == kind) for kind in KINDS.values()}
    return (f"{sums['wrong']} of {total['wrong']} sizes wrong, {sum(row.marked for row in rows)} more marked as uncertain; "
            f"{sums['wrong line']} of {total['wrong line']} lines wrong, {sums['false word']} of {total['false word']} "
            "texts false.")
