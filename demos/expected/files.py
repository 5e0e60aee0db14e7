"""Files that are mapped: page cache that counts in RSS."""
from .report_reading import cause
from .scenario import MIB, scenario

FILE = 256 * MIB
HALF = 128 * MIB


@scenario("mmap-scan", "RSS grows by the size of the file that is read through mmap; is it a leak?", "mmap_scan.py")
def mmap_scan(account):
    account.grew(account.main, "file_cache", FILE, 0.02, least=8 * MIB)
    account.made_at(account.main, "file_cache", "maps", FILE, 0.01)
    account.touched_at(account.main, "file_cache", "reads", FILE, 0.05)
    account.says("file-cache-growth", account.main, "ok", at="maps")
    account.silent("heap-growth", "heap-retained")


@scenario("mmap-keep", "RSS grows by twice the file that is read: is all of it the cache?", "mmap_keep.py")
def mmap_keep(account):
    account.made_at(account.main, "file_cache", "maps", HALF, 0.01)
    account.touched_at(account.main, "file_cache", "reads", HALF, 0.05)
    account.made_at(account.main, "heap_live", "keeps", HALF, 0.05)
    account.says("file-cache-growth", account.main, "ok", at="maps")
    account.says("heap-growth", account.main, "info", at="keeps")
    account.silent("heap-retained")


def column_file(account, maps):
    """A column file whose rows are decoded and dropped."""
    account.made_at(account.main, "file_cache", maps, HALF, 0.01)
    account.touched_at(account.main, "file_cache", "touches", HALF, 0.05)
    account.says("file-cache-growth", account.main, "ok", at=maps)
    account.silent("heap-retained", "heap-fragmented")


@scenario("columns-mapped", "Iterating over a memory-mapped table (Arrow, HF datasets) fills memory", "columns.py", "mapped")
def columns_mapped(account):
    column_file(account, "maps")
    mapped, read = ("%s:%d" % account.line(marker) for marker in ("maps", "touches"))
    account.says("file-cache-growth", account.main, text=f"mapped at {mapped} in mapped, read at {read} in Column.row")
    account.stayed(account.main, "heap_live", 8 * MIB)
    account.silent("heap-growth")


@scenario("columns-memmap", "The same with numpy.memmap", "columns.py", "memmap", needs=("module:numpy",))
def columns_memmap(account):
    column_file(account, "memmaps")
    account.stayed(account.main, "heap_live", 24 * MIB)  # most of it is the import of numpy


@scenario("arrow", "The same with a real Arrow table", "real_arrow.py", needs=("module:pyarrow",))
def arrow(account):
    column_file(account, "maps")


@scenario("datasets", "Iterating over a Hugging Face data set fills memory", "real_datasets.py", needs=("module:datasets",))
def hf_datasets(account):
    column_file(account, "loads")


@scenario("datasets-in-memory", "The same with keep_in_memory=True", "real_datasets.py", "in_memory",
          needs=("module:datasets",))
def hf_datasets_in_memory(account):
    in_heap = sum(cause(account.main, slug)["growth"]["rss"] for slug in ("heap_live", "anonymous"))
    account.expect(in_heap >= HALF, f"the data set is in memory: {in_heap / MIB:.0f} MiB")


@scenario("columns-in-memory", "keep_in_memory=True: RSS jumps at the start, then stays", "columns.py", "in_memory")
def columns_in_memory(account):
    account.made_at(account.main, "heap_live", "loads", HALF, 0.01)
    account.says("heap-growth", account.main, "info", at="loads")
    account.silent("file-cache-growth", "heap-retained")


@scenario("columns-synthetic", "Reading made-up rows instead of the file: does memory still grow?",
          "columns.py", "synthetic")
def columns_synthetic(account):
    account.silent("file-cache-growth", "heap-growth", "heap-retained", "cause-growth", "gone-since-peak")


@scenario("garbage-cycles", "Objects are dropped and RSS still grows", "garbage_cycles.py")
def garbage_cycles(account):
    account.grew(account.main, "heap_live", 150 * MIB, 0.02, least=4 * MIB)
    account.made_at(account.main, "heap_live", "allocates", 150 * MIB, 0.02)


@scenario("garbage-collected", "The same after gc.collect()", "garbage_cycles.py", "collect")
def garbage_collected(account):
    account.stayed(account.main, "heap_live", 8 * MIB)
    account.says("gone-since-peak", account.main, "info", at="allocates")
    account.silent("heap-growth", "heap-retained")


@scenario("two-readers", "Two processes read one mapped file: who has the memory?", "two_readers.py")
def two_readers(account):
    first, second = account.processes
    size = 192 * MIB
    own = 24 * MIB  # of a process that maps nothing
    for process in (first, second):
        account.made_at(process, "file_cache", "maps", size, 0.01)
        account.touched_at(process, "file_cache", "reads", size, 0.05)
        account.says("file-cache-growth", process, "ok", at="maps")
    account.says("rss-double-counted", severity="info")
    for moment, readers in (("alone", 1), ("two readers", 2), ("alone again", 1)):
        seen = account.phase(moment).same(first)
        account.expect(seen["rss"]["last"] >= size, f"{moment}: RSS {seen['rss']['last'] / MIB:.0f} MiB")
        account.expect(size / readers <= seen["pss"]["last"] <= size / readers + own,
                       f"{moment}: PSS {seen['pss']['last'] / MIB:.0f} MiB")
        account.expect(seen["uss"]["last"] >= size if readers == 1 else seen["uss"]["last"] <= own,
                       f"{moment}: USS {seen['uss']['last'] / MIB:.0f} MiB")


@scenario("fresh-file", "smaps says Private_Dirty for a file that is only read", "fresh_file.py")
def fresh_file(account):
    account.grew(account.main, "file_cache", HALF, 0.02, least=8 * MIB)
    account.made_at(account.main, "file_cache", "maps", HALF, 0.01)
    account.touched_at(account.main, "file_cache", "reads", HALF, 0.05)
    account.stayed(account.main, "file_cow", 8 * MIB)
    account.says("file-cache-growth", account.main, "ok", at="maps")
    account.silent("heap-growth", "heap-retained", "cause-growth", "file-dirty-growth")
