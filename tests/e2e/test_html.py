"""The page that `whyrss html` writes, in a real browser: its figures are those of the JSON report, whatever interval is
chosen and however it is chosen, and nothing in a recording can make it do or ask for anything."""
import base64
import gzip
import json
import pathlib
import re
import signal

import pytest

import chromium
from conftest import PATIENCE_S, ROOT

AXE = ROOT / "analyzer/web/node_modules/axe-core/axe.min.js"

FAMILY = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import whyrss
with whyrss.phase("load"):
    words = [("word %d" % i) * 3 for i in range(200000)]
    block = bytearray(b"x") * (40 << 20)
whyrss.mark("loaded")
with whyrss.phase("work"):
    children = []
    for number in range(2):
        child = os.fork()
        if child == 0:
            total = sum(len(word) for word in words)
            whyrss.snapshot()
            own = bytearray(b"y") * (10 << 20)
            whyrss.snapshot()
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
del block
with whyrss.phase("after"):
    more = [bytes(1000) for i in range(20000)]
"""

# A phase that ends within a hundredth of a second after a fork in it.
FORKING = """
import os, sys, time
sys.path.insert(0, sys.argv[1])
import whyrss
block = bytearray(b"x") * (40 << 20)
time.sleep(0.3)
with whyrss.phase("fork"):
    child = os.fork()
    if child == 0:
        own = bytearray(b"y") * (10 << 20)
        time.sleep(0.3)
        os._exit(0)
os.waitpid(child, 0)
"""

# Names that would run, load, turn around or end something, were they not text.
BREAKING = '"><img src=x onerror=window.pwned=1><script>window.pwned=1</script>'
ENDING = "</script><script>window.pwned=2</script>"
HOSTILE = f"""
import mmap, os, sys, time
sys.path.insert(0, sys.argv[1])
import whyrss
name = {ENDING!r}
code = "def f():\\n    return bytearray(b'x') * (30 << 20)\\nkept = f()\\n"
folder = sys.argv[2]
path = os.path.join(folder, "\\u202egnp.<b onclick=window.pwned=3>\\x1b[31m")
with open(path, "wb") as file:
    file.write(b"z" * (20 << 20))
file = open(path, "r+b")
mapped = mmap.mmap(file.fileno(), 0)
with whyrss.phase({BREAKING!r}):
    exec(compile(code, "<img src=x onerror=window.pwned=4>" + name, "exec"))
    sum(mapped[::4096])
whyrss.mark("<svg onload=window.pwned=5>")
time.sleep(0.2)
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = chromium.Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def family(whyrss, tmp_path_factory):
    """A recording of three processes with phases, and its page."""
    folder = tmp_path_factory.mktemp("family")
    return written(whyrss, folder, ["/usr/bin/python3", "-c", FAMILY, str(python_path(whyrss))])


def python_path(whyrss):
    return whyrss.shim.parent / "python"


def written(whyrss, folder, command):
    recording = folder / "job.whyrss"
    result = whyrss.record(recording, command)
    assert result.returncode == 0, result.stderr
    whyrss.wait_until_complete(recording)
    return recording, page_of(whyrss, recording)


def page_of(whyrss, recording):
    output = recording.parent / f"{recording.name}.html"
    result = whyrss.run("html", recording, "-o", output)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert output.stat().st_size < 10_000_000
    return output


@pytest.fixture
def opened(browser):
    """opened(FILE, HASH) -> a page; at the end of the test it has asked for nothing and complained of nothing."""
    pages = []

    def open_page(path, hash_="", width=1280, height=900):
        page = browser.new_page()
        page.resize(width, height)
        page.open(path, hash_)
        pages.append((page, path))
        return page
    yield open_page
    for page, path in pages:
        address = pathlib.Path(path).resolve().as_uri()
        assert [url for url in page.requests if url.split("#")[0] != address] == []
        assert page.complaints == []


def figures(page, within):
    """name -> bytes of all figures in an element; None: not known."""
    return page.run(f"""Object.fromEntries([...document.querySelectorAll({json.dumps(within + " [data-name]")})]
        .map(each => [each.dataset.name, each.tagName === "DATA" ? Number(each.value) : null]))""")


def causes_shown(page):
    return page.run("""Object.fromEntries([...document.querySelectorAll("[data-testid=causes] tr[data-cause]")].map(row =>
        [row.dataset.cause, Object.fromEntries([...row.querySelectorAll("data[data-name]")].map(each =>
            [each.dataset.name, Number(each.value)]))]))""")


def interval_shown(page):
    return page.run("(({from, to}) => [from, to])(document.querySelector('[data-testid=interval]').dataset)")


def choose(page, hash_):
    page.run(f"location.hash = {json.dumps(hash_)}")
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 30))))")


