"""Which line a headline names: the program's own, not the library, allocator or start-up code that lies inside or
outside of it; and what it says of a program whose names are not to be had."""
import re
import shutil
import subprocess

import pytest

from conftest import line_of
from figure_off import assert_near

PYTHON = "/usr/bin/python3"

DATACLASS = """
import dataclasses
@dataclasses.dataclass
class Point:
    x: int
    label: str
kept = []
def grow():
    for i in range(60_000):
        kept.append(Point(i << 20, f"label {i} {i * 3}"))  # keeps
grow()
"""

JSON_CACHE = """
import json
cache = {}
def load(i):
    return json.loads('{"id": %d, "tags": ["%s", "%s"], "text": "%s"}' % (i, i, i * 3, str(i) * 20))  # keeps
def fill():
    for i in range(20_000):
        cache[i] = load(i)
fill()
"""

SERVER = """
import http.server, threading, urllib.request
sessions = {}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        sessions[self.path] = bytearray(200_000)  # keeps
        self.send_response(200)
        self.end_headers()
    def log_message(self, *arguments):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever).start()
for i in range(200):
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/{i}").read()
server.shutdown()
"""

STORE = """
import json
items = []
def keep(i):
    items.append(json.loads('["%s", "%s", {"id": %d}]' % (i, i * 7, i)))  # keeps
"""
COMMAND_LINE = """
from installed_job import store
def main():
    for i in range(60_000):
        store.keep(i)
"""
LAUNCHER = f"""#!{PYTHON}
import re
import sys
from installed_job.command_line import main
if __name__ == '__main__':
    sys.exit(main())
"""

STRIPPED = r"""
#include <stdlib.h>
#include <string>
#include <vector>
static std::vector<std::string> kept;
__attribute__((noinline)) static void grow(int count) {
  for (int i = 0; i < count; ++i) kept.push_back(std::string(3000, 'x'));  // keeps
}
int main(int argc, char**) {
  grow(10000 * argc);
  return kept.size() != 10000;
}
"""

# Numpy's import leaves some 10 MiB, and the library some 16 MiB of code.
IMPORTS = """
import numpy
kept = [("row %d" % i, [i]) for i in range(400_000)]  # keeps
"""

POOL = r"""
#include <cstdlib>
#include <cstring>
#include <vector>
struct Pool {
  __attribute__((noinline)) void* allocate(std::size_t size) { return std::memset(std::malloc(size), 1, size); }
} pool;
__attribute__((noinline)) void* index() { return pool.allocate(1 << 20); }
__attribute__((noinline)) void* image() { return pool.allocate(3 << 20); }  // keeps
int main() {
  std::vector<void*> kept;
  for (int i = 0; i < 30; ++i) {
    kept.push_back(index());
    kept.push_back(image());
  }
  return kept.size() != 60;
}
"""


def headline(whyrss, recording, verdict="heap-growth"):
    report = whyrss.finished_report(recording)
    (found,) = [entry for entry in report["verdicts"] if entry["id"] == verdict]
    return found["headline"]


def heap_headline(whyrss, recording, command, *options, **more):
    result = whyrss.record(recording, command, *options, **more)
    assert result.returncode == 0, result.stderr
    return headline(whyrss, recording)


@pytest.mark.parametrize("name, source, function", [
    ("dataclass", DATACLASS, "grow"), ("json", JSON_CACHE, "load"), ("server", SERVER, r"(Handler\.)?do_GET")],
    ids=["dataclass", "json", "server"])
def test_the_line_of_the_job_that_keeps(whyrss, recording, tmp_path, name, source, function):
    script = tmp_path / f"job_{name}.py"
    script.write_text(source)
    said = heap_headline(whyrss, recording, [PYTHON, script], "--mode", "exact")
    assert re.search(rf"\((most )?made at job_{name}\.py:{line_of(source, '# keeps')} in {function}[:)]", said), said


# Nothing of this file is on the stacks of the threads that do the work.
THREAD_POOL = """
import concurrent.futures, json
text = json.dumps([{"name": "row %d" % i, "values": [i, i + 0.5]} for i in range(40_000)])
with concurrent.futures.ThreadPoolExecutor(2) as executor:
    kept = list(executor.map(json.loads, [text] * 3))  # keeps
"""


@pytest.mark.parametrize("mode", ["sampled", "exact"])
def test_a_pool_of_threads_has_the_line_that_started_it(whyrss, recording, tmp_path, mode):
    script = tmp_path / "pool.py"
    script.write_text(THREAD_POOL)
    said = heap_headline(whyrss, recording, [PYTHON, script], "--mode", mode)
    where = rf"by a thread that pool\.py:{line_of(THREAD_POOL, '# keeps')} in <module> started"
    assert re.search(rf"\((most )?made {where}[:)]", said), said


