"""Something small that keeps something large: views, descriptors."""
from .scenario import MIB, scenario

BATCHES = 100 * 3 * MIB
NUMPY = 16 * MIB  # of heap are live after the import, at most
SEGMENTS = 200 * 256 * 1024
LOADED = 150 * 256 * 1024


@scenario("retained-view", "256 bytes of each batch are kept, and RSS grows by the whole batch", "retained_view.py", "view",
          needs=("module:numpy",))
def retained_view(account):
    account.grew(account.main, "heap_live", BATCHES, 0.02, least=NUMPY)
    account.made_at(account.main, "heap_live", "makes", BATCHES, 0.02)
    account.says("retained-view", account.main, "warning", at="makes", text=".copy()")
    account.silent("heap-growth", "heap-retained")


@scenario("retained-view-copied", "The same with .copy()", "retained_view.py", "copy", needs=("module:numpy",))
def retained_view_copied(account):
    account.stayed(account.main, "heap_live", NUMPY)
    account.silent("retained-view", "heap-retained")


@scenario("retained-view-torch", "The same with tensors", "retained_view.py", "torch", needs=("module:torch",))
def retained_view_torch(account):
    account.made_at(account.main, "heap_live", "tensors", BATCHES, 0.02)
    account.says("retained-view", account.main, "warning", at="tensors", text=".clone()")
    account.silent("heap-retained")


@scenario("retained-view-locked", "The same with buffers that are locked in memory", "retained_view.py", "mlock",
          needs=("module:numpy",))
def retained_view_locked(account):
    account.grew(account.main, "anonymous", BATCHES, 0.02)
    account.made_at(account.main, "anonymous", "maps", BATCHES, 0.01)
    account.says("cause-growth", account.main, at="maps")


@scenario("descriptors", "Each batch leaves an open descriptor and a mapping", "descriptors.py", "keep")
def descriptors(account):
    account.grew(account.main, "shared_memory", SEGMENTS, 0.01)
    account.made_at(account.main, "shared_memory", "maps", SEGMENTS, 0.01)
    account.touched_at(account.main, "shared_memory", "fills", SEGMENTS, 0.05)
    account.says("descriptor-growth", account.main, "warning", at="maps")


@scenario("descriptors-closed", "The same, copied and closed", "descriptors.py", "copy")
def descriptors_closed(account):
    account.stayed(account.main, "shared_memory", MIB)
    account.silent("descriptor-growth")


@scenario("loader-descriptors", "A few numbers of each batch are kept, and descriptors run out", "loader_descriptors.py",
          "keep", needs=("module:torch",))
def loader_descriptors(account):
    account.grew(account.main, "shared_memory", LOADED, 0.05)
    account.made_at(account.main, "shared_memory", "loads", LOADED, 0.05)
    account.says("descriptor-growth", account.main, "warning", at="loads")


@scenario("loader-copied", "The same with .copy()", "loader_descriptors.py", "copy", needs=("module:torch",))
def loader_copied(account):
    account.stayed(account.main, "shared_memory", 4 * MIB)
    account.silent("descriptor-growth")


@scenario("pinned-view", "256 bytes of each pinned batch are kept", "pinned.py", "view", needs=("module:torch", "gpu:"))
def pinned_view(account):
    found = sum(entry["growth"]["rss"] for entry in account.main["causes"] if entry["cause"] in ("device", "anonymous"))
    account.expect(found >= 0.95 * BATCHES, f"device and anonymous: {found / MIB:.1f} MiB (expected {BATCHES / MIB:.0f})")