def check_process(page, process):
    """What the page shows of the chosen process is what the JSON report says of it."""
    totals, rss, pss, uss = figures(page, "[data-testid=totals]"), process["rss"], process["pss"], process["uss"]
    assert totals == {"rss-first": rss["first"], "rss-last": rss["last"], "rss-peak": rss["peak"],
                      "pss-first": pss["first"], "pss-last": pss["last"], "uss-first": uss["first"],
                      "uss-last": uss["last"], "growth": rss["last"] - rss["first"]}
    assert causes_shown(page) == {
        cause["cause"]: {"growth": cause["growth"]["rss"], "last": cause["rss"]["last"], "peak": cause["rss"]["peak"],
                         "at-peak": cause["rss"]["at_peak"]} for cause in process["causes"]}


def check_family(page, report):
    totals, rss, pss = figures(page, "[data-testid=totals]"), report["family"]["rss_sum"], report["family"]["pss"]
    assert (totals["rss-first"], totals["rss-last"]) == (rss["first"], rss["last"])
    assert (totals["pss-first"], totals["pss-last"]) == (pss["first"], pss["last"])
    shown = causes_shown(page).values()
    assert sum(cause["last"] for cause in shown) == rss["last"]
    assert sum(cause["growth"] for cause in shown) == rss["last"] - rss["first"] == totals["growth"]
    assert sum(cause["at-peak"] for cause in shown) == totals["rss-peak"]


def check_all(page, report, interval):
    for process in report["processes"]:
        choose(page, f"process={process['pid']}&{interval}")
        check_process(page, process)
    choose(page, interval)
    check_family(page, report)


def test_figures_are_those_of_the_report(whyrss, family, opened):
    recording, page_file = family
    report = whyrss.report(recording)
    assert len(report["processes"]) == 3
    page = opened(page_file)
    check_all(page, report, "all")
    check_family(page, report)


def test_a_dragged_interval_is_that_of_from_and_to(whyrss, family, opened):
    recording, page_file = family
    page = opened(page_file)
    before = figures(page, "[data-testid=totals]")
    seen = set()
    for begin, end in ((0.1, 0.5), (0.3, 0.95), (0.55, 0.85)):
        page.drag("[data-testid=timeline] .u-over", begin, end)
        page.wait("document.querySelector('[data-testid=interval]').textContent.startsWith('interval')")
        times = interval_shown(page)
        seen.add(tuple(times))
        report = json.loads(whyrss.report_text(recording, "--from", times[0], "--to", times[1]))
        check_all(page, report, f"from={times[0]}&to={times[1]}")
        assert figures(page, "[data-testid=totals]") != before
    assert len(seen) == 3


def test_an_interval_can_be_chosen_by_touch(family, opened):
    page = opened(family[1], width=400)
    page.ask("Emulation.setTouchEmulationEnabled", enabled=True)

    def touch(kind, *point):
        page.ask("Input.dispatchTouchEvent", type=kind, touchPoints=[{"x": point[0], "y": point[1]}] if point else [])

    points = [page.place("[data-testid=timeline] .u-over", part) for part in (0.2, 0.4, 0.6, 0.8)]
    touch("touchStart", *points[0])
    for point in points[1:]:
        touch("touchMove", *point)
    touch("touchEnd")
    page.wait("document.querySelector('[data-testid=interval]').textContent.startsWith('interval')")
    begin, end = map(float, interval_shown(page))
    assert begin < end and page.run("parseFloat(document.querySelector('.u-select').style.width)") > 50
    touch("touchStart", *points[1])
    touch("touchEnd")
    assert list(map(float, interval_shown(page))) == [begin, end]


def test_a_phase_is_that_of_from_and_to(whyrss, family, opened):
    recording, page_file = family
    page = opened(page_file)
    for number, name in enumerate(("load", "work", "after")):
        page.click(f"[data-testid=phases] button:nth-child({number + 1})", 0.2)
        page.wait(f"location.hash === '#phase={number}'")
        report = json.loads(whyrss.report_text(recording, "--from", name, "--to", name))
        check_all(page, report, f"phase={number}")


def test_a_process_born_at_the_end_of_a_phase(whyrss, tmp_path, opened):
    recording, page_file = written(whyrss, tmp_path, ["/usr/bin/python3", "-c", FORKING, str(python_path(whyrss))])
    page = opened(page_file)
    check_all(page, json.loads(whyrss.report_text(recording, "--from", "fork", "--to", "fork")), "phase=0")


FAST_PHASES = """
import sys
sys.path.insert(0, sys.argv[1])
import whyrss
kept = []
for number in range(6):
    with whyrss.phase(f"grows {number}"):
        kept.append(b"x" * (40 << 20))
"""


def test_phases_that_come_faster_than_walks(whyrss, tmp_path, opened):
    recording, page_file = written(whyrss, tmp_path, ["/usr/bin/python3", "-c", FAST_PHASES, str(python_path(whyrss))])
    page = opened(page_file)
    for number in range(6):
        report = json.loads(whyrss.report_text(recording, "--from", f"grows {number}", "--to", f"grows {number}"))
        check_all(page, report, f"phase={number}")


