#!/usr/bin/env python3
"""Fails when a figure of the tree is above what shape.now says, and when it is below: a gain is kept.

shape.py ROOT [--write | --words] | shape.py --self-test

--write lowers the figures of shape.now and never raises one: that takes an editor. --words prints each private word.
What is not in shape.now may have at most:

private   0   uses of words that this project gave up: in comments, strings of C++, names of Python, documents
files    40   files in a folder of the shim, the analyzer or tests/e2e
cycles    0   units in the longest include cycle; number of cycles
methods  15   member functions of a class, without those that are defaulted or deleted
fields   20   data members of a class with a private section, without constants
words     0   words of a README or CONTRIBUTING.md

A class is known by its name alone, so that it may move; of several with one name the largest counts.
"""
import collections
import itertools
import pathlib
import re
import sys
import tempfile

sys.dont_write_bytecode = True
import layers
from words import INSTEAD, NAME, TOKEN, given_up

NOW = "tests/checks/shape.now"
ADVICE = {
    "private": "use the words of CONTRIBUTING.md (shape.py ROOT --words prints the places)",
    "files": "give an idea of it a folder of its own", "cycles": "let the lower unit take what it needs as an argument",
    "methods": "split the class", "fields": "split the class", "words": "shorten it",
}
CODE = {".cc", ".h", ".c", ".S", ".inc"}
SKIPPED = re.compile(r"\..+|__pycache__|node_modules|build|whyrss-.*|.*\.whyrss")  # folders
AREAS = {  # key of `private`: folder, kinds of file, what is read of them
    "comments of analyzer": ("analyzer", CODE, {"comment"}), "comments of shim": ("shim", CODE, {"comment"}),
    "strings of analyzer": ("analyzer", CODE, {"string"}), "strings of shim": ("shim", CODE, {"string"}),
    "tests": ("tests", {".py"}, {"comment", "name"}), "demos": ("demos", {".py"}, {"comment", "name"}),
    "documents": ("", {".md"}, None),
}
PHRASES = ["nobody", "whoever", "somebody", "seen by", "was seen", "in truth", "of which it is said", "bears"]
NOT_PRIVATE = {"handed"}  # plain English in a sentence
PRIVATE = re.compile(r"\b(?:%s)\b" % "|".join(
    word.replace("_", " ").replace(" ", r"\s+") for word in PHRASES + sorted(INSTEAD.keys() - NOT_PRIVATE)), re.I)
PLAIN = re.compile(r"\blook(?:s|ed)?[\s-]+(?:up|ups|like|for)\b|\bnot-looked-at\b", re.I)
PYTHON = re.compile(r"""\#[^\n]*|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'"""
                    r"|[A-Za-z_]\w*", re.S)
CLASS = re.compile(r"(?<!enum )\b(class|struct)\s+(?:alignas\(\w+\)\s*|\[\[\w+\]\]\s*)*(\w+(?:::\w+)*)(?:\s+final)?\s*"
                   r"(?::(?!:)[^;{}()]*)?\{")
NO_MEMBER = re.compile(r"(?:using|typedef|friend|static_assert)\b.*|(?:enum\s+)?(?:class|struct|union|enum)\b\s*[\w:]*\s*"
                       r"(?:final\s*)?(?::.*)?@?|.*\bconstexpr\b[^$=]*(?:=.*)?|.*=\s*(?:default|delete)|", re.S)
Figure = collections.namedtuple("Figure", "figure key value limit where", defaults=[""])


def files_below(root, top, kinds=None):
    for path in sorted((root / top).iterdir()) if (root / top).is_dir() else []:
        if path.is_dir() and not SKIPPED.fullmatch(path.name):
            yield from files_below(root, path, kinds)
        elif path.is_file() and not path.name.startswith(".") and (kinds is None or path.suffix in kinds):
            yield path


def code_of(root):
    return itertools.chain(files_below(root, "shim", CODE), files_below(root, "analyzer", CODE))


def kind_of(match):
    """Of a token; a docstring is a comment."""
    token, line_before = match[0], match.string[match.string.rfind("\n", 0, match.start()) + 1:match.start()]
    if token.startswith(("//", "/*", "#")) or (token.startswith('"""') and not line_before.strip()):
        return "comment"
    return "name" if NAME.fullmatch(token) else "number" if token[0].isdigit() else "string"


def sentences(text, token, kinds):
    """`text` with only the words of these kinds of token, each on the line where it was."""
    def words(match):
        kind = kind_of(match)
        if kind not in kinds:
            return "|" + "\n" * match[0].count("\n")
        if kind == "name":
            return "|" + "|".join(given_up(match[0])).replace("_", " ") + "|"
        return re.sub(r"//+|/\*|\*/|^\s*\*|^#+|\"|\\.", " ", match[0])
    return token.sub(words, text)