# In a thread that a thread of the library starts, for each client.
MANAGER = """
import multiprocessing, time
def fill(shared):
    for number in range(24):
        shared[number] = bytes(1 << 20)
if __name__ == "__main__":
    manager = multiprocessing.Manager()  # keeps
    shared = manager.dict()
    worker = multiprocessing.Process(target=fill, args=(shared,))
    worker.start()
    worker.join()
    time.sleep(0.5)
"""


def test_what_a_manager_keeps_has_the_line_that_made_it(whyrss, recording, tmp_path):
    script = tmp_path / "shared.py"
    script.write_text(MANAGER)
    whyrss.record(recording, [PYTHON, script])
    said = [verdict["headline"] for verdict in whyrss.finished_report(recording)["verdicts"]]
    # It frees it all as it ends, of which malloc may keep much: then it was received, and is "last allocated" there.
    where = rf"(received|last allocated) by a process that shared\.py:{line_of(MANAGER, '# keeps')} in <module> started"
    assert any(re.search(where, line) for line in said), said


RESULTS = """
import concurrent.futures, sys
def work(number):
    return ["%d %d" % (number, i) + "x" * 1000 for i in range(1000)]
if __name__ == "__main__":
    kept = []
    with concurrent.futures.ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(work, number) for number in range(40)]  # keeps
        if sys.argv[1] == "keep":
            kept = [future.result() for future in futures]
        while sys.argv[1] == "drop" and futures:
            len(futures.pop(0).result())
"""


def test_results_of_workers_are_taken_one_by_one(whyrss, recording, tmp_path):
    """With the advice taken."""
    script = tmp_path / "results.py"
    script.write_text(RESULTS)
    kept = {}
    for way in ("keep", "drop"):
        whyrss.record(recording, [PYTHON, script, way], "-f")
        report = whyrss.finished_report(recording)
        kept[way] = report
    verdict = kept["keep"]["verdicts"][0]
    assert verdict["id"] == "heap-growth" and verdict["evidence"]["received"], verdict["headline"]
    assert "as the results of their tasks" in verdict["why"] and "as it comes and drop it" in verdict["advice"]
    assert_near(verdict["bytes"], 40_000 * 1072, 0.1 * 40_000 * 1072)  # of malloc, with their headers
    assert kept["drop"]["processes"][0]["rss"]["peak"] <= kept["keep"]["processes"][0]["rss"]["peak"] - 20e6


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize("folder", ["lib/python3/dist-packages", "venv/lib/python3.11/site-packages"])
def test_a_program_that_was_installed(whyrss, recording, tmp_path, folder, way):
    """As pip and Debian install it: all of its code lies where libraries do, and a script in bin calls its main()."""
    package = tmp_path / folder / "installed_job"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "store.py").write_text(STORE)
    (package / "command_line.py").write_text(COMMAND_LINE)
    (package / "__main__.py").write_text("from installed_job.command_line import main\nmain()\n")
    script = tmp_path / "bin" / "job"
    script.parent.mkdir()
    script.write_text(LAUNCHER)
    script.chmod(0o755)
    command = [script] if way == "script" else [PYTHON, "-m", "installed_job"]
    text = heap_headline(whyrss, recording, ["env", f"PYTHONPATH={package.parent}", *command], "--mode", "exact")
    assert f"made at installed_job/store.py:{line_of(STORE, '# keeps')} in keep" in text, text


PACKAGE = """
def make(mib):
    return [bytearray(1 << 20) for _ in range(mib)]  # makes
"""
USER = """
import packaged
def load():
    return packaged.make(40)  # asks
kept = load()
"""


@pytest.mark.parametrize("beside", [False, True], ids=["apart", "beside"])
@pytest.mark.parametrize("path", ["deps", "relative:/absent:{}/deps"])
def test_packages_in_a_folder_of_pythonpath(whyrss, recording, tmp_path, path, beside):
    """pip install --target: nothing of their names says that they are packages; a program may lie beside them."""
    folder = tmp_path / "deps"
    (folder / "packaged").mkdir(parents=True)
    (folder / "packaged-1.0.dist-info").mkdir()
    (folder / "packaged" / "__init__.py").write_text(PACKAGE)
    script = (folder if beside else tmp_path) / "user.py"
    script.write_text(USER)
    found = heap_headline(whyrss, recording, ["env", "-C", tmp_path, f"PYTHONPATH={path.format(tmp_path)}", PYTHON, script])
    line = f"__init__.py:{line_of(PACKAGE, '# makes')}" if beside else f"user.py:{line_of(USER, '# asks')} in load"
    assert f"made at {line}" in found, found