COPYING = """
import os, time
kept = [str(number) * 20 for number in range(200_000)]
child = os.fork()
if child == 0:
    for text in kept:
        text
    time.sleep(0.4)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_sentence_of_workers_leads_to_them(whyrss, tmp_path, opened):
    recording, page_file = written(whyrss, tmp_path, ["/usr/bin/python3", "-c", COPYING])
    _, child = json.loads(whyrss.report_text(recording))["processes"]
    page = opened(page_file)
    page.run("[...document.querySelectorAll('[data-testid=verdicts] a')].find(each => each.textContent.includes(' copied ')).click()")
    page.wait(f"location.hash === '#process={child['pid']}&cause=fork_cow'")
    page.wait("document.querySelectorAll('[data-testid=lines] tbody tr').length > 0")


def test_tables_sum_to_the_causes(whyrss, family, opened):
    recording, page_file = family
    report = whyrss.report(recording)
    for process in report["processes"]:
        page = opened(page_file, f"#process={process['pid']}")
        page.run("window.dispatchEvent(new Event('beforeprint'))")  # all rows
        mappings = page.run("""[...document.querySelectorAll("[data-testid=mappings] tbody tr")].map(row =>
            [row.querySelector(".code").textContent, row.cells[1].textContent, Number(row.querySelector("[data-name=growth]").value),
             Number(row.querySelector("[data-name=resident]").value)])""")
        titles = page.run("""Object.fromEntries([...document.querySelectorAll("[data-testid=causes] tr[data-cause]")].map(row =>
            [row.dataset.cause, row.querySelector("th").textContent]))""")
        expected = {}
        for cause in process["causes"]:
            for site in cause["sites"]:
                row = expected.setdefault((site["mapping"] or "(nameless)", titles[cause["cause"]]), [0, 0])
                row[0] += site["growth"]
                row[1] += site["resident"]
        assert len(mappings) < 60
        assert {(name, cause): [growth, resident] for name, cause, growth, resident in mappings} == expected
        net = figures(page, "[data-testid=where-total]")["net"]
        assert net == process["rss"]["last"] - process["rss"]["first"]


def test_touchers_sum_to_the_causes(family, opened):
    page = opened(family[1])
    before = figures(page, "[data-testid=where-total]")["net"]
    icicle_text = page.run("document.querySelector('[data-testid=icicle-told]').textContent")
    for choice in ("touched by", "lines first", "with native"):
        page.run(f"[...document.querySelectorAll('#where button')].find(each => each.textContent === {json.dumps(choice)}).click()")
        page.wait(f"""[...document.querySelectorAll("#where button[aria-pressed=true]")].some(each =>
            each.textContent === {json.dumps(choice)})""")
        assert figures(page, "[data-testid=where-total]")["net"] == before
        assert page.run("document.querySelector('[data-testid=icicle-told]').textContent") == icicle_text


def test_copies_are_those_of_the_report(whyrss, family, opened):
    recording, page_file = family
    report = whyrss.report(recording)
    copying = [process for process in report["processes"] if process["cow"]["copied"] > 0]
    assert copying
    for process in copying:
        page = opened(page_file, f"#process={process['pid']}")
        page.run("[...document.querySelectorAll('#where button')].find(each => each.textContent === 'copied by').click()")
        page.wait("document.querySelector('[data-testid=where-total] [data-name=copied]') !== null")
        assert figures(page, "[data-testid=where-total]")["copied"] == process["cow"]["copied"]
        lines = page.run("""[...document.querySelectorAll("[data-testid=lines] tbody tr")].map(row =>
            [row.querySelector("button").textContent, Number(row.querySelector("[data-name=growth]").value)])""")
        assert sum(copied for _, copied in lines) == process["cow"]["copied"]
        unknown = sum(site["copied"] for site in process["cow"]["sites"] if not site["written_at"])
        assert sum(copied for line, copied in lines if line == "(not known by whom)") == unknown
        most = max(process["cow"]["sites"], key=lambda site: site["copied"])
        assert any(copied >= most["copied"] for _, copied in lines)


# Of 40 MB of blocks every 40th of the first half stays.
FRAGMENTED = """
import ctypes
snapshot = ctypes.CDLL(None).whyrss_snapshot
kept = [bytearray(1000) for _ in range(40000)]
snapshot()
del kept[20000:]
kept[:20000] = kept[:20000:40]
snapshot()
"""


def colours_of_pages(page, mapping):
    """colour -> part of the pixels of a mapping that have one."""
    counts = page.run(f"""(() => {{
        const row = [...document.querySelectorAll(".page-row")].find(each => each.textContent.includes({json.dumps(mapping)}));
        const canvas = row.querySelector("canvas"), copy = document.createElement("canvas"), counts = {{}};
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const pen = copy.getContext("2d", {{willReadFrequently: true}});
        pen.drawImage(canvas, 0, 0);
        const {{data}} = pen.getImageData(0, 0, copy.width, copy.height);
        for (let i = 0; i < data.length; i += 4) {{
            if (data[i + 3] === 0) continue;
            const colour = "#" + [0, 1, 2].map(j => data[i + j].toString(16).padStart(2, "0")).join("");
            counts[colour] = (counts[colour] || 0) + 1;
        }}
        return counts;
    }})()""")
    return {colour: count / sum(counts.values()) for colour, count in counts.items()}


def colours_of_causes(page):
    return dict(page.run("""[...document.querySelectorAll("[data-testid=pages-legend] .swatch")].map(each =>
        [each.parentElement.textContent, "#" + each.style.backgroundColor.match(/[0-9]+/g).slice(0, 3).map(
            value => Number(value).toString(16).padStart(2, "0")).join("")])"""))


def choose_moment(page, number):
    page.run(f"""(() => {{
        const slider = document.querySelector("[data-testid=moment]");
        slider.value = {number};
        slider.dispatchEvent(new Event("input", {{bubbles: true}}));
    }})()""")
    page.wait(f"document.querySelector('[data-testid=pictured]').textContent.includes(', {number + 1} of ')")


def test_a_fragmented_heap_is_seen(whyrss, tmp_path, opened):
    (tmp_path / "fragmented.py").write_text(FRAGMENTED)
    recording, page_file = written(whyrss, tmp_path, ["/usr/bin/python3", tmp_path / "fragmented.py"])
    pictures = json.loads(whyrss.report_text(recording, "--pages"))["processes"][0]["pages"]["pictures"]
    most = max(picture["rss"] for picture in pictures)
    page = opened(page_file)
    described = "document.querySelector('[data-testid=page-described]').textContent"

    rows = "document.querySelector('.page-row canvas').clientHeight"
    height = page.run(rows)
    page.run("document.querySelector('.page-row .link').click()")  # the heap
    page.wait(f"{rows} > {height}")
    causes = colours_of_causes(page)
    live, slack, retained = (causes[name] for name in ("live heap", "free beside live blocks, by their share of the page",
                                                       "heap kept by the allocator"))
    # The allocator keeps what is freed, and a walk that follows growth may come while it is: RSS is the same then.
    full = []
    for number, picture in enumerate(pictures):
        if picture["rss"] > 0.95 * most:
            choose_moment(page, number)
            full.append(colours_of_pages(page, "[heap]").get(live, 0))
    assert max(full) > 0.9
    choose_moment(page, len(pictures) - 1)
    emptied = colours_of_pages(page, "[heap]")
    assert emptied[retained] > 0.6 > 0.2 > emptied[live] and emptied[slack] > emptied[live]
    assert page.run(described).startswith("Point at")

    page.run("document.querySelector('[data-testid=pages]').focus()")
    page.key("ArrowRight")
    page.wait(f"{described}.startsWith('0x')")
    before = page.run(described)
    page.key("ArrowDown")
    page.wait(f"{described} !== {json.dumps(before)}")
    for name, wanted in (("line", "fragmented.py:4"), ("age", "new at the end"), ("file offset", "last")):
        page.run(f"[...document.querySelectorAll('.address-space .choice-group button')].find(each => each.textContent === '{name}').click()")
        page.wait(f"document.querySelector('[data-testid=pages-legend]').textContent.includes({json.dumps(wanted)})")
    choose_moment(page, 0)
    page.run("document.querySelector('.moment button').click()")
    page.wait(f"document.querySelector('[data-testid=pictured]').textContent.includes(', {len(pictures)} of {len(pictures)} ')")


def test_the_keyboard_alone(family, opened):
    _, page_file = family
    page = opened(page_file)
    for _ in range(200):
        page.key("Tab")
        if page.run("document.activeElement.dataset.testid === 'timeline'"):
            break
    assert page.run("document.activeElement.dataset.testid") == "timeline"
    whole = interval_shown(page)
    for _ in range(3):
        page.key("ArrowRight")
    for _ in range(5):
        page.key("ArrowRight", shift=True)
    page.wait("document.querySelector('[data-testid=interval]').textContent.startsWith('interval')")
    begin, end = map(float, interval_shown(page))
    assert float(whole[0]) < begin < end <= float(whole[1])
    page.key("ArrowLeft", shift=True)
    assert page.wait(f"Number(document.querySelector('[data-testid=interval]').dataset.to) < {end}")
    page.key("Escape")
    page.wait("document.querySelector('[data-testid=interval]').textContent.startsWith('whole')")

    page.key("/")
    assert page.run("document.activeElement.id") == "search"
    page.type("nothing is called so")
    page.wait("document.querySelector('[data-testid=lines] .empty')?.textContent === 'Nothing matches.'")
    page.run("document.getElementById('search').select()")
    page.type("in <module>")
    page.wait("document.querySelectorAll('[data-testid=lines] tbody tr').length > 1")

    page.run("document.querySelector('[data-testid=icicle]').focus()")
    icicle_text = page.run("document.querySelector('[data-testid=icicle-told]').textContent")
    assert icicle_text.startswith("all")
    page.key("ArrowDown")
    page.key("ArrowDown")
    page.key("Enter")
    page.wait("!document.querySelector('[data-testid=icicle-told]').textContent.startsWith('all')")
    page.key("Escape")
    page.key("ArrowUp")


def check_that_nothing_ran(page):
    """Nothing of what names hold, and nothing that is put in later."""
    assert page.run("typeof window.pwned") == "undefined"
    page.run("""document.body.insertAdjacentHTML("beforeend", "<p id=late onclick='window.pwned=6'>late</p>")""")
    page.run("document.getElementById('late').click()")
    assert page.run("typeof window.pwned") == "undefined"
    assert any("Content Security Policy" in complaint for complaint in page.complaints)
    page.complaints.clear()


def test_hostile_names_stay_text(whyrss, tmp_path, opened):
    command = ["/usr/bin/python3", "-c", HOSTILE, str(python_path(whyrss)), str(tmp_path), BREAKING, ENDING]
    _, page_file = written(whyrss, tmp_path, command)
    text = page_file.read_text()
    assert "pwned" not in text
    page = opened(page_file)
    for choice in ("resident", "lines first", "with native"):
        page.run(f"[...document.querySelectorAll('#where button')].find(each => each.textContent === {json.dumps(choice)}).click()")
    page.run("document.querySelectorAll('[data-testid=verdicts] button').forEach(each => each.click())")
    page.click("[data-testid=lines] tbody tr")
    shown = page.run("document.body.innerText")
    assert ENDING in shown and "\u202e" not in shown and "\x1b" not in shown
    assert page.run("document.body.innerHTML.includes('<b onclick')") is False
    assert page.run("[document.querySelectorAll('img, svg, b').length, document.querySelectorAll('script').length]") == [0, 2]
    assert page.run("document.querySelector('[data-testid=phases] button').title").startswith(BREAKING)
    check_that_nothing_ran(page)


def test_no_snapshot(whyrss, tmp_path, opened):
    recording = tmp_path / "job.whyrss"
    assert whyrss.record(recording, ["/usr/bin/python3", "-c", "x = bytearray(1 << 20)"]).returncode == 0
    for pages in recording.glob("*/pages.zst"):
        pages.unlink()
    page = opened(page_of(whyrss, recording))
    assert page.run("document.querySelector('[data-testid=timeline-empty]') !== null")
    assert page.run("document.querySelectorAll('[data-testid=totals] .unknown').length") > 0
    report = json.loads(whyrss.report_text(recording))
    assert page.run("document.querySelectorAll('[data-testid=verdicts] a').length") == len(report["verdicts"])


def test_one_short_process(whyrss, tmp_path, opened):
    recording, page_file = written(whyrss, tmp_path, ["/bin/true"])
    report = whyrss.report(recording)
    page = opened(page_file)
    assert page.run("document.querySelector('[data-testid=scope]')") is None
    if report["processes"][0]["rss"]["last"] is not None:
        check_process(page, report["processes"][0])


def check_fold(page, report, alike):
    """Of so many children alike three have rows; the others are behind one more, and each can be chosen."""
    rows = "document.querySelector('[data-testid=processes] table').getAttribute('aria-rowcount')"
    beside = len(report["processes"]) - alike
    assert page.run(rows) == str(1 + beside + 3 + 1)
    folded = [process for process in report["processes"] if process["rss"]["last"] is not None]
    shown = page.run(f"""[...document.querySelectorAll("[data-testid=processes] tbody tr")].filter(row =>
        row.innerText.includes('+{alike - 3} more like it')).map({FIGURES})""")
    peaks = sorted((process["rss"]["peak"] for process in folded), reverse=True)
    assert len(shown) == 1 and shown[0]["peak"] in peaks
    options = page.run("[...document.querySelectorAll('[data-testid=scope] option')].map(each => each.textContent.split(' ')[0])")
    assert sorted(map(int, options[1:])) == sorted(process["pid"] for process in report["processes"])
    page.run("document.querySelector('[data-testid=processes] button[aria-expanded]').click()")
    page.wait(f"{rows} === '{1 + beside + alike + 1}'")
    page.run("document.querySelector('[data-testid=processes] button[aria-expanded]').click()")
    page.wait(f"{rows} === '{1 + beside + 3 + 1}'")


FIGURES = """(row => Object.fromEntries([...row.querySelectorAll("data[data-name]")].map(each =>
    [each.dataset.name, Number(each.value)])))"""


def test_hundreds_of_short_processes(whyrss, tmp_path, opened):
    recording, page_file = written(whyrss, tmp_path, ["bash", "-c", "for i in {1..300}; do /bin/echo $i; done > /dev/null"])
    report = whyrss.report(recording)
    page = opened(page_file)
    alike = sum(process["command"][:1] == ["/bin/echo"] for process in report["processes"])
    assert alike > 280  # one may end before its exec is seen
    check_fold(page, report, alike)
    check_family(page, report)
    assert "the most in each" in page.run("document.querySelector('.legend').textContent")
    page.move("[data-testid=timeline] .u-over", 0.5)
    assert len(page.run("document.querySelector('[data-testid=events-at]').textContent")) < 100


def test_ten_thousand_processes(whyrss, tmp_path, opened):
    recording, command = tmp_path / "job.whyrss", ["bash", "-c", "for i in {1..10000}; do /bin/true; done"]
    assert whyrss.record(recording, command, timeout=5 * PATIENCE_S).returncode == 0  # a minute on two cores
    whyrss.wait_until_complete(recording)
    page_file = page_of(whyrss, recording)
    report = json.loads(whyrss.report_text(recording))
    alike = sum(process["command"][:1] == ["/bin/true"] for process in report["processes"])
    assert alike > 9_900  # one may end before its exec is seen
    page = opened(page_file)
    check_family(page, report)
    last = report["processes"][-1]
    choose(page, f"process={last['pid']}")
    if last["rss"]["last"] is not None:
        check_process(page, last)
    assert len(whyrss.run("report", recording).stdout.splitlines()) < 150


LOSING = """
import json, os, signal, sys
manifest = json.load(open(sys.argv[1] + "/manifest.json"))
print(manifest["pool_path"], flush=True)
kept = bytearray(b"x") * (10 << 20)
os.kill(manifest["collector"]["pid"], signal.SIGKILL)
for _ in range(400_000):
    last = bytearray(140_000)  # the one before goes after it has come: of neither is the record taken back
