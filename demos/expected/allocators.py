"""Memory that was freed and is resident still: what allocators keep, and what pins it."""
import re

from .report_reading import cause
from .scenario import MIB, scenario

KIB = 1024
RECORDS = 60000
BYTES_EXTRA = 33 + 8 + 8  # of a bytes object and a block of glibc, in steps of 16


def kept_by_allocator(account):
    """What retained.py found resident after it had deleted everything, in bytes."""
    return int(re.search(r"kept by the allocator (\d+) KiB", account.output).group(1)) * KIB


def retained(account, allocator, remedy):
    kept = kept_by_allocator(account)
    account.expect(account.main["allocator"] == allocator, f"the allocator is {account.main['allocator']}")
    account.grew(account.main, "heap_retained", kept, 0.1)
    account.says("heap-retained", account.main, "warning", text=remedy)
    account.silent("heap-growth")


@scenario("retained", "Everything was deleted, and most of the memory is still there", "retained.py")
def retained_by_glibc(account):
    retained(account, "glibc", "malloc_trim(0)")
    packed, free = (int(found) * KIB for found in re.search(r"packed (\d+) KiB.* counts (\d+) KiB", account.output).groups())
    account.grew(account.main, "heap_retained", free, 0.05)
    # Estimates of 3 %; and a page on which a buffer of pickle's passed last tells nothing of the result that stayed there.
    serialised = packed + RECORDS * BYTES_EXTRA
    account.made_at(account.main, "heap_retained", "serialises", serialised, 0.2)
    # The rest: the lists, and the holes that they leave where they grow.
    account.made_at(account.main, "heap_retained", "outlines", free - serialised, 0.2)


@scenario("retained-trimmed", "The same, with malloc_trim(0) at the end", "retained.py", "--trim")
def retained_trimmed(account):
    account.stayed(account.main, "heap_retained", 6 * MIB)
    account.silent("heap-retained", "heap-growth")
    account.says("gone-since-peak", account.main)


@scenario("retained-jemalloc", "Everything was deleted, under jemalloc", "retained.py",
          needs=("library:libjemalloc.so.2",), options=("--preload", "libjemalloc.so.2"))
def retained_by_jemalloc(account):
    retained(account, "jemalloc", "background_thread:true")


@scenario("retained-tcmalloc", "Everything was deleted, under tcmalloc", "retained.py",
          needs=("library:libtcmalloc_minimal.so.4",), options=("--preload", "libtcmalloc_minimal.so.4"))
def retained_by_tcmalloc(account):
    retained(account, "tcmalloc", "TCMALLOC_RELEASE_RATE")


@scenario("retained-mimalloc", "Everything was deleted, under mimalloc", "retained.py",
          needs=("library:libmimalloc.so.2",), options=("--preload", "libmimalloc.so.2"))
def retained_by_mimalloc(account):
    retained(account, "mimalloc", "mi_collect")


CHILD = 26000 * 4000  # bytes that the child of fork_reuse.c uses
LITTLE = MIB
EXACT = 0.01  # of what is counted in pages


def reused(account, more=0):
    """The child, and how much it wrote to first: what it uses, and the heads of free chunks that malloc passes."""
    child, = account.children
    faults = account.said("faults")
    account.expect(CHILD <= faults <= 1.1 * CHILD, f"faults of {faults / MIB:.1f} MiB")
    account.expect(child["rss"]["last"] <= account.main["rss"]["peak"] + more + LITTLE,
                   f"its RSS is {child['rss']['last'] / MIB:.1f} MiB")
    account.silent("fork-cow-refcount")
    return child, faults


@scenario("fork-reuse", "A forked child that allocates 100 MiB copies pages that the parent freed before", "fork_reuse.c",
          needs=("program:gcc",))
def fork_reuse(account):
    child, faults = reused(account)
    account.copied(child, faults, EXACT, written="uses")
    account.grew(child, "fork_cow", child["cow"]["copied"], EXACT, LITTLE, figure="last")
    account.grew(child, "heap_live", 0, 0, LITTLE, figure="last")
    account.says("fork-cow-write", text="malloc_trim(0) before the fork")


@scenario("fork-reuse-trimmed", "The same, with malloc_trim(0) before the fork", "fork_reuse.c", "trim",
          needs=("program:gcc",))
def fork_reuse_trimmed(account):
    child, faults = reused(account, CHILD)
    account.made_at(child, "heap_live", "uses", CHILD, 0.05)
    live, copied = cause(child, "heap_live")["rss"]["last"], child["cow"]["copied"]
    account.expect_close(live + copied, faults, EXACT, "live and copied", LITTLE)
    account.expect(copied < 8 * MIB, f"copied since fork: {copied / MIB:.1f} MiB (expected < 8)")
    account.says("heap-growth", child, at="uses")
    account.silent("fork-cow-write")


PASSING, KEPT = 100000, 25000  # blocks of 640 bytes with what CPython and malloc put around them
BLOCK = 640


@scenario("fragmented", "Most blocks were freed, but no memory came back", "fragmented.py", "pins")
def fragmented(account):
    account.grew(account.main, "heap_slack", PASSING * BLOCK, 0.05)
    account.made_at(account.main, "heap_slack", "stays", PASSING * BLOCK, 0.1)
    account.made_at(account.main, "heap_live", "stays", KEPT * BLOCK, 0.1)
    account.says("heap-fragmented", account.main, "warning", at="stays")
    account.silent("heap-retained")


@scenario("mmap-threshold", "Large batches are freed each time, but a small copy of each keeps their memory",
          "fragmented.py", "threshold")
def mmap_threshold(account):
    account.grew(account.main, "heap_retained", 90 * MIB, 0.05)
    account.made_at(account.main, "heap_retained", "batches", 90 * MIB, 0.05)
    account.says("heap-retained", account.main, "warning", at="batches", text="malloc_trim(0)")


@scenario("mmap-threshold-fixed", "The same with a fixed threshold", "fragmented.py", "threshold",
          variables=(("MALLOC_MMAP_THRESHOLD_", "131072"),))
def mmap_threshold_fixed(account):
    account.silent("heap-retained", "heap-growth")
