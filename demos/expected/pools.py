"""multiprocessing.Pool over a table: sent as arguments, inherited as a global, mapped from a file."""
from .loaders import EXACT, LITTLE
from .report_reading import bytes_by_line, cause, lines_of, verdicts
from .scenario import MIB, scenario

WORKERS = 2
COLUMNS, SMALL_CHUNK, TASKS_OF_CHILD = 24, 3, 2


def workers_of(account, count=WORKERS):
    account.expect(len(account.children) == count, f"{count} workers")
    return account.children


def held(account, worker, wanted):
    """What a worker held of its arguments; also the message that it read them from, when a walk came in between."""
    found = cause(worker, "heap_live")["rss"]["peak"]
    account.expect(wanted * (1 - EXACT) <= found <= 3 * wanted + LITTLE,
                   f"pid {worker['pid']}: at its peak {found / MIB:.1f} MiB (expected {wanted / MIB:.1f} and its pickle)", "figure")


def in_first_task(account, worker, wanted):
    """The worker at the end of its first task: it has the columns of that, and no more."""
    then = account.phase(f"task 1 of {worker['pid']}").same(worker)
    account.grew(then, "heap_live", wanted, EXACT, MIB, figure="last")
    return then


def holds(account, worker, wanted, pool):
    """Nearly all of it was made where messages are read, by a process of that pool."""
    then = in_first_task(account, worker, wanted)
    account.grew(then, "fork_cow", 0, 0, LITTLE, figure="last")
    site = max(cause(then, "heap_live")["sites"], key=lambda site: site["resident"])
    account.expect_close(site["resident"], wanted, EXACT, f"pid {worker['pid']}: what it received")
    lines = lines_of(site["stack"])
    account.expect(lines[0][0] == "queues.py" and account.line(pool) in lines, f"at {lines[0][0]}:{lines[0][1]}, under {pool}")


def received(account, worker, wanted, pool="makes pool"):
    """The same of a worker that was walked while it held them, and the line that made the pool."""
    held(account, worker, wanted)
    where = "received by a process that %s:%d" % account.line(pool)
    account.expect(any(verdict["pid"] == worker["pid"] and where in verdict["headline"]
                       for verdict in account.report["verdicts"]), f"pid {worker['pid']}: {where} started")


def inherited(account, worker, wanted):
    account.made_at(worker, "fork_shared", "builds", wanted, EXACT, figure="resident")


@scenario("pool-arguments", "Pool.map over the columns of a table: the workers grow", "pool.py", "arguments")
def pool_arguments(account):
    for worker in workers_of(account):
        received(account, worker, account.said("table") / WORKERS)
        holds(account, worker, account.said("table") / WORKERS, "makes pool")
        inherited(account, worker, account.said("table"))
    account.silent("fork-cow-refcount")


@scenario("pool-global", "The same with the table as a global, and only names sent", "pool.py", "global")
def pool_global(account):
    for worker in workers_of(account):
        account.grew(worker, "heap_live", 0, 0, LITTLE, figure="peak")
        account.grew(in_first_task(account, worker, 0), "fork_cow", 0, 0, LITTLE, figure="last")
        account.stayed(worker, "fork_cow", 2 * LITTLE)
        inherited(account, worker, account.said("table"))
    account.says("rss-double-counted", severity="info")
    twice = verdicts(account.report, "rss-double-counted")[0]["bytes"]
    account.expect(twice >= WORKERS * account.said("table") - MIB, f"{twice / MIB:.1f} MiB more than once")
    peak = account.report["family"]["accounting"]["at_peak"]
    account.expect(peak["rss_sum"] - peak["pss_sum"] >= (WORKERS - 0.5) * account.said("table"), "RSS and PSS summed")
    account.silent("fork-cow-refcount", "fork-cow-write", "shared-memory-growth")


@scenario("pool-first", "The pool is made before the table is loaded: RSS is lower, the memory needed is not", "pool.py",
          "first")
def pool_first(account):
    for worker in workers_of(account):
        received(account, worker, account.said("table") / WORKERS, "makes first pool")
        holds(account, worker, account.said("table") / WORKERS, "makes first pool")
        account.expect(bytes_by_line(cause(worker, "fork_shared")["sites"], "resident", account.line("builds")) == 0, "no column")
        account.expect(cause(worker, "fork_shared")["rss"]["peak"] < 16 * MIB, "it inherited no table")
    account.silent("fork-cow-refcount", "rss-double-counted")


@scenario("pool-imap", "imap with small chunks, and workers that end after two of them", "pool.py", "imap")
def pool_imap(account):
    chunk = account.said("table") / COLUMNS * SMALL_CHUNK
    # Not by their memory: one that is forked while the parent pickles has a chunk of it too.
    phases = {phase["name"] for phase in account.report["phases"]}
    busy = [worker for worker in account.children if f"task 1 of {worker['pid']}" in phases]
    chunks = COLUMNS // SMALL_CHUNK  # a worker that is idle when the last ones are handed out has but one
    account.expect(chunks // TASKS_OF_CHILD <= len(busy) <= chunks, f"{len(busy)} workers, of up to two chunks each", "figure")
    for worker in busy:
        held(account, worker, chunk)
        in_first_task(account, worker, chunk)
        # The parent's thread copies what it writes to while it pickles, two chunks of it. For workers that have ended
        # before their pages were marked it is a guess who did: a worker's own faults bound its part.
        account.stayed(worker, "fork_cow", chunk)
    account.silent("fork-cow-refcount")


@scenario("pool-memmap", "The columns lie in a file that every worker maps", "pool.py", "memmap")
def pool_memmap(account):
    for worker in workers_of(account):
        account.grew(worker, "heap_live", 0, 0, LITTLE, figure="peak")
        account.made_at(worker, "file_cache", "maps", account.said("table") / WORKERS, EXACT)
        account.touched_at(worker, "file_cache", "reads file", account.said("table") / WORKERS, 0.1)
        account.says("file-cache-growth", worker, "ok", at="maps")
    account.silent("fork-cow-refcount", "fork-cow-write")


@scenario("pool-arguments-pandas", "Pool.map over the columns of a pandas.DataFrame", "pool.py", "arguments", "pandas",
          needs=("module:pandas",))
def pool_arguments_pandas(account):
    for worker in workers_of(account):
        received(account, worker, account.said("table") / WORKERS)
        account.made_at(worker, "fork_shared", "frames", account.said("table"), EXACT, figure="resident")


@scenario("pool-global-pandas", "The same with the frame as a global", "pool.py", "global", "pandas", needs=("module:pandas",))
def pool_global_pandas(account):
    for worker in workers_of(account):
        account.stayed(worker, "fork_cow", 4 * LITTLE)
        account.made_at(worker, "fork_shared", "frames", account.said("table"), EXACT, figure="resident")
    account.silent("fork-cow-refcount")
