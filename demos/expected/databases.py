"""Databases that several processes map: one file, there once in memory, and counted in the RSS of each process."""
from .report_reading import cause, touched_bytes
from .scenario import MIB, scenario

FILE = 128 * MIB
WORKERS, EPOCHS = 4, 4
OWN = 16 * MIB  # of a process, at most: the interpreter's heap, relocated pages, whyrss


def frames(process, figure="growth"):
    """What of a process's file cache is the database."""
    return sum(site[figure] for site in cause(process, "file_cache")["sites"] if site["mapping"].endswith("/frames.db"))


def behind(account, maps, reads):
    """All of it stands under the line that opened the database; and, of all workers, under the one that read it."""
    for worker in account.children:
        account.made_at(worker, "file_cache", maps, frames(worker), 0.01)
    line = account.line(reads)
    wanted = sum(frames(worker) for worker in account.children)
    found = sum(touched_bytes(site, line) for worker in account.children for site in cause(worker, "file_cache")["sites"])
    account.blamed.append((line, found / wanted))
    account.expect_close(found, wanted, 0.1, f"file_cache touched at {line[0]}:{line[1]} by all workers")


def bounded_by_the_file(account, maps, reads):
    """Each worker ends with the whole file in its RSS; all together have it once."""
    account.expect(len(account.children) == WORKERS, f"{len(account.children)} workers")
    for worker in account.children:
        account.expect_close(frames(worker), FILE, 0.02, f"pid {worker['pid']}: the database in its RSS")
        account.says("file-cache-growth", worker, "ok", at=maps)
    behind(account, maps, reads)
    account.says("rss-double-counted", severity="info", text="UsePss")
    account.silent("heap-growth", "heap-retained", "fork-cow-refcount", "fork-cow-write")
    together = account.phase(f"epoch {EPOCHS - 1}").report["family"]
    rss, pss = together["rss_sum"]["last"], together["pss"]["last"]
    account.expect(rss >= WORKERS * FILE, f"RSS summed: {rss / MIB:.0f} MiB, the file {WORKERS} times")
    account.expect(FILE <= pss <= FILE + (WORKERS + 1) * OWN, f"PSS summed: {pss / MIB:.0f} MiB, the file once")
    slurm = account.report["family"]["accounting"]
    account.expect(slurm["rss_sum"] >= WORKERS * FILE, f"Slurm, default: {slurm['rss_sum'] / MIB:.0f} MiB")
    account.expect(slurm["rss_less_shared"] <= (WORKERS + 1) * OWN,
                   f"Slurm, NoShared: {slurm['rss_less_shared'] / MIB:.0f} MiB")


@scenario("lmdb-persistent", "RSS of the workers that read an LMDB file grows epoch by epoch, and Slurm kills the job",
          "key_value.py", "lmdb", "persistent", needs=("module:lmdb",))
def lmdb_persistent(account):
    bounded_by_the_file(account, "opens", "gets")
    first = account.phase("epoch 0")
    for worker in account.children:
        part = frames(first.same(worker), "resident")
        account.expect(part < 0.9 * FILE, f"pid {worker['pid']}: {part / MIB:.0f} MiB of it after one epoch")


@scenario("lmdb-fresh", "RSS falls at each epoch's start: what do new workers give back?", "key_value.py", "lmdb", "fresh",
          needs=("module:lmdb",))
def lmdb_fresh(account):
    account.expect(len(account.children) == WORKERS * EPOCHS, f"{len(account.children)} workers")
    for worker in account.children:
        account.expect(FILE / EPOCHS <= frames(worker) <= FILE, f"pid {worker['pid']}: {frames(worker) / MIB:.0f} MiB of it")
    behind(account, "opens", "gets")
    sums = account.report["family"]["rss_sum"]
    account.expect(sums["last"] < FILE / 2 < FILE < sums["peak"],
                   f"RSS summed: {sums['peak'] / MIB:.0f} MiB at its peak, {sums['last'] / MIB:.0f} MiB at the end")
    account.silent("heap-growth", "heap-retained", "fork-cow-refcount", "fork-cow-write")


@scenario("lmdb-reopening", "Opening the database again from time to time keeps RSS low",
          "key_value.py", "lmdb", "reopening", needs=("module:lmdb",))
def lmdb_reopening(account):
    account.expect(len(account.children) == WORKERS, f"{len(account.children)} workers")
    for worker in account.children:
        peak = cause(worker, "file_cache")["rss"]["peak"]
        account.expect(peak < FILE / 2, f"pid {worker['pid']}: at most {peak / MIB:.0f} MiB of file cache")
    account.silent("heap-growth", "heap-retained", "rss-double-counted", "fork-cow-refcount", "fork-cow-write")


@scenario("sqlite-mapped", "The same with SQLite and its mmap_size", "key_value.py", "sqlite", "persistent")
def sqlite_mapped(account):
    bounded_by_the_file(account, "selects", "selects")
