"""The page of `whyrss diff --format html`, in a real browser: its figures are those of `--format json`, to the byte, and
nothing in either recording can make it do or ask for anything."""
import json
import re
import shutil
import signal

import pytest

from conftest import PATIENCE_S
from test_diff import Pair
from test_html import (BREAKING, ENDING, HOSTILE, browser, check_fits_and_can_be_read,  # noqa: F401  fixtures
                       check_that_nothing_ran, opened, python_path)


@pytest.fixture(scope="module")
def pair(whyrss, tmp_path_factory):
    return Pair(whyrss, tmp_path_factory.mktemp("diff"))


def page_of(pair, *arguments, name="diff.html"):
    output = pair.folder / name
    result = pair.diff(*arguments, "--format", "html", "-o", output)
    assert (result.stdout, result.stderr) == ("", "")
    assert output.stat().st_size < 10_000_000
    return output


@pytest.fixture(scope="module")
def both(pair):
    """The page of the pair, and its document."""
    return page_of(pair, pair.a, pair.b), pair.json(pair.a, pair.b)


PRINTED = 60  # rows of a table
FIGURE = """(row => ({...Object.fromEntries([...row.querySelectorAll("data[data-name]")].map(each =>
    [each.dataset.name, Number(each.value)])), state: row.querySelector("[data-state]").dataset.state}))"""


def figures(page, within):
    return page.run(f"""Object.fromEntries([...document.querySelectorAll({json.dumps(within + " data[data-name]")})]
        .map(each => [each.dataset.name, Number(each.value)]))""")


def causes_shown(page):
    return page.run(f"""Object.fromEntries([...document.querySelectorAll("[data-testid=causes] tr[data-cause]")].map(row =>
        [row.dataset.cause, {FIGURE}(row)]))""")


def lines_shown(page):
    return page.run(f"""[...document.querySelectorAll("[data-testid=lines] tbody tr:not(.space):not(.detail)")].map(row =>
        [row.querySelector("button").textContent, row.cells[1].textContent, {FIGURE}(row)])""")


def icicle_text(page):
    return page.run("document.querySelector('[data-testid=icicle-told]').textContent")


def press(page, text):
    button = f"[...document.querySelectorAll('#where button')].find(each => each.textContent === {json.dumps(text)})"
    page.run(f"{button}.click()")
    page.wait(f"{button}.getAttribute('aria-pressed') === 'true'")


def expected(figure):
    figures = {key: figure[key] for key in ("a", "b", "change", "state")}
    if figure["standard_error"]:
        figures["standard_error"] = figure["standard_error"]
    return figures


def check_figures(page, document):
    totals = {}
    for name in ("rss", "peak_rss", "peak_pss"):
        if document[name]:
            totals |= {f"{name.replace('_', '-')}-{key}": document[name][key] for key in ("a", "b", "change")}
    assert figures(page, "[data-testid=totals]") == totals
    shown = causes_shown(page)
    assert shown.pop("= RSS") == expected(document["rss"])
    assert shown == {cause["cause"]: expected(cause) for cause in document["causes"]}
    assert list(shown) == [cause["cause"] for cause in document["causes"]]


def text_of(line):
    moved = line["line_a"] and line["line_b"] and line["line_a"] != line["line_b"]
    return (line["line"] or "(no call recorded)") + (f" (line {line['line_a']} in A)" if moved else "")


def show_all_lines(page):
    if page.run("[...document.querySelectorAll('#where button')].some(each => each.textContent === 'with it')"):
        press(page, "with it")


@pytest.mark.parametrize("value", ["growth", "resident", "at_peak"])
def test_figures_are_those_of_the_json(pair, opened, value):
    document = pair.json(pair.a, pair.b, "--value", value)
    page = opened(page_of(pair, pair.a, pair.b, "--value", value, name=f"{value}.html"))
    check_figures(page, document)
    assert len(document["lines"]) > 20
    show_all_lines(page)
    page.run("window.dispatchEvent(new Event('beforeprint'))")  # not only the visible rows
    titles = page.run("""Object.fromEntries([...document.querySelectorAll("[data-testid=causes] tr[data-cause]")].map(row =>
        [row.dataset.cause, row.querySelector("th").textContent]))""")
    for cause in document["causes"]:
        page.run(f"location.hash = 'cause={cause['cause']}'")
        title = titles[cause["cause"]]
        page.wait(f"document.querySelector('[data-testid=where-total]').textContent.startsWith({json.dumps(title + ': ')})")
        assert figures(page, "[data-testid=where-total]") == {key: cause[key] for key in ("a", "b", "change")}
        lines = [line for line in document["lines"] if line["cause"] == cause["cause"]]
        assert lines_shown(page) == [[text_of(line), title, expected(line)] for line in lines[:PRINTED]]


