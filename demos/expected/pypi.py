"""Jobs with packages of PyPI (demos/setup --pypi): each measures itself, and the first sentence is checked against it."""
import re

from .report_reading import cause, verdicts
from .scenario import MIB, scenario

NEEDS = ("pypi",)
WORKERS = 2


def sizes(account, what):
    """All that the job printed as "WHAT: N bytes"."""
    return [int(number) for number in re.findall(rf"\b{re.escape(what)}: (\d+) bytes", account.output)]


def first(account, name, bytes_said, share, at=None, least=0):
    """The first sentence is of that id, names that line, and its figure is what the job measured."""
    verdict = account.report["verdicts"][0]
    account.expect(verdict["id"] == name, f"first comes {name}: {verdict['headline']}")
    account.expect_close(verdict["bytes"], bytes_said, share, f"{name}: its figure", least)
    if at is not None:
        line = "%s:%d" % account.line(*at)
        account.expect(line in verdict["headline"], f"{name} names {line}: {verdict['headline']}")
    return verdict


@scenario("pypi-dataloader-list", "A DataLoader of torch over a list: RSS of its workers is flat, and memory fills",
          "pypi/dataloader.py", "list", needs=NEEDS)
def dataloader_list(account):
    """What a worker copies before its first row is its start: some 5 MiB."""
    copied = max(sizes(account, "private since the first row"))
    first(account, "fork-cow-refcount", WORKERS * copied, 0.15, at=("builds the list",))
    account.says("fork-cow-refcount", at="reads")
    account.says("imports", account.main, "ok", text="torch")


@scenario("pypi-dataloader-numpy", "The same over one array", "pypi/dataloader.py", "numpy", needs=NEEDS)
def dataloader_numpy(account):
    first(account, "heap-growth", account.said("array"), 0.02, at=("builds the array",))
    account.silent("fork-cow-refcount", "fork-cow-write", "fork-cow-collector")


@scenario("pypi-dataloader-spawn", "The same with spawned workers: why are they large?", "pypi/dataloader.py", "spawn",
          needs=NEEDS)
def dataloader_spawn(account):
    imported = sizes(account, "imported")
    first(account, "per-process-import", sum(imported) - imported[0], 0.1, at=("imports torch",))
    account.says("per-process-import", text="torch")


@scenario("pypi-prefetch", "DataLoader workers prefetch faster than the job reads, until the kernel kills it: what filled it?",
          "pypi/prefetch.py", needs=(*NEEDS, "cgroup"), options=("--memory-max", "900MiB"), statuses=(-9, 1))
def prefetch(account):
    """Which process the kernel takes differs: with a worker of its the main process ends by an exception."""
    verdict = account.report["verdicts"][0]
    account.expect(verdict["id"] == "oom-killed", f"first comes oom-killed: {verdict['headline']}")
    held = verdict["evidence"]["held_by"][0]
    account.expect(held["line"].startswith("mapped by no process") or held["imports"], f"held most by {held}")
    account.expect("(mapped by no process" in verdict["headline"], "the headline names the shared memory")
    shared = sum(entry["bytes"] for entry in verdict["evidence"]["held_by"] if entry["line"].startswith("mapped by no"))
    # By the kernel's log it is that of the kill; without it that of 0.1 s before, and two workers make 350 MiB/s.
    logged = account.report["recording"]["capabilities"]["kernel_log"]
    account.expect_close(shared, max(sizes(account, "shared")), 0.1 if logged else 0.25, "shared memory at the kill")


@scenario("pypi-grid-search", "GridSearchCV with two processes: where does each keep the data?", "pypi/grid_search.py", needs=NEEDS)
def grid_search(account):
    features = account.said("features")
    account.made_at(account.main, "heap_live", "makes", features, 0.02)
    account.says("heap-growth", account.main, at="makes")
    shared = account.report["family"]["shmem_unmapped"]["peak"]
    account.expect_close(shared, features, 0.1, "joblib's file in /dev/shm before it is mapped")


@scenario("pypi-last-hidden", "Of each batch the last hidden state is kept, and RSS grows by all of them", "pypi/last_hidden.py",
          needs=NEEDS)
