"""The page of `whyrss html JOB`, in a real browser: its figures are those of `report JOB --format json`, to the byte, and
nothing in a recording can make it do or ask for anything."""
import re

import pytest

from conftest import PATIENCE_S, unwrapped
from test_html import browser, check_fits_and_can_be_read, opened  # noqa: F401  browser, opened: fixtures
from test_job import MIB, Job

HOSTILE = "<img src=x onerror=window.pwned=1>\u202e</script><script>window.pwned=2</script>"
FIGURES = """(row => Object.fromEntries([...row.querySelectorAll("data[data-name]")].map(each =>
    [each.dataset.name, Number(each.value)])))"""


@pytest.fixture(scope="module", name="job")
def fixture_job(whyrss, tmp_path_factory):
    return Job(whyrss, tmp_path_factory.mktemp("job_html"))


def page_of(job, *parts, name="job.html"):
    """The page of the parts, and their document."""
    document = job.json(*parts)
    output = job.folder / name
    result = job.whyrss.run("html", job.folder / "job", "-o", output, timeout=PATIENCE_S)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert output.stat().st_size < 10_000_000
    return output, document


@pytest.fixture(scope="module", name="shown")
def fixture_shown(job):
    return page_of(job, *job.parts)


def text_of(page, testid):
    return page.run(f"document.querySelector('[data-testid={testid}]').innerText")


def rows_of(page, testid):
    """The text and the figures of each visible row, which for small tables is each row."""
    page.run(f"document.querySelector('[data-testid={testid}]').style.maxHeight = 'none'")
    return page.run(f"""[...document.querySelectorAll("[data-testid={testid}] tbody tr:not(.space):not(.detail)")]
        .map(row => [row.cells[0].textContent, {FIGURES}(row)])""")


def choose_group(page, group):
    page.run(f"""(() => {{ const list = document.querySelector("[data-testid=group]"); list.value = "{group}";
        list.dispatchEvent(new Event("change", {{bubbles: true}})); }})()""")
    page.wait(f"location.hash.includes('group={group}')")


def test_sentences_are_those_of_the_text(job, shown, opened):  # noqa: F811
    page = opened(shown[0])
    text = job.whyrss.run("report", job.folder / "job", "--top", "20").stdout
    assert text_of(page, "head") == text.splitlines()[0]
    answers = [unwrapped(line).split(None, 1) for line in re.split(r"\n  (?! )", text.split("\n\n")[0])[1:]]
    found = page.run("""[...document.querySelectorAll("[data-testid=headlines] .verdict")].map(row =>
        [row.querySelector(".badge").textContent, row.querySelector(".headline").textContent])""")
    assert found == answers and any("rank 2 of 4 holds" in line for _, line in found)
    missing = text.split("What is missing\n")[1].splitlines()
    assert page.run("[...document.querySelectorAll('[data-testid=missing] li')].map(each => each.textContent)") == \
        [line.strip() for line in missing]


def test_tables_have_the_figures_of_the_report(shown, opened):  # noqa: F811
    page, document = opened(shown[0]), shown[1]
    assert [figures for _, figures in rows_of(page, "groups")] == \
        [{"processes": group["processes"], **{key: group["rss_peak"][key] for key in ("median", "p95", "max", "sum")}}
         for group in document["groups"]]
    [(name, outlier)] = rows_of(page, "outliers")
    assert name.startswith("rank 2") and outlier["held"] == document["outliers"][0]["held"]
    assert outlier["line"] == document["outliers"][0]["most"]["bytes"]
    [(name, node)] = rows_of(page, "nodes")
    expected = document["nodes"][0]
    assert name.startswith(expected["name"]) and node["pss"] == expected["pss_peaks"]
    for key in ("total", "limit", "private_peak", "files_once", "shared_once", "rss_sum_peak"):
        assert node[key] == expected[key]
    [(name, file)] = [row for row in rows_of(page, "files") if row[0].endswith("data.bin")]
    assert file["once"] == 16 * MIB


def test_a_group_and_a_cause_choose_the_lines(shown, opened):  # noqa: F811
    page, document = opened(shown[0]), shown[1]
    number = next(i for i, group in enumerate(document["groups"]) if group["name"] == "cache.py" and not group["workers"])
    group = document["groups"][number]
    choose_group(page, number)
    causes = page.run(f"""Object.fromEntries([...document.querySelectorAll("[data-testid=causes] tr[data-cause]")].map(row =>
        [row.dataset.cause, {FIGURES}(row)]))""")
    assert causes == {cause["cause"]: {key: cause["at_peak"][key] for key in ("median", "max", "sum")}
                      for cause in group["causes"] if cause["at_peak"]["sum"] > 0}
    page.run("document.querySelector('[data-cause=heap_live] button').click()")
    page.wait("location.hash.includes('cause=heap_live')")
    lines = [line for line in group["lines"] if line["cause"] == "heap_live"]
    found = rows_of(page, "lines")
    assert [figures for _, figures in found][:20] == [
        {"median": line["median"], "max": line["max"], "sum": line["sum"], "at_most": line["sum"] + line["error"]}
        for line in lines][:20]
    assert found[0][0].startswith("cache.py:5 in load")
    page.click("[data-testid=lines] tbody tr")
    page.wait("document.querySelector('[data-testid=lines] .detail') !== null")
    assert "of 3 processes list it" in text_of(page, "lines")