def test_both_sides_are_named(both, opened):
    page, document = opened(both[0]), both[1]
    for side in ("A", "B"):
        text = page.run(f"document.querySelector('[data-testid=side-{side}]').textContent")
        recorded = document[side.lower()]
        for word in (" ".join(recorded["command"]), recorded["path"], recorded["host"], recorded["started"][:10],
                     recorded["mode"], f"{len(recorded['pids'])} processes"):
            assert word in text
    assert document["a"]["path"] in page.run("document.title")


def test_what_is_new_gone_and_moved(both, opened):
    page, document = opened(both[0]), both[1]
    page.run("location.hash = 'cause=heap_live'")
    page.wait("document.querySelector('[data-testid=where-total]').textContent.startsWith('live heap')")
    states = {}
    for state in ("new", "gone", "grown", "shrunk", "same"):
        lines = [line for line in document["lines"] if line["cause"] == "heap_live" and line["state"] == state]
        press(page, f"{state} {len(lines)}")
        shown = lines_shown(page)
        assert {figure["state"] for _, _, figure in shown} <= {state}
        states[state] = [text for text, _, _ in shown]
    assert any(text.endswith("in after") for text in states["new"])
    assert any(text.endswith("in before") for text in states["gone"])
    load, = [line for line in document["lines"] if line["cause"] == "heap_live" and line["line_b"] and
             line["function"] in ("load", "load.<locals>.<listcomp>")][:1]
    press(page, next(text for text in page.run("[...document.querySelectorAll('#where button')].map(each => each.textContent)")
                     if text.startswith("grown ")))
    moved = f"(line {load['line_a']} in A)"
    assert any(moved in text for text in states["grown"])
    page.click("[data-testid=lines] tbody tr")
    detail = page.wait("document.querySelector('[data-testid=lines] .detail')?.textContent")
    assert f"line {load['line_a']} in A, line {load['line_b']} in B" in detail
    assert load["file"] in detail and f"{load['a']:,} bytes in A, {load['b']:,} in B" in detail


def test_the_icicle_holds_both_sides(both, opened):
    """Whatever its order and its frames, it sums to the causes that are shown; a search shows changes."""
    page, document = opened(both[0]), both[1]
    costs = [cause for cause in document["causes"] if cause["cause"] != "fork_shared"]
    sums = {key: sum(cause[key] for cause in costs) for key in ("a", "b", "change")}
    assert figures(page, "[data-testid=where-total]") == sums
    before = icicle_text(page)
    for choice in ("by difference", "with native", "lines first"):
        press(page, choice)
        assert figures(page, "[data-testid=where-total]") == sums
        assert icicle_text(page) == before
    press(page, "callers first")
    press(page, "Python only")
    press(page, "by size")
    page.run("location.hash = 'cause=heap_live'")
    page.wait("document.querySelector('[data-testid=where-total]').textContent.startsWith('live heap')")
    page.key("/")
    for name, change in (("in after", "+6.0 MiB"), ("in before", "−6.0 MiB")):
        page.run("document.getElementById('search').select()")
        page.type(name)
        page.wait(f"document.querySelector('[data-testid=matched]')?.textContent.startsWith({json.dumps(change)})")
        page.wait(f"""[...document.querySelectorAll("[data-testid=lines] tbody button")].every(each =>
            each.textContent.endsWith({json.dumps(name)}))""")


def pixels(page):
    """How much of the icicle is reddish, and how much bluish."""
    return page.run("""(() => {
        const canvas = document.querySelector("[data-testid=icicle]");
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let red = 0, blue = 0;
        for (let i = 0; i < data.length; i += 4) {
            if (data[i] > data[i + 2] + 60) red++;
            if (data[i + 2] > data[i] + 60) blue++;
        }
        return [red, blue];
    })()""")


def test_red_is_more_and_blue_is_less(pair, both, opened):
    page = opened(both[0], "#cause=heap_live")
    red, blue = pixels(page)
    assert red > blue > 100
    page = opened(page_of(pair, pair.b, pair.a, name="back.html"), "#cause=heap_live")
    red, blue = pixels(page)
    assert blue > red > 100
    page = opened(page_of(pair, pair.a, pair.a, name="same.html"))
    assert pixels(page) == [0, 0]
    assert "same" in icicle_text(page)
    assert {figure["state"] for figure in causes_shown(page).values()} == {"same"}


def test_the_keyboard_alone(both, opened):
    page = opened(both[0])
    for _ in range(200):
        page.key("Tab")
        if page.run("document.activeElement.dataset.testid === 'icicle'"):
            break
    assert page.run("document.activeElement.dataset.testid") == "icicle"
    whole = icicle_text(page)
    assert whole.startswith("all")
    page.key("ArrowDown")
    page.key("ArrowDown")
    page.key("Enter")
    page.wait("!document.querySelector('[data-testid=icicle-told]').textContent.startsWith('all')")
    page.key("Escape")
    page.run("document.querySelector('[data-testid=causes] tr[data-cause=heap_live] button').focus()")
    page.key("Enter")
    page.wait("location.hash === '#cause=heap_live'")
    page.key("Enter")
    page.wait("location.hash === '#all'")