def last_hidden(account):
    """Objects are searched for views now and then: a few batches may come after the last time."""
    account.says("retained-view", account.main, "warning", at="computes", text=".clone()")
    kept = verdicts(account.report, "retained-view")[0]
    account.expect_close(kept["bytes"], account.said("hidden states"), 0.15, "what the views keep")
    account.silent("heap-growth")


@scenario("pypi-forest", "A random forest is large: what of it are the trees, and what the imports?", "pypi/forest.py", needs=NEEDS)
def forest(account):
    first(account, "heap-growth", account.said("trees"), 0.1, at=("fits",))
    account.says("imports", account.main, "ok", text="sklearn")


@scenario("pypi-gunicorn", "Workers of gunicorn --preload read a table that the master has loaded", "pypi/gunicorn_job.py",
          needs=NEEDS)
def gunicorn(account):
    copied = max(sizes(account, "private since the first request"))
    first(account, "fork-cow-refcount", WORKERS * copied, 0.15, at=("builds", "pypi/web_preload.py"))


@scenario("pypi-celery", "Which task makes the pool of a Celery worker grow?", "pypi/celery_job.py", needs=NEEDS)
def celery(account):
    parsed = max(sizes(account, f"parsed by {worker['pid']}")[-1] for worker in account.processes
                 if sizes(account, f"parsed by {worker['pid']}"))
    first(account, "heap-growth", parsed, 0.1, at=("keeps", "pypi/celery_app.py"))


@scenario("pypi-dask", "Workers of dask keep the results of a function that was sent to them", "pypi/dask_job.py", needs=NEEDS)
def dask(account):
    """Sent by value, the function has no file: its line and its name are what is left."""
    _, line = account.line("makes")
    wanted = f"<dynamic-code>:{line} in table"
    peaks = [verdict for verdict in account.report["verdicts"] if verdict["id"] == "gone-since-peak" and wanted in verdict["headline"]]
    account.expect(len(peaks) == WORKERS, f"{len(peaks)} workers had it at their peak, by {wanted}")
    account.expect_close(sum(verdict["bytes"] for verdict in peaks), account.said("kept"), 0.1, "kept at the peak")


@scenario("pypi-fastapi", "A FastAPI handler keeps its answers", "pypi/api.py", needs=NEEDS)
def fastapi(account):
    first(account, "heap-growth", account.said("answers"), 0.1, at=("keeps",))
    account.says("imports", account.main, "ok", text="fastapi")


@scenario("pypi-ray", "An actor of Ray keeps arrays, and the object store others", "pypi/ray_job.py", needs=NEEDS)
def ray(account):
    kept, stored = account.said("kept"), account.said("stored")
    actor = max(account.processes, key=lambda process: cause(process, "heap_live")["growth"]["rss"])
    account.made_at(actor, "heap_live", "keeps", kept, 0.02)
    account.says("heap-growth", actor, at="keeps")
    verdict = account.report["verdicts"][0]
    account.expect(verdict["id"] in ("gone-since-peak", "heap-growth"), f"first: {verdict['headline']}")
    # What one array takes comes at once, between two walks.
    account.expect_close(cause(account.main, "shared_memory")["rss"]["at_peak"], stored, 0.1, "the store at the peak", 33 * MIB)


def arrow_pool(account):
    """What of it is live is what Arrow says, but for blocks below 4 KiB."""
    pool, = [allocator for allocator in account.main["allocators"] if (allocator["name"], allocator["kind"]) == ("Arrow's memory pool", "mimalloc")]
    account.expect_close(pool["live"], account.said("in use"), 0.001, "live in Arrow's pool", 16 * 1024)
    return pool


@scenario("pypi-arrow", "A table of Arrow was filtered: malloc has none of what came of it", "pypi/arrow_job.py", needs=NEEDS)
def arrow(account):
    """The first filter imports modules too: some 0.5 MiB of its line."""
    arrow_pool(account)
    account.made_at(account.main, "heap_live", "filters", account.said("kept"), 0.01)
    account.made_at(account.main, "heap_live", "loads", account.said("table"), 0.02)


