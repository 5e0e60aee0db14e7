"""Memory limits: what they take back, and what they kill."""
from .scenario import MIB, scenario

NEEDS = ("cgroup",)


@scenario("limited-scan", "A job with a limit of 96 MiB reads a file of 256 MiB through mmap; will it be killed?",
          "limited_scan.py", needs=NEEDS, options=("--memory-max", "96MiB"))
def limited_scan(account):
    group = account.report["family"]["cgroup"]
    account.expect(account.main["rss"]["peak"] < 130 * MIB, f"RSS stays at {account.main['rss']['peak'] / MIB:.0f} MiB")
    # Of 256 MiB that are read once, all but the last 96. cgroup v2 counts every page, also those of writing the file.
    # Elsewhere it is what one walk finds mapped and the next does not: what came and went in between is missing.
    if group["reclaimed"] is not None:
        taken, least, most = group["reclaimed"], 160 * MIB, 2 * 256 * MIB
    else:
        taken, least, most = group["reclaimed_at_least"], 128 * MIB, 256 * MIB
    account.expect(least <= taken <= most, f"the kernel took back {taken / MIB:.0f} MiB (all but the last 96 MiB of 256)")
    account.expect(group["limit_hits"] > 0, f"the limit was hit {group['limit_hits']} times")
    account.expect(group["oom_kills"] == 0, "no process was killed")
    account.says("limit-reclaimed", account.main, "ok", text="no process was killed")
    account.silent("near-limit", "oom-killed", "killed", "heap-growth")


@scenario("limited-keep", "A job is killed at its limit of 128 MiB; what filled it?", "accumulate.py", needs=NEEDS,
          options=("--memory-max", "128MiB"), statuses=(-9,))
def limited_keep(account):
    account.says("oom-killed", account.main, "problem", at="keeps", text="memory limit of 128 MiB")
    account.expect(account.report["verdicts"][0]["id"] == "oom-killed", "the kill stands first")
    account.expect(account.report["recording"]["exit"]["oom_killed"], "exit.oom_killed")
    before = account.report["verdicts"][0]["evidence"]["before"]
    account.expect(before["anon_bytes"] >= 64 * MIB, f"{before['anon_bytes'] / MIB:.0f} MiB anonymous before the kill")
    account.silent("near-limit", "limit-reclaimed")


@scenario("limited-retained", "Nearly all was freed, and the next block gets the job killed: why?", "retained_then_block.py",
          needs=NEEDS, options=("--memory-max", "180MiB"), statuses=(-9,))
def retained_killed(account):
    account.says("oom-killed", account.main, "problem", text="memory limit of 180 MiB")
    account.expect(account.report["recording"]["exit"]["oom_killed"], "exit.oom_killed")
    retained = [entry for entry in account.main["causes"] if entry["cause"] in ("heap_retained", "heap_slack")]
    found = sum(entry["rss"]["last"] for entry in retained)
    account.expect(found >= 50 * MIB, f"{found / MIB:.0f} MiB free, but kept by the allocator")


@scenario("limited-trimmed", "The same with malloc_trim(0) before the block", "retained_then_block.py", "trim",
          needs=NEEDS, options=("--memory-max", "180MiB"))
def retained_trimmed(account):
    account.silent("oom-killed", "killed", "heap-retained")
