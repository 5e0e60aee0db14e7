#!/usr/bin/env python3
"""Fails when an identifier has a word that this project no longer uses (CONTRIBUTING.md, "Words").

words.py ROOT | words.py --self-test
"""
import functools
import pathlib
import re
import sys

INSTEAD = {  # word of an identifier: what the field says
    "look": "walk, snapshot, read", "looks": "walks, snapshots", "looked": "walked", "sight": "snapshot, observation",
    "sights": "snapshots, observations", "told": "reported", "untold": "pending", "books": "totals, shares",
    "happening": "process event", "happenings": "process events", "purse": "token bucket", "purses": "token buckets",
    "owe": "schedule", "owes": "pending", "owed": "pending", "hasten": "prioritize", "hastened": "prioritized",
    "handed": "handoff", "maker": "allocation site", "makers": "allocation sites", "keeper": "holder",
    "keepers": "holders", "fate": "transition", "fates": "transitions", "borrowed_image": "vfork child",
}
# Keys of the report and of kernel interfaces, and names of looking something up in a table.
KEPT = {"not_looked_at", "add_not_looked_at", "look_up", "looked_up_kind", "WHYRSS_LOOK_UP", "WHYRSS_LOOKED_UP"}
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|R"\(.*?\)"|"(?:\\.|[^"\\\n])*"|\b\d[\w\'.]*|\'(?:\\.|[^\'\\\n])*\'|[A-Za-z_]\w*', re.S)
NAME = re.compile(r"[A-Za-z_]\w*")


def words_of(identifier):
    """The lower-case words of a name in snake_case or CamelCase."""
    return [word for word in re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier).lower().split("_") if word]


@functools.cache
def given_up(token):
    """The words of INSTEAD in a token; none where it is no identifier, or one that is kept."""
    if not NAME.fullmatch(token) or token in KEPT:
        return []
    words, joined = set(words_of(token)), "_".join(words_of(token))
    return [word for word in INSTEAD if word in words or ("_" in word and word in joined)]


def complaints(name, text):
    for number_of_line, token in ((text.count("\n", 0, match.start()) + 1, match[0]) for match in TOKEN.finditer(text)):
        for word in given_up(token):
            yield f"{name}:{number_of_line}: {token}: not \"{word}\" but {INSTEAD[word]}"


def all_complaints(root):
    for top in ("shim", "analyzer"):
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".cc", ".h", ".c", ".S", ".inc"):
                yield from complaints(path.relative_to(root), path.read_text())


def self_test():
    """Each kind of identifier is found, and none in comments, strings and names that are kept."""
    forbidden = ["void look_at();", "class TouchBooks {};", "kMaker = 1;", "int told_;", "bool is_borrowed_image();"]
    allowed = ["// a look\n", "/* told */", 'auto a = "maker";', "Cause::not_looked_at;", "kLookahead;", "booksellers;",
               "1'000'000;"]
    for text in forbidden:
        if not list(complaints("", text)):
            return f"self-test: nothing found in {text}"
    for text in allowed:
        if list(complaints("", text)):
            return f"self-test: {text}: {list(complaints('', text))}"
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(self_test())
    found = list(all_complaints(pathlib.Path(sys.argv[1])))
    sys.exit("\n".join(found) if found else None)
