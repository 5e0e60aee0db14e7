"""The jobs: a program each, what it was designed to do, and the figures of the report that it knows the truth of."""
import dataclasses
import pathlib
import subprocess
from collections.abc import Callable

from .figures import MIB, Line, Reported, Size, doubt_of
from .recorded import (KEPT, OffDesign, called_complete, causes_of, copied_by, family_of, figure_of, growth_at_line,
                       headline_growth, line_with_most, marked_line, never_says, sites_by_line, verdict_reported)

ALL = []
SETTLED = r"(flat since|comes and goes|no leak|not a leak)[^.;:,]*"  # false of what was growing when it ended
STILL_GROWING = r"still growing[^.;:,]*"


@dataclasses.dataclass(frozen=True)
class Job:
    name: str
    what: str
    command: tuple           # a program of programs/ and its arguments
    design: Callable         # design(run) -> (name, found, designed) of what it says
    figures: Callable        # figures(run) -> Size, Line and Words
    options: tuple = ()      # of whyrss record
    status: int = 0          # that it ends with; -9: by SIGKILL
    stopped_after_s: float | None = None  # SIGTERM so long after it has said something
    needs_limit: bool = False             # a memory cgroup
    refused: tuple = ()                   # system calls that no process may make, the collector included


def job(name, what, *command, design, **more):
    """Registers the function below it, which yields the figures of a recorded run."""
    def register(figures):
        ALL.append(Job(name, what, command, design, figures, **more))
        return figures
    return register


DESIGN_SHARE, DESIGN_LEAST = 0.15, 8 * MIB  # what an interpreter needs by the way


def check_design(run):
    for name, found, designed in run.job.design(run):
        if abs(found - designed) > max(DESIGN_SHARE * designed, DESIGN_LEAST):
            raise OffDesign(f"{run.job.name}: {name} is {found / MIB:.1f} MiB and was to be {designed / MIB:.1f} MiB")


def cannot_run(wanted, whyrss):
    """Why a job cannot run on this machine, "" if it can."""
    if wanted.refused and "\nSeccomp:" not in pathlib.Path("/proc/self/status").read_text(encoding="utf-8"):
        return "the kernel has no seccomp"
    if not wanted.needs_limit:
        return ""
    doctor = subprocess.run([whyrss, "doctor"], capture_output=True, text=True, check=False)
    can = any(line.split()[:2] == ["ok", "memory_max"] for line in doctor.stdout.splitlines())
    return "" if can else "no memory cgroup may be made here (whyrss doctor: memory_max)"


# Growth, and where it ends


def design_of_phases(run):
    for phase in run.all_said("phase"):
        yield phase["name"], phase["grown"], phase["kept"]


@job("phases", "five phases of 1 to 3 s that keep 15.3 MiB each, over 600 MiB", "phases.py", "600",
     design=design_of_phases)
def phases(run):
    for phase in run.all_said("phase"):
        process = run.main(run.report("--from", phase["name"], "--to", phase["name"]))
        grown = Reported(process["rss"]["last"] - process["rss"]["first"], doubt_of(process))
        yield Size(f"growth in {phase['name']}", phase["grown"], grown)
        yield Size(f"at the line in {phase['name']}", phase["kept"], growth_at_line(run, process, "keeps"))


def design_of_container(run):
    yield "what is held", run.last_said("serving")["held"], 302 * MIB


@job("global-container", "a C++ service with 300 MiB in a global map, stopped by SIGTERM, ends by return from main",
     "global_container.cc", design=design_of_container, stopped_after_s=1.5)
def global_container(run):
    held, process = run.last_said("stopped")["held"], run.main()
    yield Size("live at the end", held, causes_of(process, ("heap_live",), "last"))
    yield Size("retained at the end", 0, causes_of(process, ("heap_retained",), "last"))
    yield Size("at the line", held, growth_at_line(run, process, "caches"))
    yield line_with_most(run, "line with most", process, "caches")
    yield verdict_reported(run, "heap-growth", expected=True)
    yield never_says(run, "freed", r"freed[^.;:,]*, but kept|not a leak")


def design_of_end(run):
    end, loaded = run.last_said("end"), run.last_said("loaded")["loaded"]
    yield "RSS at the end", end["rss"], end["grown"] + loaded + 12 * MIB


def figures_of_end(run):
    """Of a program that ended while it grew."""
    end, loaded, process = run.last_said("end"), run.last_said("loaded")["loaded"], run.main()
    at_end = Size("RSS at the end", end["rss"], figure_of(process, "rss", "last"))
    yield at_end
    yield Size("RSS at its peak", end["rss"], figure_of(process, "rss", "peak"))
    yield Size("at the line that grew", end["grown"], growth_at_line(run, process, "grows"))
    if loaded:
        yield Size("at the line before", loaded, growth_at_line(run, process, "loads"))
    yield headline_growth(run, end["rss"])
    yield line_with_most(run, "line with most", process, "grows")
    yield never_says(run, "settled", SETTLED)
    yield called_complete(run, at_end)


