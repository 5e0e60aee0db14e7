"""What several processes have in common, or should have: imports, and the data of the ranks of a job."""
from .loaders import EXACT, LITTLE, OBJECTS
from .report_reading import cause
from .scenario import MIB, scenario

WORKERS = 3
WORDS, WORD_BYTES = 150_000, 160       # of vocabulary.py: bytes objects in CPython's small blocks
NUMBER_BYTES, ENTRY_BYTES = 32, 24     # a key and its entry in the table, which has room for 2/3 of 2^18, and indices of 4


def table_bytes():
    return WORDS * (WORD_BYTES + NUMBER_BYTES) + (1 << 18) * 2 // 3 * ENTRY_BYTES + (1 << 18) * 4


@scenario("import-spawn", "Every spawned worker is large before it has done anything", "imports.py", "spawn", "vocabulary")
def import_spawn(account):
    account.expect(len(account.children) == WORKERS, f"{WORKERS} workers")
    for worker in account.children:
        account.made_at(worker, "heap_live", "builds", table_bytes(), OBJECTS, program="vocabulary.py")
        account.made_at(worker, "heap_live", "imports", table_bytes(), 0.1)
    account.imported_by("vocabulary", account.children, at="imports")
    account.silent("fork-cow-refcount", "rss-double-counted")


@scenario("import-preload", "The same, imported once by a forkserver", "imports.py", "preload", "vocabulary")
def import_preload(account):
    workers = account.workers()
    account.expect(len(workers) == WORKERS, f"{WORKERS} workers of a forkserver")
    (forkserver,) = [child for child in account.children if child["pid"] == workers[0]["parent"]]
    account.made_at(forkserver, "heap_live", "builds", table_bytes(), OBJECTS, program="vocabulary.py")
    for worker in workers:
        account.stayed(worker, "heap_live", LITTLE)
        account.stayed(worker, "fork_cow", LITTLE)
        account.made_at(worker, "fork_shared", "builds", table_bytes(), OBJECTS, figure="resident", program="vocabulary.py")
    account.silent("per-process-import", "fork-cow-refcount")


@scenario("import-torch-spawn", "Spawned workers that only import torch", "imports.py", "spawn", "torch",
          needs=("module:torch",))
def import_torch_spawn(account):
    for worker in account.children:
        account.expect(cause(worker, "heap_live")["rss"]["last"] > 60 * MIB, f"pid {worker['pid']}: import torch")
    account.imported_by("torch", account.children, at="imports")


def ranks_of(account):
    """The ranks, and the loaders that they forked."""
    ranks = [child for child in account.children if child["parent"] == account.main["pid"]]
    loaders = [child for child in account.children if child["parent"] in {rank["pid"] for rank in ranks}]
    account.expect((len(ranks), len(loaders)) == (2, 4), "two ranks with two loaders each")
    return ranks, loaders


def segments(processes, name):
    return {site["mapping"].removesuffix(" (deleted)") for process in processes for site in cause(process, "shared_memory")["sites"]
            if (site["mapping"] or "").startswith(name) and site["resident"] > MIB}


@scenario("ranks-naive", "Two ranks on a machine need twice the memory: each loads the data set", "ranks.py", "naive",
          needs=("module:numpy",))
def ranks_naive(account):
    ranks, loaders = ranks_of(account)
    packed = account.said("packed")
    for rank in ranks:
        account.made_at(rank, "shared_memory", "loads again", packed, EXACT)
    account.expect(len(segments([*ranks, *loaders], "/dev/shm/psm_")) == 2, "two segments")
    account.silent("fork-cow-refcount")


@scenario("ranks-handle", "The data is loaded once, and the ranks get its handle", "ranks.py", "handle",
          needs=("module:numpy",))
def ranks_handle(account):
    ranks, loaders = ranks_of(account)
    packed = account.said("packed")
    account.made_at(account.main, "shared_memory", "loads once", packed, EXACT)
    account.expect(len(segments([account.main, *ranks, *loaders], "/dev/shm/psm_")) == 1, "one segment")
    for rank in ranks:
        account.stayed(rank, "heap_retained", LITTLE)
    account.silent("fork-cow-refcount")


@scenario("ranks-naive-torch", "The same with torch tensors", "ranks.py", "naive", "torch", needs=("module:torch",))
def ranks_naive_torch(account):
    ranks, _ = ranks_of(account)
    for rank in ranks:
        # Each has torch, and the tensor in memory of its own.
        account.expect(cause(rank, "heap_live")["rss"]["peak"] > 60 * MIB + account.said("packed"), f"pid {rank['pid']}: both")
        account.expect(cause(rank, "shared_memory")["rss"]["peak"] < MIB, f"pid {rank['pid']}: and shares neither")


@scenario("ranks-handle-torch", "One tensor for both ranks", "ranks.py", "handle", "torch", needs=("module:torch",))
def ranks_handle_torch(account):
    ranks, loaders = ranks_of(account)
    account.expect(len(segments([*ranks, *loaders], "/dev/shm/torch_")) == 1, "one segment")