"""


def test_lost_events_stand_in_the_head(whyrss, tmp_path, opened):
    """The collector dies, and what the program does from then on fills the shared memory."""
    recording = tmp_path / "job.whyrss"
    result = whyrss.record(recording, ["/usr/bin/python3", "-c", LOSING, recording])
    pathlib.Path(result.stdout.split()[0]).unlink(missing_ok=True)
    report = json.loads(whyrss.report_text(recording))
    lost = report["recording"]["lost"]["events"]
    assert lost > 0 and not report["recording"]["complete"]
    page = opened(page_of(whyrss, recording))
    assert page.run("document.querySelector('[data-testid=lost]').textContent") == f"{lost:,} events lost: lines may be missing"
    assert "incomplete" in page.run("document.querySelector('header').textContent")
    check_family(page, report)


POOL = """
import multiprocessing, time
def keep(number):
    global kept
    kept = [bytes(1000) for _ in range(20000)]
    time.sleep(1)
with multiprocessing.Pool(8) as pool:
    pool.map(keep, range(8), 1)
"""


def test_verdicts_alike_are_folded_as_in_the_text(whyrss, tmp_path, opened):
    (tmp_path / "pool.py").write_text(POOL)  # a file: annotations name its lines
    recording, page_file = written(whyrss, tmp_path, ["/usr/bin/python3", tmp_path / "pool.py"])
    text = re.sub(r"\s+", " ", whyrss.run("report", recording).stdout)
    verdicts = whyrss.report(recording)["verdicts"]
    page = opened(page_file)
    sentences = page.run("[...document.querySelectorAll('[data-testid=verdicts] .alike > .verdict-head .headline')].map(each => each.textContent)")
    assert sentences and all(sentence in text for sentence in sentences)
    assert text.count("The same holds") == len(sentences)
    assert page.run("document.querySelectorAll('[data-testid=verdicts] a').length") < len(verdicts)
    page.run("document.querySelectorAll('[data-testid=verdicts] .alike button').forEach(each => each.click())")
    page.wait(f"document.querySelectorAll('[data-testid=verdicts] a').length === {len(verdicts)}")
    heads = page.run("[...document.querySelectorAll('[data-testid=verdicts] .process-head')].map(each => each.textContent)")
    folded = {int(pid) for each in sentences for pid in re.findall(r"pid (\d+) \(", each)}
    assert len(heads) == len({verdict["pid"] for verdict in verdicts} - folded - {None}) > 0
    assert all(re.sub(r"\s+", " ", head) in text for head in heads)
    annotations = whyrss.run("report", recording, "--format", "github").stdout
    assert sentences[0] in annotations
    for pid in folded:
        assert f"(pid {pid}): " not in annotations


def test_a_chosen_interval_stays_where_it_is_when_the_window_is_resized(family, opened):
    page = opened(family[1])
    place = """(() => {
        const {left, width} = document.querySelector("[data-testid=timeline] .u-select").style;
        const whole = document.querySelector("[data-testid=timeline] .u-over").clientWidth;
        return [parseFloat(left) / whole, parseFloat(width) / whole, whole];
    })()"""
    page.drag("[data-testid=timeline] .u-over", 0.3, 0.7)
    page.wait("document.querySelector('[data-testid=interval]').textContent.startsWith('interval')")
    before = page.run(place)
    for width in (1000, 500, 1400, 1280):
        page.resize(width, 900)
        page.wait(f"{place}[2] !== {before[2]}")
        after = page.run(place)
        assert after[:2] == pytest.approx(before[:2], abs=0.005)
        before = [*before[:2], after[2]]


ENDING_SLOWLY = "import atexit, time; kept = bytearray(b'x') * (20 << 20); atexit.register(time.sleep, 1); time.sleep(0.5)"


def test_teardown_is_shaded(whyrss, tmp_path, opened):
    recording, page_file = written(whyrss, tmp_path, ["/usr/bin/python3", "-c", ENDING_SLOWLY])
    (process,) = whyrss.report(recording)["processes"]
    page = opened(page_file)
    assert "teardown" in page.run("document.querySelector('.legend').textContent")
    page.move("[data-testid=timeline] .u-over", 0.01)
    begin = process["teardown_s"] / process["ended_s"]
    before, after = page.run(f"""(parts => {{
        const canvas = document.querySelector("[data-testid=timeline] canvas"), over = document.querySelector("[data-testid=timeline] .u-over");
        const row = canvas.getContext("2d").getImageData(0, over.offsetTop + 0.95 * over.clientHeight, canvas.width, 1).data;
        return parts.map(part => row.slice(4 * Math.round(over.offsetLeft + part * over.clientWidth / 1.005)).slice(0, 4).join());
    }})([{begin - 0.05}, {begin + 0.05}])""")
    assert before != after
    page.drag("[data-testid=timeline] .u-over", begin + 0.1, 1)
    page.wait("document.querySelector('[data-testid=interval]').textContent.startsWith('interval')")
    times = interval_shown(page)
    assert float(times[0]) >= process["teardown_s"] and float(times[1]) == pytest.approx(process["ended_s"], abs=0.1)
    (chosen,) = json.loads(whyrss.report_text(recording, "--from", times[0], "--to", times[1]))["processes"]
    check_process(page, chosen)


def test_what_other_tools_show_is_that_of_the_report(whyrss, family, opened):
    recording, page_file = family
    report = whyrss.report(recording)["family"]["accounting"]["at_peak"]
    shown = figures(opened(page_file), "[data-testid=at-cursor]")
    assert shown["top, ps: RES summed"] == report["rss_sum"] and shown["PSS"] == report["pss_sum"]
    assert shown["without files and shared memory"] == report["rss_less_shared"]
    assert shown["memory cgroup: usage"] == report["cgroup_usage"]
    assert shown["anonymous and shared memory of it"] == report["cgroup_held"]
    assert shown["file cache of it"] == report["cgroup_file"]


def in_other_colours(page_file, by):
    """The page, with the name of each cause, and so its colour, given to the one that stands `by` places before it."""
    text = page_file.read_text()
    begin = text.index(">", text.index('id="data"')) + 1
    end = text.index("<", begin)
    data = gzip.decompress(base64.b64decode(text[begin:end]))
    newline = data.index(b"\n")
    size = int(data[:newline])
    header = json.loads(data[newline + 1:newline + 1 + size])
    slugs = [cause["slug"] for cause in header["causes"]]
    for i, cause in enumerate(header["causes"]):
        cause["slug"] = slugs[(i + by) % len(slugs)]
    changed = json.dumps(header).encode()
    packed = gzip.compress(b"%d\n" % len(changed) + changed + data[newline + 1 + size:], 1)
    output = page_file.with_name("colours.html")
    output.write_text(text[:begin] + base64.b64encode(packed).decode() + text[end:])
    return output, slugs


def luminance(colour):
    channels = [int(colour[at:at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


# Each label that is drawn over a box of the icicle, with the colour of the box and its own.
LABELS = """
window.labels = [];
const fillRect = CanvasRenderingContext2D.prototype.fillRect, fillText = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillRect = function (...place) {
    if (typeof this.fillStyle === "string") this.box = this.fillStyle;
    return fillRect.apply(this, place);
};
CanvasRenderingContext2D.prototype.fillText = function (...place) {
    if (this.canvas.dataset.testid === "icicle") window.labels.push([place[0], this.box, this.fillStyle, this.globalAlpha]);
    return fillText.apply(this, place);
};
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_labels_of_the_icicle_can_be_read_on_every_colour(family, browser, tmp_path, theme):
    page_file = tmp_path / "page.html"
    page_file.write_text(family[1].read_text())
    page = browser.new_page()
    page.resize(1280, 900, theme)
    page.ask("Page.addScriptToEvaluateOnNewDocument", source=LABELS)
    boxes, by = set(), 0
    while True:
        output, slugs = in_other_colours(page_file, by)
        page.open(output)
        page.run("document.getElementById('search').focus()")
        page.type("load")
        page.wait("document.querySelector('[data-testid=matched]') !== null")
        labels = page.run("window.labels")
        for text, box, ink, alpha in labels:
            assert alpha == 1 and contrast(box, ink) >= 4.5, (text, box, ink, contrast(box, ink))
            boxes.add(box)
        by += 1
        if by == len(slugs):
            break
    assert len(boxes) > 2 * len(slugs)