def test_memory_over_time(job, shown, opened):  # noqa: F811
    page, document = opened(shown[0]), shown[1]
    # A few KiB of one may be there at another moment than the peak, which is all that the document has.
    causes = {cause["cause"] for recording in job.folder.glob("r?.whyrss") for process in job.whyrss.report(recording)["processes"]
              for cause in process["causes"] if cause["rss"]["peak"] > 0}
    drawn = set(page.run("[...document.querySelectorAll('[data-testid=stacked] path')].map(each => each.dataset.cause)"))
    assert {"heap_live", "file_cache"} <= drawn <= causes | {"not_looked_at"}
    page.run("document.querySelector('[data-testid=charts]').focus()")
    page.key("End")
    most, now = [], []
    for _ in range(240):
        figures = page.run(f"{FIGURES}(document.querySelector('[data-testid=told]'))")
        if figures["max"]:
            assert figures["p50"] <= figures["p95"] <= figures["p99"] <= figures["max"]
        most.append(figures["max"])
        now.append(page.run("[...document.querySelectorAll('[data-name=now]')].reduce((sum, each) => sum + Number(each.value), 0)"))
        page.key("ArrowLeft")
    # A snapshot at the peak is in the part, so the largest process is seen at its peak.
    assert max(most) == max(process["rss_peak"] for process in document["outliers"])
    assert 0 < max(now) <= sum(group["rss_peak"]["sum"] for group in document["groups"])
    assert "RSS of one process" in text_of(page, "charts")
    assert page.run("document.querySelector('[data-testid=charts]').getAttribute('aria-valuenow')") == "0"


def test_nodes_are_found_and_sorted(job, opened):  # noqa: F811
    parts = [job.reduced(job.recorded(f"far{i}", 1 + 30 * i, RANK=str(i), SLURMD_NODENAME=f"node{i}")) for i in range(2)]
    page = opened(page_of(job, *parts, name="nodes.html")[0])
    page.run("""(() => { const find = document.querySelector("[data-testid=find-node]"); find.value = "nowhere";
        find.dispatchEvent(new Event("input", {bubbles: true})); })()""")
    page.wait("document.querySelector('[data-testid=nodes] .empty') !== null")
    page.run("""[...document.querySelectorAll("[data-testid=nodes] .sort")].find(each => each.textContent === "together").click()""")
    page.wait("document.querySelector('[data-testid=nodes] [aria-sort=descending]') !== null")


def test_hostile_names_stay_text(job, opened):  # noqa: F811
    recording = job.recorded("hostile", 1, RANK="0", SLURM_JOB_ID=HOSTILE, SLURMD_NODENAME=HOSTILE)
    output, _ = page_of(job, job.reduced(recording), name="hostile.html")
    assert "pwned" not in output.read_text()
    page = opened(output)
    shown = page.run("document.body.innerText")
    assert "<img src=x" in shown and "\u202e" not in shown
    assert page.run("document.querySelectorAll('img, script').length") == 2  # the data, and the page's own
    assert page.run("typeof window.pwned") == "undefined"


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_fits_and_can_be_read_by_all(shown, browser, width, theme):  # noqa: F811
    check_fits_and_can_be_read(browser, width, theme, shown[0], "#group=0&cause=heap_live")


def test_where_it_is_written(job, shown):
    job.merge(*job.parts)
    result = job.whyrss.run("html", "job", cwd=job.folder)
    assert (result.returncode, result.stdout) == (0, "job.html\n")
    assert job.whyrss.run("html", "job", "-o", "-", cwd=job.folder).stdout == (job.folder / "job.html").read_text()
    (job.folder / "night.whyrss-job").write_bytes((job.folder / "job").read_bytes())
    assert job.whyrss.run("html", "night.whyrss-job", cwd=job.folder).stdout == "night.html\n"
    bad = job.folder / "bad"
    bad.write_bytes((job.folder / "job").read_bytes()[:-10])
    for arguments, complaint in ((["bad"], "is cut off"), (["cache.py"], "cache.py"), (["job", "-o", "no/such/file"], "cannot write")):
        result = job.whyrss.run("html", *arguments, cwd=job.folder)
        assert result.returncode == 1 and complaint in result.stderr and result.stderr.count("\n") == 1


def test_printed_it_is_as_wide_as_its_paper(shown, opened):  # noqa: F811
    page = opened(shown[0], width=1900)
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    assert page.run("""[...document.querySelectorAll("[data-testid=charts] svg")].map(each =>
        each.getAttribute("width") <= each.parentElement.clientWidth)""") == [True, True]
    page.ask("Emulation.setEmulatedMedia", media="print")
    assert page.run("document.querySelector('.chart-title').clientHeight") > 0
