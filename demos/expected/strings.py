"""The same strings in five containers: what each takes, and what a forked reader copies of it."""
from .report_reading import verdicts
from .scenario import MIB, scenario

COUNT = 200000
LETTERS = 44
OBJECT = 96  # of a str: 49 bytes and its letters, in steps of 16
POINTER = 8
LONGEST = 255
INTERPRETER = 3 * MIB  # what a fork child copies that only runs, numpy among it: 0.5 to 2 MiB


def copied_by_reading(account, child, least):
    """As many pages as the child had faults: where it makes strings, some are of pages that were not there before."""
    reading = account.phase("reading")
    reading.copied(reading.same(child), account.said("faults"), 0.01, least=least)


def objects(account, marker):
    """One object a string: each is copied when it is read, by its reference count."""
    child, = account.children
    account.made_at(account.main, "heap_live", marker, COUNT * (OBJECT + POINTER), 0.1)
    account.says("heap-growth", account.main, at="formats")
    account.copied(child, COUNT * OBJECT, 0.1, made="formats", written="reads", least=INTERPRETER)
    copied_by_reading(account, child, MIB // 8)
    for marker in ("formats", "reads"):
        account.says("fork-cow-refcount", at=marker)
    pids = [worker["pid"] for verdict in verdicts(account.report, "fork-cow-refcount") for worker in verdict["evidence"]["workers"]]
    account.expect(pids == [child["pid"]], "of the child alone")


def buffer(account, marker, size):
    """All strings in one buffer: nothing that is written by being read."""
    child, = account.children
    account.made_at(account.main, "heap_live", marker, size, 0.05)
    copied = child["cow"]["copied"]
    account.expect(copied < INTERPRETER, f"copied since fork: {copied / MIB:.1f} MiB (expected < {INTERPRETER // MIB})")
    copied_by_reading(account, child, MIB // 2)
    account.silent("fork-cow-refcount", "fork-cow-write")


@scenario("strings-list", "200,000 strings in a list", "strings.py", "list")
def strings_list(account):
    objects(account, "lists")


@scenario("strings-object", "The same in an array of objects", "strings.py", "object", needs=("module:numpy",))
def strings_object(account):
    objects(account, "objects")


@scenario("strings-unicode", "The same in an array of unicode strings", "strings.py", "U", needs=("module:numpy",))
def strings_unicode(account):
    buffer(account, "unicodes", COUNT * LONGEST * 4)


@scenario("strings-bytes", "The same in an array of byte strings", "strings.py", "S", needs=("module:numpy",))
def strings_bytes(account):
    buffer(account, "bytes", COUNT * LONGEST)


@scenario("strings-packed", "The same in one buffer and its offsets", "strings.py", "packed", needs=("module:numpy",))
def strings_packed(account):
    buffer(account, "packs", COUNT * LETTERS)
