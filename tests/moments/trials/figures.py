"""What a report says of a moment, beside what the job knows of it, and whether the two agree."""
import dataclasses
import math

MIB = 1 << 20
SHARE, LEAST = 0.03, 2 * MIB  # a figure is right within the larger of the two
STANDARD_ERRORS = 3           # of a line known from samples


@dataclasses.dataclass(frozen=True)
class Reported:
    """A figure of a report."""
    bytes: int | None   # None: the report says that it does not know it
    doubt: float = 0    # by how much it may be off by the report's own words; infinite for an estimate without an error
    absent: bool = False  # the report has no place for it: no such process


ABSENT = Reported(None, absent=True)


@dataclasses.dataclass(frozen=True)
class Size:
    """Bytes that the job counted."""
    name: str
    truth: int
    reported: Reported

    @property
    def beyond(self):
        """By how much it lies outside of what is right."""
        return abs(self.reported.bytes - self.truth) - max(SHARE * self.truth, LEAST)

    @property
    def off(self):
        return self.reported.bytes is None or self.beyond > 0

    @property
    def marked(self):
        """It is off, and the report says that it may be."""
        if not self.off or self.reported.absent:
            return False
        return self.reported.bytes is None or self.beyond <= self.reported.doubt

    @property
    def wrong(self):
        return self.off and not self.marked


@dataclasses.dataclass(frozen=True)
class Line:
    """The line that must be named first."""
    name: str
    truth: str
    reported: str

    @property
    def wrong(self):
        return self.reported != self.truth


@dataclasses.dataclass(frozen=True)
class Words:
    """What the text must not say (truth "never") or must say (truth "always")."""
    name: str
    truth: str
    reported: str  # what was found, "" for nothing

    @property
    def wrong(self):
        return bool(self.reported) == (self.truth == "never")


def doubt_of(*entries):
    """By how much a figure may be off by the report's own words, from the JSON objects that it stands in: a process, a
    cause, a sum of the family, sites. The only place that knows how a report marks memory of which it has no walk.
    """
    doubt = 0
    for entry in entries:
        if entry.get("estimate"):
            return math.inf
        doubt += STANDARD_ERRORS * entry.get("standard_error", 0)
        doubt += sum(max(map(abs, cause["rss"].values())) for cause in entry.get("causes", ())
                     if cause["cause"] == "not_looked_at")
    return doubt