def test_colours_are_printed(family, browser):
    page = browser.new_page()
    page.open(family[1])
    page.ask("Emulation.setEmulatedMedia", media="print")
    assert page.run("getComputedStyle(document.querySelector('.causes .swatch')).printColorAdjust") == "exact"
    page.run("window.dispatchEvent(new Event('beforeprint'))")
    heads = page.run("[...document.querySelectorAll('[data-testid=lines] th')].map(each => [each.textContent, each.querySelector('button')])")
    assert ["growth", None] in heads  # what stands in a button is not drawn again on the next page


def test_a_kill_and_many_processes(whyrss, tmp_path, opened):
    program = """
import os, signal, sys, time
kept = bytearray(b"x") * (20 << 20)
for number in range(60):
    if os.fork() == 0:
        own = bytearray(b"y") * (number << 14)
        os._exit(0)
    if number % 4 == 3:
        for each in range(4):
            os.wait()
time.sleep(0.3)
os.kill(os.getpid(), signal.SIGKILL)
"""
    recording = tmp_path / "job.whyrss"
    assert whyrss.record(recording, ["/usr/bin/python3", "-c", program]).returncode == -signal.SIGKILL
    whyrss.wait_until_complete(recording)
    report = whyrss.report(recording)
    page = opened(page_of(whyrss, recording))
    assert len(report["processes"]) == 61
    check_family(page, report)
    check_fold(page, report, 60)
    for process in report["processes"][::10]:
        choose(page, f"process={process['pid']}")
        if process["rss"]["last"] is not None:
            check_process(page, process)
    choose(page, "all")
    assert page.run("""document.querySelector(".legend").textContent.includes("kill")""")
    assert page.run("document.querySelector('header').textContent.includes('SIGKILL')")


