#!/usr/bin/env python3
"""Fails when a file includes what its layer may not know (the arrows of CONTRIBUTING.md), where more than two units
include each other in a circle, and where two sources of a layer define the same name in unnamed namespaces. A unit is a
header with its source file.

layers.py ROOT | layers.py --self-test
"""
import pathlib
import re
import sys
import tempfile

MAY_INCLUDE = {
    "shim/trace": set(),
    "analyzer/support": set(),
    "analyzer/model": {"analyzer/support"},
    "analyzer/procfs": {"analyzer/support"},
    "analyzer/recording": {"analyzer/support", "shim/trace"},
    "analyzer/metrics": {"analyzer/support"},
    "analyzer/attribute": {"analyzer/model", "analyzer/support"},
    "analyzer/decode": {"analyzer/model", "analyzer/procfs", "analyzer/recording", "analyzer/attribute",
                        "analyzer/support", "shim/trace"},
    "analyzer/symbolize": {"analyzer/model", "analyzer/support"},
    "analyzer/fmt": set(),
    "analyzer/export": {"analyzer/report", "analyzer/model", "analyzer/support"},
    "analyzer/job": {"analyzer/export", "analyzer/report", "analyzer/model", "analyzer/support"},
}
SHIM = ["shim/trace", "shim/sys", "shim/events", "shim/stacks", "shim/heap", "shim/faults", "shim/observe", "shim/process",
        "shim/hooks"]  # each may include those before it
COLLECT = [f"analyzer/collect/{part}" for part in ("read", "cgroup", "python", "start", "loop")]  # as in the shim
REPORT = [f"analyzer/report/{part}" for part in ("wording", "view", "verdicts", "render", "html", "compare", "diff")]
BELOW = {"analyzer/collect": {"analyzer/metrics", "analyzer/procfs", "analyzer/recording", "analyzer/support", "shim/trace"},
         "analyzer/report": {"analyzer/model", "analyzer/support"}}
MAY_INCLUDE.update({layer: set(SHIM[:place]) for place, layer in enumerate(SHIM)})
for parts in (COLLECT, REPORT):
    below = BELOW[parts[0].rpartition("/")[0]]
    MAY_INCLUDE.update({layer: below | set(parts[:place]) for place, layer in enumerate(parts)})
MOST_IN_CIRCLE = 2
MAY_INCLUDE["analyzer/replay"] = MAY_INCLUDE["analyzer/decode"] | {"analyzer/decode"}
MAY_INCLUDE["analyzer/load"] = MAY_INCLUDE["analyzer/replay"] | {"analyzer/replay"}
MAY_INCLUDE["analyzer/cli"] = set(MAY_INCLUDE) - set(SHIM[1:])
MAY_INCLUDE["analyzer"] = set(MAY_INCLUDE) - set(SHIM[1:])  # main.cc, where the parts are put together

# The shim lives in other people's processes: nothing that allocates, throws or prints. Attribution,
# the model and the parsers are pure: no clock, no file, no process.
IO = r"fstream|iostream|filesystem|cstdio|stdio\.h|unistd\.h|fcntl\.h|dirent\.h|chrono|ctime|time\.h|sys/.*"
CONTAINERS = r"string|vector|map|set|unordered_.*|deque|list|functional|memory|mutex|thread|future|regex|any"
MAY_NOT_USE = {
    **dict.fromkeys(SHIM, rf"iostream|fstream|sstream|filesystem|chrono|cstdio|stdio\.h|{CONTAINERS}|fmt/.*|nlohmann/.*"),
    "analyzer/attribute": IO,
    "analyzer/model": IO,
    "analyzer/procfs": IO,
    **dict.fromkeys(REPORT, IO),
    "analyzer/export": IO.replace("|ctime", ""),
}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def may_include(layer, target):
    """A row that names a folder means all below it."""
    return any(target == allowed or target.startswith(allowed + "/") for allowed in MAY_INCLUDE[layer] | {layer})


def layer_of(path):
    """The longest folder of the table that holds `path` (relative to the root), or None."""
    return max((name for name in MAY_INCLUDE if path.startswith(name + "/")), key=len, default=None)


def included_file(root, source, name):
    """The path, relative to the root, that #include "name" in `source` reaches, or None when there is no such file."""
    for base in (source.parent, root, root / "analyzer"):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root).as_posix()
    return None


def circles(includes):
    """Sets of units that all reach each other (Tarjan's algorithm), `includes`: unit -> units."""
    numbers, lowest, stack, found = {}, {}, [], []

    def visit(unit):
        numbers[unit] = lowest[unit] = len(numbers)
        stack.append(unit)
        for other in sorted(includes.get(unit, ())):
            if other not in numbers:
                visit(other)
                lowest[unit] = min(lowest[unit], lowest[other])
            elif other in stack:
                lowest[unit] = min(lowest[unit], numbers[other])
        if lowest[unit] == numbers[unit]:
            place = stack.index(unit)
            found.append(stack[place:])
            del stack[place:]

    for unit in sorted(includes):
        if unit not in numbers:
            visit(unit)
    return [circle for circle in found if len(circle) > 1]