@scenario("pypi-arrow-drop", "total_allocated_bytes() of Arrow is 0, and RSS stays", "pypi/arrow_job.py", "drop", needs=NEEDS)
def arrow_drop(account):
    account.expect_close(arrow_pool(account)["retained"], account.said("grew"), 0.1, "kept by Arrow's pool")
    verdict = first(account, "heap-retained", account.said("grew"), 0.1, at=("filters",))
    account.expect("kept by Arrow's memory pool (mimalloc)" in verdict["headline"], verdict["headline"])


def own_jemalloc(account, name):
    """What a jemalloc inside a library holds: to the block, but for what was made before its hooks were installed."""
    own, = [allocator for allocator in account.main["allocators"] if (allocator["name"], allocator["kind"]) == (name, "jemalloc")]
    account.expect(own["unsplit"] < 4 * MIB, f"{own['unsplit'] / MIB:.1f} MiB of {name} are not known", "figure")
    return own


@scenario("pypi-polars", "Where is a frame of Polars, whose threads allocate?", "pypi/polars_job.py", needs=NEEDS)
def polars(account):
    """Its strings take more than estimated_size() says: buffers have room."""
    live = own_jemalloc(account, "Polars' allocator")["live"]
    account.expect_close(live, account.said("grew"), 0.02, "live in Polars' allocator")
    account.expect(live >= account.said("in use"), "at least what estimated_size() says", "figure")
    first(account, "heap-growth", account.said("grew"), 0.02, at=("makes",))


@scenario("pypi-polars-drop", "A frame of Polars was dropped, and RSS stays", "pypi/polars_job.py", "drop", needs=NEEDS)
def polars_drop(account):
    own = own_jemalloc(account, "Polars' allocator")
    account.expect_close(own["live"], 0, 0, "live in Polars' allocator", MIB)
    verdict = first(account, "heap-retained", account.said("stays"), 0.05, at=("makes",))
    account.expect("kept by Polars' allocator (jemalloc)" in verdict["headline"], verdict["headline"])


@scenario("pypi-polars-series", "Many Series of Polars in a list: none was freed", "pypi/polars_job.py", "series", needs=NEEDS)
def polars_series(account):
    own = own_jemalloc(account, "Polars' allocator")
    account.expect_close(own["live"], account.said("in use"), 0.01, "live in Polars' allocator")
    account.expect_close(own["retained"], 0, 0, "kept by Polars' allocator", 17 * MIB)  # numbers of its last step, and as fractions
    first(account, "heap-growth", account.said("in use"), 0.1, at=("keeps",))


@scenario("pypi-duckdb", "Where is a table of DuckDB, whose threads allocate?", "pypi/duckdb_job.py", needs=NEEDS)
def duckdb(account):
    """Its own figure counts buffers that nothing has touched yet."""
    live = own_jemalloc(account, "DuckDB's allocator")["live"]
    account.expect(0.8 * account.said("in use") <= live <= account.said("in use"), f"live: {live / MIB:.0f} MiB", "figure")
    first(account, "heap-growth", account.said("grew"), 0.05, at=("makes",))


@scenario("pypi-duckdb-close", "A database of DuckDB was closed: all of it comes back", "pypi/duckdb_job.py", "close", needs=NEEDS)
def duckdb_close(account):
    own = own_jemalloc(account, "DuckDB's allocator")
    account.expect_close(own["live"] + own["retained"], 0, 0, "in DuckDB's allocator", MIB)
    first(account, "gone-since-peak", account.said("grew"), 0.1, at=("makes",))


@scenario("pypi-commands", "200 short commands: how much do they have together?", "pypi/commands.py", needs=NEEDS)
def commands(account):
    """Each ends before it has grown: no sum over all of them is said."""
    account.expect(account.report["verdicts"][0]["id"] == "steady", account.report["verdicts"][0]["headline"])
    account.expect(len(account.children) == 200, f"{len(account.children)} commands")
    largest = max(process["rss"]["peak"] or 0 for process in account.children)
    account.expect(largest <= account.said("largest") * 1.05, f"the largest has {largest / MIB:.1f} MiB")
