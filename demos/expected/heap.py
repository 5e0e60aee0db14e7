"""The heap of the program itself: what lives, what came and went, and what other tools make of it."""
import re

from .scenario import MIB, scenario

LINE = 24 * MIB
LINES = 8
POINTERS = 4000000 * 8


def python_version(account):
    return tuple(map(int, re.search(r"CPython (\d+)\.(\d+)", account.output).groups()))


@scenario("text-lines", "Reading long lines takes several times their size, though none is kept", "text_lines.py")
def text_lines(account):
    account.stayed(account.main, "heap_live", 8 * MIB)
    account.silent("heap-growth")
    account.says("gone-since-peak", account.main, at="reads")


@scenario("text-kept", "Text is appended to a string, line by line", "text_lines.py", "--keep")
def text_kept(account):
    account.grew(account.main, "heap_live", LINES * LINE, 0.05)
    account.made_at(account.main, "heap_live", "keeps", LINES * LINE, 0.02)
    account.says("heap-growth", account.main, at="keeps")
    # Until 3.10 += of a module's variable works in place; since then the string, its copy with the line, the line, and
    # the pieces that readline made it of, which malloc keeps, are there at the same time.
    peak = (2 * LINES + 1) * LINE if python_version(account) >= (3, 11) else (LINES + 2) * LINE
    account.expect_close(account.main["rss"]["high_water"], peak, 0.05, "the kernel's peak", least=16 * MIB)


@scenario("object-sizes", "sys.getsizeof adds up to eight times what the process has", "object_sizes.py")
def object_sizes(account):
    deep = int(re.search(r"(\d+) deep", account.output).group(1))
    account.grew(account.main, "heap_live", POINTERS, 0.05)
    account.made_at(account.main, "heap_live", "loads", POINTERS, 0.01)
    account.expect(deep > 7 * POINTERS, f"the deep size is {deep / POINTERS:.1f} times the truth")
    account.says("heap-growth", account.main, at="loads")