def test_phases_and_processes_of_one_recording(pair, opened):
    arguments = (pair.a, "--phase-a", "first", "--phase-b", "second")
    page = opened(page_of(pair, *arguments, name="phases.html"))
    check_figures(page, pair.json(*arguments))
    for side, phase in (("A", "first"), ("B", "second")):
        assert f"phase {phase}" in page.run(f"document.querySelector('[data-testid=side-{side}]').textContent")
    pids = [process["pid"] for process in pair.whyrss.report(pair.a)["processes"]]
    arguments = (pair.a, "--pid-a", pids[0], "--pid-b", pids[1])
    page = opened(page_of(pair, *arguments, name="pids.html"))
    check_figures(page, pair.json(*arguments))
    assert f"process {pids[1]}" in page.run("document.querySelector('[data-testid=side-B]').textContent")


def test_lines_beyond_the_top_are_summed(pair, opened):
    document = pair.json(pair.a, pair.b, "--top", 3)
    page = opened(page_of(pair, pair.a, pair.b, "--top", 3, name="top.html"))
    show_all_lines(page)
    shown = lines_shown(page)
    assert [figure for _, _, figure in shown] == [expected(line) for line in document["lines"]]
    assert [text for text, _, _ in shown[3:]] == ["(smaller lines, summed)"] * (len(document["lines"]) - 3)
    assert "are summed up per cause" in page.run("document.querySelector('[data-testid=bounds]').textContent")


def test_a_recording_of_which_nothing_is_known(pair, tmp_path, opened):
    empty = tmp_path / "empty.whyrss"
    shutil.copytree(pair.a, empty)
    for pages in empty.glob("*/pages.zst"):
        pages.unlink()
    page = opened(page_of(pair, empty, pair.b, name="empty.html"))
    document = pair.json(empty, pair.b)
    assert (document["a"]["read"], document["b"]["read"]) == (False, True)
    assert figures(page, "[data-testid=totals]") == {"rss-b": document["rss"]["b"], "peak-rss-b": document["peak_rss"]["b"]}
    totals = page.run("document.querySelector('[data-testid=totals]').textContent")
    assert "not known → " in totals and "0 B" not in totals
    assert page.run("document.querySelector('#by-cause, #where') === null")
    doubts = page.run("document.querySelector('[data-testid=doubts]').textContent")
    assert re.search("process(es)? of A (was|were) in no snapshot", doubts)
    page = opened(page_of(pair, empty, empty, name="nothing.html"))
    assert figures(page, "[data-testid=totals]") == {}


def test_a_kill(whyrss, pair, tmp_path, opened):
    program = "import os\nkept = bytearray(b'x') * (20 << 20)\nos.kill(os.getpid(), 9)"
    recording = tmp_path / "killed.whyrss"
    assert whyrss.record(recording, ["/usr/bin/python3", "-c", program]).returncode == -signal.SIGKILL
    whyrss.wait_until_complete(recording)
    page = opened(page_of(pair, pair.a, recording, name="killed.html"))
    check_figures(page, pair.json(pair.a, recording))


def test_hostile_names_stay_text(whyrss, pair, tmp_path, opened):
    recording = tmp_path / "job.whyrss"
    command = ["/usr/bin/python3", "-c", HOSTILE, str(python_path(whyrss)), str(tmp_path), BREAKING, ENDING]
    assert whyrss.record(recording, command).returncode == 0
    whyrss.wait_until_complete(recording)
    output = page_of(pair, pair.a, recording, "--phase-b", BREAKING, name="hostile.html")
    assert "pwned" not in output.read_text()
    page = opened(output)
    for choice in ("by difference", "lines first", "with native"):
        press(page, choice)
    page.click("[data-testid=lines] tbody tr")
    shown = page.run("document.body.innerText")
    assert ENDING in shown and BREAKING in shown and "\u202e" not in shown and "\x1b" not in shown
    assert page.run("[document.querySelectorAll('img, svg, b').length, document.querySelectorAll('script').length]") == [0, 2]
    check_that_nothing_ran(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_fits_and_can_be_read_by_all(both, browser, width, theme):
    check_fits_and_can_be_read(browser, width, theme, both[0], "#cause=heap_live")


def test_where_it_is_written(pair, both, tmp_path):
    result = pair.diff(pair.a, pair.b, "--format", "html")
    assert result.stdout == both[0].read_text()
    held = pair.diff(pair.a, pair.b, "--format", "html", "-o", tmp_path / "page.html", "--fail-if", "heap_live>1KiB", status=3)
    assert held.stderr.count("\n") == 1 and (tmp_path / "page.html").read_text() == both[0].read_text()
    assert pair.diff(pair.a, pair.b, "--format", "html", "-o", tmp_path / "no" / "page.html", status=1).stderr.count("\n") == 1
    assert "html" in pair.whyrss.run("diff", "--help", timeout=PATIENCE_S).stdout
