"""Data loaders: what workers copy, share or build anew of a data set, by its storage and by how they are started."""
from .report_reading import bytes_by_line, cause, lines_of, verdicts
from .scenario import MIB, scenario

LITTLE = 4 * MIB            # what a process copies and allocates by the way
IMPORTED = 10 * MIB         # likewise of what numpy and torch made when they were imported
OBJECTS = 0.05              # of CPython's small objects: the heads of their pools, and an arena's end
ROOM_IN_LISTS = 0.05        # an unpickled list has room for more than its numbers
EXACT = 0.01                # of arrays and of what is counted in pages
WORKERS = 2
EPOCHS = 3
COPIES = ("fork-cow-refcount", "fork-cow-write")


def copied(account, worker):
    """Reading wrote a reference count into every object, and to nothing else."""
    written = account.said("written by reading")
    account.copied(worker, written, OBJECTS, made="builds", written="indexes", least=LITTLE)
    account.grew(worker, "fork_cow", written, OBJECTS, LITTLE)
    left = account.said("objects") - written
    account.stayed(worker, "heap_live", LITTLE)
    (verdict,) = verdicts(account.report, "fork-cow-refcount")[:1] or [{"evidence": {"left_to_copy_bytes_per_worker": 0}}]
    account.expect_close(verdict["evidence"]["left_to_copy_bytes_per_worker"], left, 0.2, "left to copy", 2 * LITTLE)


def copied_by_epoch(account, worker):
    """A part of the batches in the first epoch, the rest in the second: in the third nothing is left."""
    for epoch in range(EPOCHS):
        phase = account.phase(f"epoch {epoch + 1}")
        wanted = account.said("written by reading") / WORKERS if epoch < WORKERS else 0
        phase.copied(phase.same(worker), wanted, 2 * OBJECTS, least=LITTLE)


def list_and_fork(account):
    account.made_at(account.main, "heap_live", "builds", account.said("objects"), OBJECTS)
    account.expect(len(account.workers()) == WORKERS, f"{WORKERS} workers")
    for worker in account.workers():
        copied(account, worker)
        copied_by_epoch(account, worker)
        # The mystery: RSS says nothing of it.
        account.expect_close(worker["rss"]["last"], worker["rss"]["first"] or worker["rss"]["last"], 0.1, "RSS stays")
    account.says("fork-cow-refcount", account.main, "warning", at="makes")
    account.says("fork-cow-refcount", account.main, at="reads")
    account.says("heap-growth", account.main, "info", at="makes")
    account.silent("fork-cow-write", "heap-retained")


def nothing_copied(account, least=LITTLE):
    for worker in account.workers():
        account.copied(worker, 0, 0, least=least)
        account.stayed(worker, "fork_cow", least)
    account.silent(*COPIES)


def nothing_by_epoch(account, first=0):
    """No epoch makes or copies anything: what a worker has, it had before the first, in which its interpreter warms up."""
    for epoch in range(first, EPOCHS):
        phase = account.phase(f"epoch {epoch + 1}")
        least = MIB if epoch else LITTLE
        for process in [phase.main, *phase.workers()]:
            phase.stayed(process, "heap_live", LITTLE)
            phase.stayed(process, "fork_cow", least)
            phase.copied(process, 0, 0, least=least)


@scenario("loader-list", "A data set of Python objects takes far more memory than its pickle", "loader.py", "list", "none")
def loader_list(account):
    account.made_at(account.main, "heap_live", "builds", account.said("objects"), OBJECTS)
    account.says("heap-growth", account.main, "info", at="makes")
    for epoch in range(EPOCHS):
        phase = account.phase(f"epoch {epoch + 1}")
        phase.stayed(phase.main, "heap_live", LITTLE)
    account.silent(*COPIES, "heap-retained", "rss-double-counted")


@scenario("loader-list-fork", "RSS of the workers is constant, yet the machine's memory fills as they read", "loader.py",
          "list", "fork")
def loader_list_fork(account):
    list_and_fork(account)


@scenario("loader-list-freeze", "gc.freeze() before the workers start: does it help?", "loader.py", "list", "fork", "freeze")
def loader_list_freeze(account):
    list_and_fork(account)


@scenario("loader-list-no-gc", "gc.disable() before the workers start: does it help?", "loader.py", "list", "fork", "no-gc")
def loader_list_no_gc(account):
    list_and_fork(account)


@scenario("loader-list-spawn", "Workers are spawned: each has the whole data set again", "loader.py", "list", "spawn")
def loader_list_spawn(account):
    for worker in account.workers():
        account.unpickled(worker, account.said("objects"), OBJECTS + ROOM_IN_LISTS)
        account.says("heap-growth", worker, "info", text="pickle")
    nothing_copied(account)


def array_and_fork(account, least):
    packed = account.said("packed")
    account.made_at(account.main, "heap_live", "packs numpy", packed, EXACT)
    for worker in account.workers():
        account.made_at(worker, "fork_shared", "packs numpy", packed, EXACT, figure="resident")
    nothing_copied(account, least)
    nothing_by_epoch(account)


@scenario("loader-numpy-fork", "Records pickled into one numpy array, read by forked workers", "loader.py", "numpy", "fork",
          needs=("module:numpy",))
def loader_numpy_fork(account):
    array_and_fork(account, LITTLE)