def test_arenas_are_not_said_to_be_kept_by_who_made_them_grow(whyrss, recording, tmp_path):
    script = tmp_path / "dataclass.py"
    script.write_text(DATACLASS)
    text = heap_headline(whyrss, recording, [PYTHON, script], "--python-objects", "off")
    assert re.search(r"live Python objects \((most )?in arenas mapped at dataclass\.py:\d+ in grow", text), text
    assert "kept" not in text


def lines_at(program, address):
    """The lines at an address, those of inlined calls too."""
    found = subprocess.run(["addr2line", "-i", "-e", str(program), address], capture_output=True, text=True, check=True)
    return [line.split(" ")[0] for line in found.stdout.splitlines()]


def test_a_stripped_program_is_named_by_its_offset(whyrss, recording, compile_c, tmp_path):
    if not shutil.which("strip") or not shutil.which("addr2line"):
        pytest.skip("strip and addr2line are not both installed")
    program = compile_c(STRIPPED, compiler="g++")
    stripped = tmp_path / "stripped"
    subprocess.run(["strip", "-o", stripped, program], check=True)
    text = heap_headline(whyrss, recording, [stripped])
    found = re.search(r"in stripped\+(0x[0-9a-f]+)", text)
    assert found, text
    assert f"{tmp_path}/program.cc:{line_of(STRIPPED, 'keeps')}" in lines_at(program, found[1])


@pytest.mark.parametrize("build_id", ["sha1", "none"])
@pytest.mark.parametrize("then", ["built again", "removed"])
def test_a_program_that_is_gone(whyrss, recording, compile_c, tmp_path, build_id, then):
    """Another build has other lines at these addresses, whether it has a build id or not."""
    program = compile_c(STRIPPED, f"-Wl,--build-id={build_id}", compiler="g++")
    kept = tmp_path / "kept"
    shutil.copy2(program, kept)
    text = heap_headline(whyrss, recording, [program])
    assert f"program.cc:{line_of(STRIPPED, 'keeps')} in grow" in text, text
    # Names that were stored with the recording are those of the build that ran.
    (recording / "symbols.zst").unlink(missing_ok=True)
    if then == "removed":
        program.unlink()
    else:
        more = "".join(f"int other_{i}(int a) {{ return a * a + {i}; }}\n" for i in range(20))
        other = STRIPPED.replace("static std::vector", more + "static std::vector")
        deadline = program.stat().st_mtime + 3600  # later than any clock rounds
        compile_c(other, f"-Wl,--build-id={build_id}", compiler="g++")
        subprocess.run(["touch", "-d", f"@{int(deadline)}", str(program)], check=True)
    text = headline(whyrss, recording)
    found = re.search(r"in program\+(0x[0-9a-f]+)", text)
    assert found, text
    assert f"{tmp_path}/program.cc:{line_of(STRIPPED, 'keeps')}" in lines_at(kept, found[1])
    said = {"removed": "not here", "sha1": "build id differs", "none": "newer than the recording"}
    assert said["removed" if then == "removed" else build_id] in whyrss.run("report", recording).stdout


def test_imports_do_not_hide_what_the_job_keeps(whyrss, recording, tmp_path):
    pytest.importorskip("numpy")
    script = tmp_path / "job.py"
    script.write_text(IMPORTS)
    assert whyrss.record(recording, [PYTHON, script]).returncode == 0
    report = whyrss.finished_report(recording)
    first, *others = report["verdicts"]
    assert f"job.py:{line_of(IMPORTS, 'keeps')} in" in first["headline"] and first["id"] == "heap-growth", first
    assert first["bytes"] == first["evidence"]["growth_bytes"] - first["evidence"]["import_bytes"]
    assert 80 << 20 <= first["bytes"] <= 110 << 20
    # What was there before the first line of the job stands last.
    last = [verdict["id"] for verdict in others[-2:]]
    assert sorted(last) == ["imports", "library-code"], report["verdicts"]
    imports = others[-2 + last.index("imports")]
    assert imports["evidence"]["modules"][0]["module"] == "numpy"
    assert 4 << 20 <= imports["bytes"] <= 40 << 20
    text = " ".join(whyrss.run("report", recording).stdout.split())
    assert re.search(r"RSS \+\d+ MiB in [\d.]+ s = \d+ live \+ \d+ library code \+ \d+ imports", text), text[:200]


def test_who_asks_a_pool_is_named(whyrss, recording, compile_c):
    sentence = heap_headline(whyrss, recording, [compile_c(POOL, compiler="g++")])
    assert f"program.cc:{line_of(POOL, 'keeps')} in image(): 90 MiB" in sentence, sentence
