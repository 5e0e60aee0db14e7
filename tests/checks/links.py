#!/usr/bin/env python3
"""Fails when a link of a Markdown file leads to a file or a heading that is not there.

links.py ROOT | links.py --self-test
"""
import pathlib
import re
import subprocess
import sys
import tempfile

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"(?m)^#{1,6} +(.+)$")
FENCED = re.compile(r"(?ms)^```.*?^```")


def anchors(text):
    """Of the headings, as GitHub makes them."""
    names = (re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
             for heading in HEADING.findall(FENCED.sub("", text)))
    return set(names)


def complaints(root, files):
    for path in files:
        for link in LINK.findall(FENCED.sub("", path.read_text())):
            if re.match(r"[a-z]+:", link):
                continue
            place, _, anchor = link.partition("#")
            target = path if not place else path.parent / place
            if not target.exists():
                yield f"{path.relative_to(root)}: {link}: no such file"
            elif anchor and target.suffix == ".md" and anchor not in anchors(target.read_text()):
                yield f"{path.relative_to(root)}: {link}: no such heading"


def tracked(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard", "*.md"], check=True, capture_output=True,
                            text=True).stdout
    return [root / name for name in listed.split("\n") if name and (root / name).exists()]


def self_test():
    """What is found, and what is not."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        (root / "b.md").write_text("# Two `words`, here\n```\n# none\n```\n")
        (root / "a.md").write_text("[x](b.md) [x](b.md#two-words-here) [x](https://x.y/z) [x](#none) [x](c.md) [x](b.md#none)\n")
        found = list(complaints(root, [root / "a.md"]))
    expected = ["a.md: #none: no such heading", "a.md: c.md: no such file", "a.md: b.md#none: no such heading"]
    return None if found == expected else f"self-test: {found}"


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = pathlib.Path(sys.argv[1]).resolve()
    return "\n".join(complaints(root, tracked(root))) or None


if __name__ == "__main__":
    sys.exit(main())
