"""Runs a job, alone or recorded, and compares."""
import shutil

from .jobs import cannot_run, check_design
from .recorded import Build, Failed, Run

NEEDS_LIMIT = "not run: it ends at a limit only"


def figures_of(job, whyrss, folder):
    """The figures of one recorded run, made in that folder."""
    folder.mkdir()
    run = Run(Build(whyrss, folder), job, folder)
    check_design(run)
    return list(job.figures(run))


def compare(job, whyrss, folder, runs, keep=False):
    """(the figures of each run, why it cannot run, what went wrong in a run)."""
    reason = cannot_run(job, whyrss)
    if reason:
        return [], reason, []
    found, failures = [], []
    for number in range(1, runs + 1):
        place = folder / f"{job.name}-{number}"
        try:
            found.append(figures_of(job, whyrss, place))
        except Failed as failure:
            failures.append(str(failure))
        if not keep:
            shutil.rmtree(place, ignore_errors=True)
    return found, "", failures


def alone(job, whyrss, folder):
    """What differs from its design in a run without whyrss, "" for nothing."""
    if job.needs_limit:
        return NEEDS_LIMIT
    place = folder / f"{job.name}-alone"
    place.mkdir()
    try:
        check_design(Run(Build(whyrss, place), job, place, recorded=False))
    except Failed as failure:
        return str(failure)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return ""
