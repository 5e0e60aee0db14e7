"""Figures of a moment against the truth that the jobs of tests/moments wrote down: ends, peaks, phases, snapshots, lines."""
import sys

import pytest

from conftest import ROOT
from expected.repeats import note
from figure_off import assert_figure

sys.path.append(str(ROOT / "tests/moments"))

from trials import jobs  # noqa: E402
from trials.figures import ABSENT, MIB, Line, Reported, Size, Words, doubt_of  # noqa: E402
from trials.recorded import Build, OffDesign, Run  # noqa: E402

RUNS = 3  # until a job did what it is designed to do: a busy machine may not let it


def figures_of(job, program, folder):
    """The figures of one recorded run, made in that folder."""
    folder.mkdir()
    run = Run(Build(program, folder), job, folder)
    jobs.check_design(run)
    return list(job.figures(run))


def figures_as_designed(job, program, folder):
    """The figures of a run in which the job did what it is designed to do."""
    for number in range(1, RUNS + 1):
        try:
            return figures_of(job, program, folder / f"{job.name}-{number}")
        except OffDesign as off:
            note(f"not as designed: {off}, run {number} of {RUNS}")
            reason = str(off)
    pytest.fail(reason)


@pytest.mark.parametrize("job", jobs.ALL, ids=lambda job: job.name)
def test_figures_are_of_their_moment(whyrss, tmp_path, job):
    if reason := jobs.cannot_run(job, whyrss.program):
        pytest.skip(reason)
    found = figures_as_designed(job, whyrss.program, tmp_path)
    assert found
    wrong = [one for one in found if one.wrong]
    assert all(isinstance(one, Size) for one in wrong), wrong
    assert_figure(not wrong, *wrong)


# The comparison itself


@pytest.mark.parametrize("truth,reported,wrong,marked", [
    (100 * MIB, Reported(100 * MIB), False, False),
    (100 * MIB, Reported(103 * MIB), False, False),        # 3 %
    (10 * MIB, Reported(12 * MIB), False, False),          # 2 MiB
    (100 * MIB, Reported(104 * MIB), True, False),
    (100 * MIB, Reported(90 * MIB, 10 * MIB), False, True),  # in no walk
    (100 * MIB, Reported(80 * MIB, 10 * MIB), True, False),  # more is missing than it says
    (100 * MIB, Reported(100 * MIB, 10 * MIB), False, False),
    (100 * MIB, Reported(None), False, True),              # not known
    (100 * MIB, ABSENT, True, False),
])
def test_a_size_is_right_marked_or_wrong(truth, reported, wrong, marked):
    size = Size("size", truth, reported)
    assert (size.wrong, size.marked) == (wrong, marked)


def test_lines_and_words_are_right_or_wrong():
    assert not Line("line", "a.py:1", "a.py:1").wrong
    assert Line("line", "a.py:1", "a.py:2").wrong
    assert Words("words", "never", "flat since").wrong
    assert not Words("words", "never", "").wrong
    assert Words("words", "always", "").wrong


def test_doubt_is_what_the_report_says_itself():
    def cause(slug, **more):
        return {"cause": slug, "rss": {"last": 5 * MIB}, "estimate": False, **more}
    assert doubt_of({"causes": [cause("heap_live")]}) == 0
    assert doubt_of({"causes": [cause("heap_live"), cause("not_looked_at")]}) == 5 * MIB
    assert doubt_of(cause("heap_live"), {"standard_error": MIB}) == 3 * MIB
    assert doubt_of({"causes": []}, {"estimate": True}) == float("inf")