def packed_again(account):
    packed = account.said("packed")
    for worker in account.workers():
        account.unpickled(worker, packed, EXACT, least=MIB)
        account.says("heap-growth", worker, "info", text="pickle")
    nothing_copied(account, IMPORTED)
    nothing_by_epoch(account, first=1)  # they may still import when the first begins


@scenario("loader-numpy-spawn", "The array is packed, but every spawned worker has it again", "loader.py", "numpy", "spawn",
          needs=("module:numpy",))
def loader_numpy_spawn(account):
    packed_again(account)


@scenario("loader-numpy-forkserver", "The same with a forkserver", "loader.py", "numpy", "forkserver", needs=("module:numpy",))
def loader_numpy_forkserver(account):
    packed_again(account)


@scenario("loader-numpy-preload", "The same with a forkserver that has imported numpy", "loader.py", "numpy", "preload",
          needs=("module:numpy",))
def loader_numpy_preload(account):
    packed_again(account)


def shared(account, processes, packed, name, module):
    """One segment, that counts in the RSS of each, and was mapped by that module of the library."""
    for process in processes:
        entry = cause(process, "shared_memory")
        account.expect_close(entry["rss"]["last"], packed, EXACT, f"pid {process['pid']}: shared memory", MIB // 4)
        site = max(entry["sites"], key=lambda site: site["resident"])
        account.expect_close(site["resident"], packed, EXACT, f"pid {process['pid']}: {site['mapping']}", MIB // 4)
        account.expect((site["mapping"] or "").startswith(name), f"it is {name}...")
        account.expect(module in {file for file, _ in lines_of(site["stack"])}, f"it was mapped by {module}")


@scenario("loader-shared-fork", "Records in multiprocessing.shared_memory, read by forked workers", "loader.py", "shared",
          "fork", needs=("module:numpy",))
def loader_shared_fork(account):
    packed = account.said("packed")
    account.made_at(account.main, "shared_memory", "packs shared", packed, EXACT)
    shared(account, [account.main, *account.workers()], packed, "/dev/shm/psm_", "shared_memory.py")
    for worker in account.workers():
        account.touched_at(worker, "shared_memory", "unpickles", packed, 0.1)
    nothing_copied(account)


@scenario("loader-shared-spawn", "The same by spawned workers: the data is shared, the imports are not", "loader.py", "shared",
          "spawn", needs=("module:numpy",))
def loader_shared_spawn(account):
    packed = account.said("packed")
    shared(account, [account.main, *account.workers()], packed, "/dev/shm/psm_", "shared_memory.py")
    for worker in account.workers():
        account.stayed(worker, "heap_live", packed)
    nothing_copied(account)


def torch_sent(account, imports):
    packed = account.said("packed")
    workers = [child for child in account.workers() if cause(child, "shared_memory")["rss"]["last"] > MIB]
    account.expect(len(workers) == WORKERS, f"{len(workers)} workers map the tensor")
    shared(account, workers, packed, "/dev/shm/torch_", "reductions.py")
    for worker in workers:
        live = cause(worker, "heap_live")["rss"]["peak"]
        account.expect(live >= 60 * MIB if imports else live <= 8 * MIB,
                       f"pid {worker['pid']}: {live / MIB:.1f} MiB of its own, of import torch")
    nothing_copied(account, IMPORTED)
    nothing_by_epoch(account, first=1)  # they may still import when the first begins
    return workers


@scenario("loader-torch-fork", "A tensor that is inherited by forked workers", "loader.py", "torch", "fork",
          needs=("module:torch",))
def loader_torch_fork(account):
    array_and_fork(account, IMPORTED)


@scenario("loader-torch-spawn", "A tensor is shared with spawned workers; why are they large all the same?", "loader.py",
          "torch", "spawn", needs=("module:torch",))
def loader_torch_spawn(account):
    account.imported_by("torch", torch_sent(account, imports=True))


@scenario("loader-torch-forkserver", "The same with a forkserver", "loader.py", "torch", "forkserver", needs=("module:torch",))
def loader_torch_forkserver(account):
    account.imported_by("torch", torch_sent(account, imports=True))


@scenario("loader-torch-preload", "The forkserver has imported torch before it forks the workers", "loader.py", "torch",
          "preload", needs=("module:torch",))
def loader_torch_preload(account):
    for worker in torch_sent(account, imports=False):
        account.expect(worker["uss"]["last"] < 40 * MIB, f"pid {worker['pid']}: {worker['uss']['last'] / MIB:.1f} MiB of its own")
    account.silent("per-process-import")


@scenario("loader-dataloader", "The workers of a PyTorch DataLoader over a list: RSS stays, and the machine fills",
          "torch_dataloader.py", needs=("module:torch",))
def loader_dataloader(account):
    """Batches are shuffled: after three epochs next to no page of the list is left that a worker has not read from."""
    written = account.said("written by reading")
    workers = [child for child in account.workers() if child["born"] == "fork"]
    account.expect(len(workers) == 4, f"{len(workers)} workers")
    for worker in workers:
        made = bytes_by_line(worker["cow"]["sites"], "copied", account.line("builds", "loader.py"), "allocated_at")
        account.expect_close(made, written, 0.1, f"pid {worker['pid']}: copied of the list")
    account.says("fork-cow-refcount", account.main, "warning", at="makes", program="loader.py")
    account.silent("fork-cow-write")
    for epoch in range(EPOCHS):
        phase = account.phase(f"epoch {epoch + 1}")
        phase.stayed(phase.main, "heap_live", IMPORTED)