def ends(name, what, how, end_mib, rate_mib, *loaded_mib, **more):
    words = ("ends.py", how, *(str(number) for number in (end_mib, rate_mib, *loaded_mib)))
    job(name, what, *words, design=design_of_end, **more)(figures_of_end)


ends("oom-like", "grows at 400 MB/s over 128 MiB, kills itself at 600 of 1024 MiB", "kill", 600, 400, 128, status=-9)
ends("oom-limit", "the same until the kernel kills it at a limit of 512 MiB", "limit", 1024, 400, 128, status=-9,
     options=("--memory-max", "512M"), needs_limit=True)
ends("kill-growing", "grows at 100 MB/s, SIGKILL at 176 MiB", "kill", 176, 100, status=-9)
ends("end-term", "grows at 200 MB/s, SIGTERM by default at 200 MiB", "term", 200, 200, status=-15)
ends("end-exit", "grows at 200 MB/s, os._exit at 200 MiB", "exit", 200, 200, status=3)
ends("end-raise", "grows at 200 MB/s, an exception that nobody catches at 200 MiB", "raise", 200, 200, status=1)


def design_of_pulses(run):
    end = run.last_said("end")
    yield "VmHWM", end["high_water"], end["at_peak"] + 12 * MIB


def figures_of_pulses(run):
    end, process = run.last_said("end"), run.main()
    yield Size("RSS at its peak", end["high_water"], figure_of(process, "rss", "peak"))
    yield Size("high water", end["high_water"], figure_of(process, "rss", "high_water"))
    yield Size("kept at the peak", end["at_peak"], causes_of(process, KEPT, "at_peak"))
    yield Size("family's RSS at its peak", end["high_water"], family_of(run.report(), "rss_sum", "peak"))
    yield never_says(run, "still growing", STILL_GROWING)


for base_mib in (400, 1500):
    job(f"pulses-{base_mib}", f"+300 MiB for 0.3 s in each second, over {base_mib} MiB", "pulses.py", str(base_mib),
        design=design_of_pulses)(figures_of_pulses)


def design_of_flat(run):
    yield "growth in 15 s", run.last_said("end")["since"], 0


@job("flat-after-import", "imports and allocates for 2 s, then works for 15 s without growing", "flat.py",
     design=design_of_flat)
def flat(run):
    yield Size("RSS at the end", run.last_said("end")["rss"], figure_of(run.main(), "rss", "last"))
    yield never_says(run, "still growing", STILL_GROWING)


# Several processes


def design_of_pool(run):
    for worker in run.last_said("held")["workers"].values():
        yield "a worker's own memory", worker["uss"], 102 * MIB


def figures_of_pool(run):
    held, whole = run.last_said("held"), run.report()
    moment = run.at(held)
    yield Size("family's PSS then", held["pss"], family_of(moment, "pss", "last"))
    if run.job.command[1] != "argument":  # which needs more while arguments are on their way
        yield Size("family's PSS at its peak", held["pss"], family_of(whole, "pss", "peak"))
        accounting = whole["family"]["accounting"]["at_peak"]
        yield Size("PSS that other tools show", held["pss"], Reported(accounting["pss_sum"], doubt_of(accounting)))
    for worker in run.all_said("worker"):
        yield Size("worker's RSS at its peak", worker["high_water"], figure_of(run.process(worker["pid"]), "rss", "peak"))
        there, truth = run.process(worker["pid"], moment), held["workers"][str(worker["pid"])]
        yield Size("worker's RSS then", truth["rss"], figure_of(there, "rss", "last"))
        yield Size("worker's USS then", truth["uss"], figure_of(there, "uss", "last"))


for how, described in (("argument", "by its task's argument"), ("global", "by writing to what it inherited"),
                       ("before-load", "by loading it, the Pool being older than the parent's own load")):
    job(f"pool-{how}", f"two Pool workers that inherit 200 MiB and get 100 MiB each {described}", "pool.py", how,
        design=design_of_pool)(figures_of_pool)


def design_of_freed(run):
    for worker in run.all_said("worker"):
        yield "a worker's VmHWM", worker["high_water"], 312 * MIB


@job("workers-freed", "four workers that inherit 200 MiB take 100 MiB, free it and end", "workers_freed.py",
     design=design_of_freed)
def workers_freed(run):
    for worker in run.all_said("worker"):
        process = run.process(worker["pid"])
        yield Size("worker's RSS at its peak", worker["high_water"], figure_of(process, "rss", "peak"))
        yield Size("worker's live heap at its end", 0, causes_of(process, ("heap_live",), "growth"))
        yield verdict_reported(run, "heap-growth", expected=False, pid=worker["pid"])