def private_words(root, key):
    """Path, line and word."""
    top, suffixes, kinds = AREAS[key]
    for path in files_below(root, top, suffixes):
        text = path.read_text()
        if kinds:
            text = sentences(text, PYTHON if path.suffix == ".py" else TOKEN, kinds)
        text = PLAIN.sub(lambda match: "|" + "\n" * match[0].count("\n"), text)
        for match in PRIVATE.finditer(text):
            yield path.relative_to(root), text.count("\n", 0, match.start()) + 1, " ".join(match[0].split())


def folders(root):
    paths = itertools.chain(*(files_below(root, top) for top in ("shim", "analyzer", "tests/e2e")))
    for folder, number in collections.Counter(path.parent for path in paths).items():
        yield Figure("files", str(folder.relative_to(root)), number, 40)


def cycles(root):
    includes = collections.defaultdict(set)
    for path in code_of(root):
        unit = str(path.relative_to(root).with_suffix(""))
        for match in filter(None, map(layers.INCLUDE.match, path.read_text().splitlines())):
            file = layers.included_file(root, path, match[2]) if match[1] == '"' else None
            includes[unit] |= {file.rsplit(".", 1)[0]} - {unit} if file else set()
    sys.setrecursionlimit(10_000)
    found = layers.circles(includes)
    yield Figure("cycles", "units in the longest", max(map(len, found), default=0), 0)
    yield Figure("cycles", "number", len(found), 0)


def without(pattern, mark, text):
    """`text` with `mark` for each bracket and what it holds, from the innermost outwards."""
    count = 1
    while count:
        text, count = re.subn(pattern, mark, text)
    return text


def members(body):
    """Numbers of member functions and of fields in what stands between the braces of a class."""
    text = without(r"\{[^{}]*\}", "@", body)
    text = re.sub(r"\(\s*\*\s*(\w*)\s*\)\s*\([^()]*\)", r" \1", text)  # a pointer to a function is a field
    text = re.sub(r"operator\s*(?:\(\s*\)|[^\w\s(]+)", "operator_", text).replace("<<", "+")
    text = without(r"<[^<>;]*>", " ", without(r"\([^()]*\)", "$", text))
    text = re.sub(r"\[\[.*?\]\]|\b(?:alignas|decltype|__attribute__)\s*\$|\b(?:public|private|protected)\s*:(?!:)", " ", text)
    text = re.sub(r"@\s*(?=[\w~:\[])", "@;", text)  # behind the body of a function
    statements = [re.sub(r"^\s*template\b", "", part).strip() for part in text.split(";")]
    statements = [part for part in statements if not NO_MEMBER.fullmatch(part)]
    fields = [part for part in statements if "$" not in part.split("=")[0]]
    return len(statements) - len(fields), sum(1 + part.count(",") for part in fields)


def classes(text):
    """Name and body of each class that is defined in `text`, and whether it has a private section."""
    text = TOKEN.sub(lambda match: {"name": match[0], "comment": " "}.get(kind_of(match), "0"), text)
    text = re.sub(r"^\s*#(?:\\\n|.)*", "", text, flags=re.M)
    for match in CLASS.finditer(text):
        depth = 1
        for end in re.finditer("[{}]", text[match.end():]):
            depth += 1 if end[0] == "{" else -1
            if depth == 0:
                body = text[match.end():match.end() + end.start()]
                private = re.search(r"\bprivate\s*:", without(r"\{[^{}]*\}", "", body))
                yield match[2], body, match[1] == "class" or private is not None
                break


def members_of_classes(root):
    for path in code_of(root):
        where = f" ({path.relative_to(root)})"
        for name, body, private in classes(path.read_text()):
            functions, fields = members(body)
            yield Figure("methods", name, functions, 15, where)
            yield Figure("fields", name, fields if private else 0, 20, where)


def measure(root):
    """(figure, key) -> Figure, of all above their limits."""
    found = [*folders(root), *cycles(root), *members_of_classes(root)]
    found += [Figure("private", key, len(list(private_words(root, key))), 0) for key in AREAS]
    found += [Figure("words", str(path.relative_to(root)), len(path.read_text().split()), 0)
              for path in files_below(root, "", {".md"}) if path.name in ("README.md", "CONTRIBUTING.md")]
    return {item[:2]: item for item in sorted(found, key=lambda item: item.value) if item.value > item.limit}


def recorded(root):
    """(figure, key) -> value, as shape.now says."""
    text = (root / NOW).read_text() if (root / NOW).is_file() else ""
    lines = [re.fullmatch(r"(\w+) (.+) (\d+)", line) or sys.exit(f"{NOW}: not `figure key value`: {line}")
             for line in text.splitlines()]
    return {(line[1], line[2]): int(line[3]) for line in lines}


def complaints(now, before):
    for name, item in sorted(now.items()):
        most = before.get(name, item.limit)
        if item.value > most:
            yield f"{item.figure}: {item.key}{item.where} is {item.value}, may be {most}: {ADVICE[item.figure]}"
    for name, most in sorted(before.items()):
        if name not in now or now[name].value < most:
            value = now[name].value if name in now else "within the limit of all"
            yield f"{name[0]}: {name[1]} is {value}, {NOW} says {most}: run shape.py ROOT --write, which lowers the figures"