def check_fits_and_can_be_read(browser, width, theme, *place):
    """The page at `place` is no wider than the window, in the theme that is asked for, and axe finds nothing."""
    page = browser.new_page()
    page.resize(width, 900, theme)
    page.ask("Page.setBypassCSP", enabled=True)  # for axe, which is no part of the page
    page.open(*place)
    assert page.run("document.documentElement.scrollWidth") <= width
    assert page.run("document.documentElement.dataset.theme") == theme
    assert page.run("""[...document.querySelectorAll(".causes, .causes .link, .legend span, .facts, .told")].filter(each =>
        each.clientWidth > 0 && each.scrollWidth > each.clientWidth).map(each => each.textContent)""") == []
    if not AXE.exists():
        pytest.skip("axe-core is not there: npm ci in analyzer/web")
    page.run(AXE.read_text() + "; 0")
    page.run("document.querySelectorAll('[aria-expanded=false]').forEach(each => each.click())")
    found = page.run("axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map(each => "
                     "[each.id, each.impact, each.nodes.slice(0, 3).map(node => node.html.slice(0, 200))]))")
    assert found == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_fits_and_can_be_read_by_all(family, browser, width, theme):
    check_fits_and_can_be_read(browser, width, theme, family[1])


def test_a_program_in_the_command_line_is_one_line(family, opened):
    page = opened(family[1])
    for shown in ("h1", "[data-testid=processes] tbody button", "[data-testid=scope] option:nth-child(2)"):
        text = page.run(f"document.querySelector({json.dumps(shown)}).textContent")
        assert "import os, sys, time sys.path" in text or len(text) < 60
        assert "\ufffd" not in text


def test_where_it_is_written(whyrss, family, tmp_path):
    recording, page_file = family
    result = whyrss.run("html", recording, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "job.html\n", "")
    assert (tmp_path / "job.html").read_text() == page_file.read_text()
    result = whyrss.run("html", recording, "-o", "-")
    assert result.stdout == page_file.read_text()
    result = whyrss.run("html", tmp_path / "none")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    result = whyrss.run("html", recording, "-o", tmp_path / "no" / "page.html")
    assert result.returncode == 1 and result.stderr.count("\n") == 1
    assert whyrss.run("html").returncode == 2
    assert whyrss.run("html", "--help", timeout=PATIENCE_S).returncode == 0
