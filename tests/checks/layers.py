#!/usr/bin/env python3
"""Fails when a file includes what its layer may not know (the arrows of CONTRIBUTING.md).

layers.py ROOT | layers.py --self-test
"""
import pathlib
import re
import sys
import tempfile

MAY_INCLUDE = {
    "shim/trace": set(),
    "shim": {"shim/trace"},
    "analyzer/support": set(),
    "analyzer/model": {"analyzer/support"},
    "analyzer/procfs": {"analyzer/support"},
    "analyzer/recording": {"analyzer/support", "shim/trace"},
    "analyzer/collect": {"analyzer/procfs", "analyzer/recording", "analyzer/support", "shim/trace"},
    "analyzer/attribute": {"analyzer/model", "analyzer/support"},
    "analyzer/ingest": {"analyzer/model", "analyzer/procfs", "analyzer/recording", "analyzer/attribute",
                        "analyzer/support", "shim/trace"},
    "analyzer/symbolize": {"analyzer/model", "analyzer/support"},
    "analyzer/report": {"analyzer/model", "analyzer/support"},
}
MAY_INCLUDE["analyzer/cli"] = set(MAY_INCLUDE) - {"shim"}
MAY_INCLUDE["analyzer"] = set(MAY_INCLUDE) - {"shim"}  # main.cc, where the parts are put together

# The shim lives in other people's processes: nothing that allocates, throws or prints. Attribution,
# the model and the parsers are pure: no clock, no file, no process.
IO = r"fstream|iostream|filesystem|cstdio|stdio\.h|unistd\.h|fcntl\.h|dirent\.h|chrono|ctime|time\.h|sys/.*"
CONTAINERS = r"string|vector|map|set|unordered_.*|deque|list|functional|memory|mutex|thread|future|regex|any"
MAY_NOT_USE = {
    "shim": rf"iostream|fstream|sstream|filesystem|chrono|cstdio|stdio\.h|{CONTAINERS}|fmt/.*|nlohmann/.*",
    "shim/trace": rf"iostream|fstream|sstream|filesystem|chrono|cstdio|stdio\.h|{CONTAINERS}|fmt/.*|nlohmann/.*",
    "analyzer/attribute": IO,
    "analyzer/model": IO,
    "analyzer/procfs": IO,
    "analyzer/report": IO,
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def layer_of(path):
    """The longest folder of the table that holds `path` (relative to the root), or None."""
    return max((name for name in MAY_INCLUDE if path.startswith(name + "/")), key=len, default=None)


def included_layer(root, source, name):
    """The layer that #include "name" in `source` reaches, or None when there is no such file."""
    for base in (source.parent, root, root / "analyzer"):
        if (base / name).is_file():
            return layer_of((base / name).resolve().relative_to(root).as_posix())
    return None


def complaints(root):
    root = root.resolve()
    sources = [path for top in ("shim", "analyzer") for path in sorted((root / top).rglob("*"))]
    for source in (path for path in sources if path.suffix in (".cc", ".h", ".S", ".c", ".inc")):
        layer = layer_of(source.relative_to(root).as_posix())
        for number, line in enumerate(source.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            where = f"{source.relative_to(root)}:{number}"
            if match[1] == "<":
                if re.fullmatch(MAY_NOT_USE.get(layer, "-"), match[2]):
                    yield f"{where}: {layer} may not use <{match[2]}>"
                continue
            target = included_layer(root, source, match[2])
            if target is None:
                yield f'{where}: no file "{match[2]}" in any layer'
            elif target != layer and target not in MAY_INCLUDE[layer]:
                yield f"{where}: {layer} may not include {target} ({match[2]})"


def self_test():
    """Each forbidden arrow is seen, and each allowed one is not."""
    cases = [
        ("shim/a.cc", '#include "analyzer/model/m.h"', True), ("shim/trace/a.h", '#include "shim/s.h"', True),
        ("analyzer/attribute/a.cc", "#include <fstream>", True), ("shim/a.cc", "#include <vector>", True),
        ("analyzer/attribute/a.cc", "#include <sys/mman.h>", True), ("analyzer/report/a.cc", '#include "procfs/p.h"', True),
        ("analyzer/model/a.h", '#include "shim/trace/t.h"', True), ("analyzer/report/a.cc", '#include "gone.h"', True),
        ("analyzer/model/a.h", '#include "support/s.h"', False), ("shim/a.cc", '#include "shim/trace/t.h"', False),
        ("analyzer/cli/a.cc", '#include "collect/c.h"', False), ("analyzer/collect/a.cc", "#include <unistd.h>", False),
    ]
    for path, text, forbidden in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("shim/s.h", "shim/trace/t.h", "analyzer/model/m.h", "analyzer/support/s.h",
                         "analyzer/procfs/p.h", "analyzer/collect/c.h"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("#pragma once\n")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n")
            if bool(list(complaints(root))) != forbidden:
                return f"self-test: {path} with {text}: expected {'a' if forbidden else 'no'} complaint"
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(self_test())
    found = list(complaints(pathlib.Path(sys.argv[1])))
    sys.exit("\n".join(found) if found else None)