def lower(root, now, before):
    """Writes the lower ones of both; all of now, where nothing was written before."""
    kept = {name: min(item.value, before.get(name, item.value)) for name, item in now.items() if name in before or not before}
    (root / NOW).write_text("".join(f"{figure} {key} {value}\n" for (figure, key), value in sorted(kept.items())))


PRIVATE_SAMPLES = {  # area: path, text with one use
    "comments of shim": ("shim/w.h", "// told\n"), "comments of analyzer": ("analyzer/w.h", "/* was\n   seen */\n"),
    "strings of shim": ("shim/w.cc", 'f("a look");\n'), "strings of analyzer": ("analyzer/w.cc", 'f("seen "\n  "by");\n'),
    "tests": ("tests/w.py", "is_told = 1\n"), "demos": ("demos/w.py", '"""In\ntruth."""\n'), "documents": ("W.md", "It bears\n"),
}


def sample(figure, place, size):
    """Files of which the figures are `size` above the limit; other items for another place, "A" or "B"."""
    private = list(PRIVATE_SAMPLES.values())[:4] if place == "A" else list(PRIVATE_SAMPLES.values())[4:]
    return {
        "private": {path: text * size for path, text in private},
        "files": {f"shim/{place}/{number}.txt": "" for number in range(40 + size)},
        "cycles": {f"shim/{place}{number}.h": f'#include "{place}{(number + 1) % (size + 1)}.h"\n' for number in range(size + 1)},
        "methods": {f"shim/{place}.h": f"struct {place} {{ {'void f() {} ' * (15 + size)} }};\n"},
        "fields": {f"analyzer/{place}.cc": f"class {place} {{ {'int field_; ' * (20 + size)} }};\n"},
        "words": {f"shim/{place}/README.md": "word " * size},
    }[figure]


def outcome(files, text):
    """What is measured in a tree of `files`, the complaints where shape.now has `text`, and the same after --write."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for path, content in {**files, NOW: text}.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(content)
        now, before = measure(root), recorded(root)
        lower(root, now, before)
        return now, list(complaints(now, before)), (root / NOW).read_text(), list(complaints(now, recorded(root)))


def ratchet_test(figure, place, other):
    """A first --write takes all; then what is raised or new fails and stays, what is lowered or gone fails until --write."""
    base = sample(figure, place, 2)
    now, _, first, left = outcome(base, "")
    keys = sum(key[0] == figure for key in now)
    if left or keys != {"private": len(base), "cycles": 2}.get(figure, 1) or keys != len(first.splitlines()):
        return f"self-test: {figure}: {first}{left}"
    for case, files, gain in (("raised", sample(figure, place, 3), False), ("lowered", sample(figure, place, 1), True),
                              ("new", base | sample(figure, other, 1), False), ("gone", sample(figure, place, 0), True)):
        _, found, written, left = outcome(files, first)
        if not found or any(("--write" in line) != gain for line in found) or (written != first) != gain or bool(left) == gain \
                or (case == "gone" and written):
            return f"self-test: {figure} of {place}, {case}: {found}, {left}, {written}"
    return None


def self_test():
    plain = {"shim/a.cc": 'int told; // look up, looks\n// like\nf("not-looked-at", not_looked_at);\n', "a.md": "overlook it, looked_at",
             "tests/a.py": "for one in truth: f('told', \"\"\"nobody\"\"\")\n", "shim/node_modules/a.h": "// told\n"}
    for area, files in [(None, plain), *((area, [file]) for area, file in PRIVATE_SAMPLES.items())]:
        now = outcome(dict(files), "")[0]
        if list(now) != ([("private", area)] if area else []):
            return f"self-test: {area}: {now}"
    text = """
      class A final : public B<int> { struct C { int x, y; void f(); }; enum class D { d }; using E = int; friend class F; // {
       public: A() : B{1}, g_{2} {} A(const A&) = delete; explicit A(int); ~A() override; template <class T> void f(T) { if (1) {} }
        A& operator=(int); bool operator<(const A&) const; auto g() const -> std::map<int, int>; static constexpr int kG = int(1);
       private: std::function<void(int)> h_ = [](int) {}; int (*i_)(int) = nullptr; alignas(64) int g_{0}, j_[2] = {1, 2};
        std::array<int, 1 << 3> k_; };"""
    found = {name: (*members(body), private) for name, body, private in classes(text)}
    if found != {"A": (7, 5, True), "C": (1, 2, False)}:
        return f"self-test: members: {found}"
    tests = (ratchet_test(figure, *places) for figure in ADVICE for places in ("AB", "BA"))
    return next(filter(None, tests), None)


def main(root, option=""):
    now, before = measure(root), recorded(root)
    if option == "--words":
        return "\n".join(f"{path}:{line}: {word}" for key in AREAS for path, line, word in private_words(root, key))
    if option == "--write":
        lower(root, now, before)
    return "\n".join(complaints(now, recorded(root))) or None


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        sys.exit(self_test())
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"], ["--words"]):
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]))
