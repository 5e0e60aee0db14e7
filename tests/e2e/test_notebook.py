"""%%whyrss in kernels and in IPython: cells with their own names and lines, figures as in the report, errors as ever."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S
from expected.report_reading import read_report
from interpreters import DEBIAN

jupyter_client = pytest.importorskip("jupyter_client", reason="no ipykernel for Debian's python3 (python3-ipykernel)")
pytest.importorskip("ipykernel", reason="no ipykernel for Debian's python3 (python3-ipykernel)")

MIB = 1 << 20
SETUP = "import whyrss\n%load_ext whyrss"
HELPER = "def keep(n):\n    return [bytes(1000) for _ in range(n)]"
CELL = "%%whyrss\nx = 1\nrows = keep(60000)\nlen(rows)"


@pytest.fixture
def folder(whyrss):
    return whyrss.shim.parent / "python"


@contextlib.contextmanager
def kernel(command, environment, cwd):
    """run(CELL) -> list of (type of a message, its content), of a kernel that the command starts."""
    manager = jupyter_client.KernelManager()
    manager._kernel_spec = jupyter_client.kernelspec.KernelSpec(argv=[*map(str, command)], display_name="", language="python")
    manager.start_kernel(env=environment, cwd=str(cwd))
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=PATIENCE_S)

        def run(cell):
            messages = []
            # Else the kernel drops what comes right after an error.
            client.execute_interactive(cell, timeout=PATIENCE_S, stop_on_error=False, output_hook=lambda message:
                                       messages.append((message["msg_type"], message["content"])))
            return messages
        yield run
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=False)


def displayed(messages):
    return [content["data"] for kind, content in messages if kind == "display_data"]


def texts(messages, form="text/plain"):
    return [data[form] for data in displayed(messages) if form in data and "<iframe" not in data.get("text/html", "")]


def pages(messages):
    """The files that IFrames show."""
    return [re.search(r'src="([^"]+)"', data["text/html"])[1] for data in displayed(messages) if "<iframe" in data.get("text/html", "")]


def streams(messages, name):
    return "".join(content["text"] for kind, content in messages if kind == "stream" and content["name"] == name)


def errors(messages):
    return [(content["ename"], content["evalue"]) for kind, content in messages if kind == "error"]


def results(messages):
    return [content["data"]["text/plain"] for kind, content in messages if kind == "execute_result"]


@pytest.fixture
def installed(whyrss, folder, tmp_path):
    """The kernel that `install` adds, run as Jupyter does; the folder of its recordings is tmp_path/home/.cache/whyrss."""
    assert whyrss.program.is_file()
    home = tmp_path / "home"
    home.mkdir()
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith(("JUPYTER", "XDG_", "PYTHONPATH", "WHYRSS_", "LD_PRELOAD"))}
    environment["HOME"] = str(home)
    done = subprocess.run([DEBIAN, "-B", folder / "whyrss_ipython.py", "install"], env=environment, capture_output=True, text=True,
                          check=False)
    assert (done.returncode, done.stderr) == (0, "")
    spec = json.loads((home / ".local/share/jupyter/kernels/whyrss-python3/kernel.json").read_text())
    assert spec["display_name"] == "Python 3 (whyrss)" and spec["display_name"] in done.stdout

    @contextlib.contextmanager
    def start(**more):
        with kernel(spec["argv"], {**environment, **more}, tmp_path) as run:
            yield run
    return start


def recordings(tmp_path):
    return sorted((tmp_path / "home/.cache/whyrss").glob("kernel-*"))


def report(whyrss, recording, phase):
    result = whyrss.run("report", recording, "--format", "json", "--from=" + phase, "--to=" + phase)
    assert result.returncode == 0, result.stderr
    return read_report(result.stdout)


def test_a_cell_has_its_name_and_its_lines(whyrss, installed, tmp_path):
    with installed() as run:
        assert run(SETUP)
        run(HELPER)
        messages = run(CELL)
        assert errors(messages) == [] and results(messages) == ["60000"]
        (text,), (markdown,) = texts(messages), texts(messages, "text/markdown")
        assert text.startswith("In[3]: RSS +") and "whyrss" not in streams(messages, "stderr")
        assert re.search(r"live Python objects \(.*made at In\[2\]:2 in keep", text), text
        assert not re.search(r"\d{6,}\.py", text)
        assert "In\\[2]:2 in keep" in markdown and "| ---: |" in markdown and "Processes" not in markdown

        (page,) = pages(messages)
        assert "<!doctype html>" in (tmp_path / page).read_text()[:100].lower()

        direct = run("%%whyrss\n\n\nbig = bytearray(50 << 20)")  # lines count from the magic's
        (text,) = texts(direct)
        assert "In[4]:4 in <module>" in text, text
        assert results(run("len(rows), len(big), In[3].count('keep')")) == [f"(60000, {50 << 20}, 1)"]
        (recording,) = recordings(tmp_path)
    whyrss.wait_until_complete(recording)

    # Later the report says the same, of the whole recording and with all figures.
    found = report(whyrss, recording, "In[3]")
    assert [phase["name"] for phase in found["phases"]] == ["In[3]", "In[4]"]
    rss = found["processes"][0]["rss"]
    shown = re.match(r"In\[3\]: RSS \+([0-9.]+) MiB in [0-9.]+ s, at most \+([0-9.]+) MiB", texts(messages)[0])
    assert shown.groups() == (f"{(rss['last'] - rss['first']) / MIB:.1f}", f"{(rss['peak'] - rss['first']) / MIB:.1f}")
    (live,) = [cause for cause in found["processes"][0]["causes"] if cause["cause"] == "heap_live"]
    assert 56 * MIB <= live["growth"]["rss"] <= 66 * MIB
    (row,) = re.findall(r"live heap +([0-9.]+) +([0-9.]+) +", texts(messages)[0].split("Over time")[0])
    assert row == (f"{live['rss']['last'] / MIB:.1f}", f"{live['growth']['rss'] / MIB:.1f}")
    files = {frame["file"] for cause in found["processes"][0]["causes"] for site in cause["sites"] for frame in site["stack"]}
    assert {"In[2]", "In[3]"} <= files


def test_errors_fail_the_cell_once(installed):
    with installed() as run:
        run(SETUP)
        messages = run("%%whyrss 'with a name'\nbig = bytearray(30 << 20)\n1 / 0")
        assert errors(messages) == [("ZeroDivisionError", "division by zero")]
        assert texts(messages)[0].startswith("with a name: RSS +30.")
        trace = next(content for kind, content in messages if kind == "error")["traceback"]
        assert re.search(r"-> 3\S* .*1.*/.*0", "\n".join(trace)), trace
        assert [name for name, _ in errors(run("%%whyrss\nx = = 2"))] == ["SyntaxError"]
        assert [name for name, _ in errors(run("%%whyrss\nraise SystemExit(3)"))] == ["SystemExit"]
        assert results(run("big[0]")) == ["0"]
        assert "unrecognized arguments: --nonsense" in streams(run("%%whyrss --nonsense\n1"), "stderr")
        assert "No closing quotation" in streams(run("%%whyrss 'a\n1"), "stderr")
        assert "a cell that awaits" in streams(run("%%whyrss\nimport asyncio\nawait asyncio.sleep(0)"), "stderr")
        assert "usage: %%whyrss" in streams(run("%%whyrss --help\n1"), "stdout")


def test_options_and_other_magics(installed):
    with installed() as run:
        run(SETUP)
        assert pages(run("%%whyrss --no-html\nx = 1")) == []
        (text,) = texts(run("%%whyrss --full\nx = 1"))
        assert "Processes, MiB" in text and "What other tools show" in text
        timed = run("%%whyrss\n%%time\nbig = bytearray(30 << 20)")
        assert "Wall time" in streams(timed, "stdout") and "RSS +30." in texts(timed)[0]
        assert texts(run("%%whyrss same\nx = 1"))[0].startswith("same: ")
        assert texts(run("%%whyrss same\nx = 1"))[0].startswith("same (2): ")
        run("%reload_ext whyrss")
        assert texts(run("%%whyrss same\nx = 1"))[0].startswith("same (3): ")


def test_workers_of_a_cell(installed):
    with installed() as run:
        run(SETUP)
        run("%%whyrss\nx = 1")
        cell = ("%%whyrss\nimport subprocess, sys, time\n"
                "worker = subprocess.Popen([sys.executable, '-c', 'x = bytearray(60 << 20); print(1, flush=True); input()'],"
                " stdin=subprocess.PIPE, stdout=subprocess.PIPE)\nworker.stdout.readline()\ntime.sleep(1)")
        (text,) = texts(run(cell))
        assert re.search(r"6\d MiB live Python objects \(.*made at <string>:1 in <module>", text), text
        run("worker.communicate()")


def test_below_whyrss_record(whyrss, folder, recording, tmp_path):
    command = [whyrss.program, "record", "-q", "-o", recording, "--", DEBIAN, "-m", "ipykernel_launcher", "-f",
               "{connection_file}"]
    with kernel(command, {**os.environ, "PYTHONPATH": str(folder)}, tmp_path) as run:
        run(SETUP)
        run(HELPER)
        (text,) = texts(run(CELL))
        assert "In[2]:2 in keep" in text, text
    assert "In[3]" in {phase["name"] for phase in whyrss.finished_report(recording)["phases"]}


def test_an_environment_alone(whyrss, folder, tmp_path):
    """The recording's name has a token, which the environment of the kernel still has."""
    command = [DEBIAN, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    environment = whyrss.env_only(tmp_path / "[a]*-%p.whyrss", PYTHONPATH=str(folder))
    with kernel(command, environment, tmp_path) as run:
        run(SETUP)
        run(HELPER)
        assert "In[2]:2 in keep" in texts(run(CELL))[0]


def test_a_kernel_without_the_library_runs_the_cell_and_says_what_to_do(folder, tmp_path):
    with kernel([DEBIAN, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
                {**os.environ, "PYTHONPATH": str(folder)}, tmp_path) as run:
        run(SETUP)
        run(HELPER)
        messages = run(CELL)
        assert results(messages) == ["60000"] and texts(messages) == [] and errors(messages) == []
        said = [line for line in streams(messages, "stderr").splitlines() if line]
        assert len(said) == 1 and said[0].startswith("whyrss: this kernel runs without whyrss's library")
        command = re.search(r"which `(.*?) install` adds", said[0])[1].split()
        assert all(pathlib.Path(word).is_file() for word in command)
        assert [name for name, _ in errors(run("%%whyrss\n1 / 0"))] == ["ZeroDivisionError"]


def test_a_recording_that_cannot_be_read_costs_the_report_only(installed, tmp_path):
    with installed() as run:
        run(SETUP)
        (recording,) = recordings(tmp_path)
        shutil.rmtree(recording)
        messages = run("%%whyrss\nx = 3\nx")
        assert results(messages) == ["3"] and errors(messages) == [] and texts(messages) == []
        assert streams(messages, "stderr").startswith("whyrss: no report of In[2]: "), messages


def test_what_is_preloaded_already_stays(installed, compile_c):
    library = compile_c("int whyrss_test_marker(void) { return 7; }\n", "-shared", "-fPIC", name="other")
    with installed(LD_PRELOAD=str(library)) as run:
        run(SETUP)
        assert results(run("import ctypes; ctypes.CDLL(None).whyrss_test_marker()")) == ["7"]
        assert texts(run("%%whyrss\nx = 1"))


def test_without_the_library_the_installed_kernel_starts_all_the_same(folder, tmp_path):
    bare = tmp_path / "lib" / "python"
    shutil.copytree(folder, bare, ignore=shutil.ignore_patterns("__pycache__"))
    command = [DEBIAN, bare / "whyrss_ipython.py", "kernel", "-f", "{connection_file}"]
    with kernel(command, {**os.environ, "PATH": "/usr/bin:/bin"}, tmp_path) as run:
        run(SETUP)
        assert results(run("1 + 1")) == ["2"]
        assert "runs without whyrss's library" in streams(run("%%whyrss\nx = 1"), "stderr")


def test_plain_ipython(whyrss, folder, recording, tmp_path):
    cells = [SETUP, HELPER, CELL]
    program = "; ".join(f"get_ipython().run_cell({cell!r}, store_history=True)" for cell in cells)
    result = whyrss.record(recording, [DEBIAN, "-m", "IPython", "--no-banner", "--colors=NoColor", "-c", program], cwd=tmp_path,
                           env={**os.environ, "PYTHONPATH": str(folder), "IPYTHONDIR": str(tmp_path / "ipython")})
    assert result.returncode == 0, result.stderr
    assert re.search(r"In\[\d\]: RSS \+", result.stdout) and re.search(r"In\[\d\]:2 in keep", result.stdout), result.stdout
    assert "<ipython-input" not in result.stdout


def test_installing(folder, tmp_path):
    def install(*options, **more):
        return subprocess.run([DEBIAN, "-B", folder / "whyrss_ipython.py", "install", *map(str, options)], capture_output=True,
                              text=True, check=False, env={**os.environ, "HOME": str(tmp_path), **more})
    assert install("--prefix", tmp_path / "venv", "--name", "mine").returncode == 0
    assert (tmp_path / "venv/share/jupyter/kernels/mine/kernel.json").is_file()
    assert install(JUPYTER_DATA_DIR=str(tmp_path / "data")).returncode == 0
    assert (tmp_path / "data/kernels/whyrss-python3/kernel.json").is_file()
    assert install("--name", "../up").returncode == 2
    assert "(whyrss, exact)" in install("--mode", "exact").stdout
    exact = json.loads((tmp_path / ".local/share/jupyter/kernels/whyrss-python3-exact/kernel.json").read_text())
    assert exact["env"] == {"WHYRSS_OPTS": "mode=exact"}
    (tmp_path / "file").write_text("")
    failed = install("--prefix", tmp_path / "file")
    assert failed.returncode == 1 and re.fullmatch("whyrss: cannot install the kernel: .*\n", failed.stderr)