def complaints(root):
    root = root.resolve()
    sys.setrecursionlimit(10_000)
    sources = [path for top in ("shim", "analyzer") for path in sorted((root / top).rglob("*"))]
    includes = {}
    for source in (path for path in sources if path.suffix in (".cc", ".h", ".S", ".c", ".inc")):
        layer = layer_of(source.relative_to(root).as_posix())
        unit = source.relative_to(root).with_suffix("").as_posix()
        if layer in (None, "analyzer") and source.parent not in (root / "analyzer", root / "shim"):
            yield f"{source.relative_to(root)}: in a folder that the table lacks"
        for number, line in enumerate(source.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            where = f"{source.relative_to(root)}:{number}"
            if match[1] == "<":
                if re.fullmatch(MAY_NOT_USE.get(layer, "-"), match[2]):
                    yield f"{where}: {layer} may not use <{match[2]}>"
                continue
            file = included_file(root, source, match[2])
            if file is None:
                yield f'{where}: no file "{match[2]}" in any layer'
                continue
            includes.setdefault(unit, set()).add(file.rsplit(".", 1)[0])
            target = layer_of(file)
            if target is None or not may_include(layer, target):
                yield f"{where}: {layer} may not include {target} ({match[2]})"
    for circle in circles({unit: others - {unit} for unit, others in includes.items()}):
        if len(circle) > MOST_IN_CIRCLE:
            yield f"{len(circle)} units include each other: {', '.join(sorted(circle))}"


# What sources of a layer define for themselves at the left margin: a type, a constant, a function with its parameters.
OWN_BLOCK = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.DOTALL | re.MULTILINE)
OWN_TYPE = re.compile(r"^(?:class|struct|enum class|enum) (\w+)\b(?![^\n]*;$)", re.MULTILINE)
OWN_CONSTANT = re.compile(r"^(?:constexpr|const|thread_local|std::)[^\n(]*?\b(\w+)(?:\[\w*\])?\s*[={]", re.MULTILINE)
OWN_FUNCTION = re.compile(r"^(?!return|using|namespace|else|class|struct|enum)[\w:][\w:<>,&* ]*?[ *&](\w+)\(([^{;]*?)\)(?: noexcept)?\s*\{",
                          re.MULTILINE)


def own_names(text):
    for block in OWN_BLOCK.findall(text):
        yield from OWN_TYPE.findall(block)
        yield from OWN_CONSTANT.findall(block)
        for name, parameters in OWN_FUNCTION.findall(block):
            yield f"{name}({re.sub(r'[ ]*[A-Za-z_0-9]+[ ]*(?=,|$)', '', ' '.join(parameters.split()))})"


def twins(root):
    """Names that two sources of a layer define in unnamed namespaces: compiled as one unit they clash."""
    owners = {}
    for source in sorted((root / "analyzer").glob("**/*.cc")):
        unit = str(source.relative_to(root))
        for name in set(own_names(source.read_text())):
            first = owners.setdefault((unit.split("/")[1], name), unit)
            if first != unit:
                yield f"{unit}: {first} defines {name} too"


def self_test():
    """Each forbidden arrow is seen, and each allowed one is not."""
    cases = [
        ("shim/heap/a.cc", '#include "analyzer/model/m.h"', True), ("shim/trace/a.h", '#include "shim/sys/s.h"', True),
        ("analyzer/attribute/a.cc", "#include <fstream>", True), ("shim/heap/a.cc", "#include <vector>", True),
        ("analyzer/attribute/a.cc", "#include <sys/mman.h>", True), ("analyzer/report/view/a.cc", '#include "procfs/p.h"', True),
        ("analyzer/model/a.h", '#include "shim/trace/t.h"', True), ("analyzer/report/view/a.cc", '#include "gone.h"', True),
        ("analyzer/report/view/a.cc", '#include "report/diff/d.h"', True), ("analyzer/report/view/a.cc", "#include <fstream>", True),
        ("analyzer/report/diff/a.cc", '#include "report/view/v.h"', False), ("analyzer/job/a.cc", '#include "report/view/v.h"', False),
        ("analyzer/report/a.cc", '#include "model/m.h"', True),  # no part of it
        ("analyzer/model/a.h", '#include "support/s.h"', False), ("shim/heap/a.cc", '#include "shim/trace/t.h"', False),
        ("analyzer/cli/a.cc", '#include "collect/loop/c.h"', False), ("analyzer/collect/read/a.cc", "#include <unistd.h>", False),
    ]
    for path, text, forbidden in cases:
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name in ("shim/sys/s.h", "shim/trace/t.h", "analyzer/model/m.h", "analyzer/support/s.h",
                         "analyzer/procfs/p.h", "analyzer/collect/loop/c.h", "analyzer/report/view/v.h",
                         "analyzer/report/diff/d.h"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text("#pragma once\n")
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n")
            if bool(list(complaints(root))) != forbidden:
                return f"self-test: {path} with {text}: expected {'a' if forbidden else 'no'} complaint"
    own = "namespace {\nstruct A {\n};\nconstexpr int kB = 1;\nint c(const std::string& d, int e) {\n}\n}  // namespace\n"
    if sorted(own_names(own)) != ["A", "c(const std::string&, int)", "kB"]:
        return f"self-test: names of a source: {sorted(own_names(own))}"
    knot = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    if sorted(map(sorted, circles(knot))) != [["a", "b", "c"], ["d", "e"]]:
        return f"self-test: circles: {circles(knot)}"
    return None


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        sys.exit(self_test())
    root_folder = pathlib.Path(sys.argv[1])
    found = [*complaints(root_folder), *twins(root_folder)]
    sys.exit("\n".join(found) if found else None)