def design_of_readers(run):
    held = run.last_said("held")
    yield "RSS", held["rss"], 4 * 212 * MIB + 12 * MIB
    yield "PSS", held["pss"], 232 * MIB


@job("shared-readers", "four processes map and read one file of 200 MiB", "shared_readers.py", design=design_of_readers)
def shared_readers(run):
    held, whole = run.last_said("held"), run.report()
    for name, moment, report in (("then", "last", run.at(held)), ("at its peak", "peak", whole)):
        yield Size(f"PSS {name}", held["pss"], family_of(report, "pss", moment))
        yield Size(f"RSS {name}", held["rss"], family_of(report, "rss_sum", moment))
    accounting = whole["family"]["accounting"]["at_peak"]
    yield Size("PSS that other tools show", held["pss"], Reported(accounting["pss_sum"], doubt_of(accounting)))
    yield verdict_reported(run, "rss-double-counted", expected=True)


def design_of_tree(run):
    yield "what the grandchild copied", run.last_said("grandchild")["copied"], 65 * MIB


def figures_of_tree(run):
    grandchild = run.last_said("grandchild")
    yield Size("copied by the root", 0, copied_by(run.process(run.last_said("root")["pid"])))
    yield Size("copied by the grandchild", grandchild["copied"], copied_by(run.process(grandchild["pid"])))


for when, course in (("before", "the middle process ends before"), ("while", "the middle process ends while"),
                     ("at-once", "the middle process ends, and at once")):
    job(f"fork-tree-{when}", f"the root holds 64 MiB, {course} the grandchild writes all of it", "fork_tree.py", when,
        design=design_of_tree)(figures_of_tree)
    job(f"fork-tree-{when}-untracked", "the same without write tracking", "fork_tree.py", when, design=design_of_tree,
        refused=("userfaultfd",))(figures_of_tree)


def design_of_teardown(run):
    for worker in run.all_said("worker"):
        yield "what a worker copied", worker["copied"], 5 * MIB


@job("teardown", "four workers write to 4 MiB of what they inherited, then the interpreter shuts down", "teardown.py",
     design=design_of_teardown)
def teardown(run):
    for worker in run.all_said("worker"):
        process = run.process(worker["pid"])
        yield Size("copied by a worker", worker["copied"], copied_by(process))
        by_line = sites_by_line(run, process["cow"]["sites"] if process else [], "written_at")
        sums = {line: sum(site["copied"] for site in sites) for line, sites in by_line.items()}
        yield Line("line that copied most", marked_line(run, "serves"), max(sums, key=sums.get, default="") or "(none)")
    yield never_says(run, "teardown", r"\w*GC_Collect\w*|finalize\w*")


def design_of_bursts(run):
    slow = run.last_said("slow")
    yield "growth of the slow one", slow["grown"], 50 * MIB
    yield "what it copied", slow["copied"], 26 * MIB


@job("bursts", "200 processes of 30 MiB for 50 ms, beside one that grows by 50 MiB and copies 25 MiB in 5 s", "bursts.py",
     design=design_of_bursts)
def bursts(run):
    slow = run.last_said("slow")
    process = run.process(slow["pid"])
    yield Size("slow one's RSS at its end", slow["rss"], figure_of(process, "rss", "last"))
    yield Size("slow one's growth at the line", 50 * MIB, growth_at_line(run, process, "grows"))
    yield Size("copied by the slow one", slow["copied"], copied_by(process))
    yield line_with_most(run, "slow one's line with most", process, "grows")


def design_of_snapshots(run):
    for number, step in enumerate(run.all_said("step"), 1):
        yield f"RSS of both at step {number}", sum(step["workers"].values()), (number * 20 + 20) * MIB


@job("snapshots", "a parent asks for a snapshot after each step of its two workers", "snapshots.py",
     design=design_of_snapshots)
def snapshots(run):
    for number, step in enumerate(run.all_said("step"), 1):
        moment = run.at(step)
        for index, (pid, rss) in enumerate(step["workers"].items(), 1):
            yield Size(f"worker {index} at step {number}", rss, figure_of(run.process(int(pid), moment), "rss", "last"))


# Lazily freed memory


def design_of_lazy_free(run):
    yield "LazyFree", run.last_said("end")["lazy_free"], 48 * MIB


@job("lazy-free", "64 MiB given up with MADV_FREE, 16 MiB of it written again, then SIGKILL", "lazy_free.py",
     design=design_of_lazy_free, status=-9)
def lazy_free(run):
    yield Size("lazily freed at the end", run.last_said("end")["lazy_free"], causes_of(run.main(), ("lazy_free",), "last"))
