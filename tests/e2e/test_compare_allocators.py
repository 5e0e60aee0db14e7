"""`whyrss compare-allocators`: the command under every allocator, and nothing left behind."""
import json
import pathlib
import signal
import subprocess

import jsonschema
import pytest
from conftest import PATIENCE_S, ROOT, is_running, wait_until
from test_heap_account import ARROW_POOL, WITH_POOL

MIB = 1 << 20
SCHEMA = json.loads((ROOT / "analyzer/report/compare/compare.schema.json").read_text())

# 48 MiB of small blocks; all but the first and the last go again: glibc cannot shrink its heap, malloc_trim can.
RETAINING = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { kCount = 240 * 1024, kSize = 200 };
static char* blocks[kCount];
int main(void) {
  for (int i = 0; i < kCount; ++i) memset(blocks[i] = malloc(kSize), 1, kSize);
  for (int i = 1; i < kCount - 1; ++i) free(blocks[i]);
  puts("said by the program");
  return getenv("FAIL_UNDER") != NULL && strstr(getenv("LD_PRELOAD") ? getenv("LD_PRELOAD") : "", getenv("FAIL_UNDER")) ? 3 : 0;
}
"""

SLEEPER = r"""
#include <fcntl.h>
#include <unistd.h>
int main(int count, char** words) {
  if (fork() == 0) setsid();  /* survives what the terminal sends */
  close(open(words[1], O_CREAT | O_WRONLY, 0600));
  while (1) sleep(1);
}
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The directory for temporary files, which a test reads afterwards."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def processes_naming(text):
    """The running processes whose command line names `text`."""
    found = []
    for path in pathlib.Path("/proc").iterdir():
        try:
            if path.name.isdigit() and str(text).encode() in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:  # it has ended
            pass
    return found


def compared(whyrss, *words):
    result = whyrss.run("compare-allocators", "--format", "json", *words)
    assert result.returncode == 0, result.stderr
    comparison = json.loads(result.stdout)
    jsonschema.validate(comparison, SCHEMA)
    return comparison, result


def installed(comparison):
    """The contestants that ran without settings, by allocator."""
    return {entry["allocator"]: entry for entry in comparison["contestants"] if not entry["settings"]}


def test_each_allocator_found(whyrss, compile_c, temporary):
    comparison, result = compared(whyrss, "--repeat", "2", "--", compile_c(RETAINING))
    found = installed(comparison)
    left_out = [note for note in comparison["notes"] if note.startswith("Left out: ")]
    assert "glibc" in found
    assert len(found) + len(left_out) == 4, "each is there or said to be missing"
    for entry in found.values():
        assert entry["version"]
        assert entry["failures"] == []
        assert entry["bare"]["peak_rss"]["median"] > 48 * MIB
        assert entry["recorded"]["peak_rss"]["median"] > 0
        assert len(entry["bare"]["wall_s"]["runs"]) == len(entry["recorded"]["final_rss"]["runs"]) == 2
    glibc = found["glibc"]
    assert glibc["recorded"]["final_rss"]["median"] > 48 * MIB
    assert glibc["recorded"]["at_end"]["retained"]["median"] > 40 * MIB
    assert glibc["pinning"]["lines"][0]["cause"] == "heap_retained"
    assert glibc["pinning"]["lines"][0]["line"].endswith(" in main")
    # An allocator that keeps much runs once more, with other settings.
    assert "glibc tuned" in [entry["label"] for entry in comparison["contestants"]]
    assert "said by the program" not in result.stdout + result.stderr
    assert list(temporary.iterdir()) == []


def test_arrows_other_pools_join_where_one_holds_memory(whyrss, compile_c, temporary):
    arrow = compile_c(ARROW_POOL, "-O2", "-shared", "-fPIC", name="libarrow.so.9999")
    comparison, result = compared(whyrss, "--repeat", "1", "--", compile_c(WITH_POOL, "-ldl", name="with_pool"), arrow)
    pools = [entry for entry in comparison["contestants"] if ", Arrow " in entry["label"]]
    assert [entry["label"] for entry in pools] == ["glibc, Arrow system", "glibc, Arrow jemalloc"], result.stderr
    assert [entry["settings"] for entry in pools] == [["ARROW_DEFAULT_MEMORY_POOL=system"], ["ARROW_DEFAULT_MEMORY_POOL=jemalloc"]]
    for entry in pools:  # to this library its name is all that is Arrow's
        heap = entry["recorded"]["at_end"]
        assert heap["live"]["median"] > 56 * MIB and heap["retained"]["median"] > 33 * MIB
        assert MIB < heap["unsplit"]["median"] < 3 * MIB
    assert not any("tuned" in entry["label"] for entry in comparison["contestants"]), "what malloc keeps is little"


def test_trim_gives_back_what_glibc_keeps(whyrss, compile_c, temporary):
    comparison, _ = compared(whyrss, "-a", "glibc", "--repeat", "1", "--", compile_c(RETAINING))
    trim = comparison["contestants"][0]["malloc_trim"]
    assert trim["rss"]["before"] > 48 * MIB
    assert trim["rss"]["after"] < 16 * MIB
    assert trim["retained"]["before"] > 40 * MIB
    assert trim["retained"]["after"] < 8 * MIB
    assert "malloc_trim(0) at the end gave back" in comparison["conclusion"]


def test_settings_reach_the_command(whyrss, compile_c, temporary):
    program = compile_c("""
        #include <stdlib.h>
        #include <string.h>
        int main(void) {
          const char *a = getenv("MY_SETTING"), *b = getenv("OTHER");
          return a != NULL && b != NULL && strcmp(a, "x:1,y:2") == 0 && strcmp(b, "3") == 0 ? 0 : 5;
        }""")
    comparison, _ = compared(whyrss, "-a", "glibc,glibc:MY_SETTING=x:1,y:2 OTHER=3", "--repeat", "1", "--", program)
    plain, tuned = comparison["contestants"]
    assert plain["failures"] == ["exit status 5"]
    assert tuned["settings"] == ["MY_SETTING=x:1,y:2", "OTHER=3"]
    assert tuned["failures"] == []


def test_what_is_not_there_is_said(whyrss, compile_c, temporary, tmp_path):
    no_library = tmp_path / "libnone.so"
    no_library.write_text("this is no library")
    comparison, _ = compared(whyrss, "-a", f"glibc,nosuch.so.1,{no_library},/does/not/exist.so", "--repeat", "1", "--",
                             compile_c(RETAINING))
    assert [entry["label"] for entry in comparison["contestants"]] == ["glibc"]
    left_out = [note for note in comparison["notes"] if note.startswith("Left out: ")]
    assert len(left_out) == 3
    nothing = whyrss.run("compare-allocators", "-a", "nosuch.so.1", "--", "true")
    assert nothing.returncode == 1
    assert "nosuch.so.1: not found by the loader" in nothing.stdout


def test_failing_under_one_allocator(whyrss, compile_c, temporary, monkeypatch):
    monkeypatch.setenv("FAIL_UNDER", "jemalloc")
    comparison, result = compared(whyrss, "-a", "glibc,jemalloc", "--repeat", "1", "--", compile_c(RETAINING))
    found = installed(comparison)
    if "jemalloc" not in found:
        pytest.skip("jemalloc is not installed")
    assert found["jemalloc"]["failures"] == ["exit status 3"]
    assert found["glibc"]["failures"] == []
    assert "jemalloc, bare run 1: exit status 3" in result.stderr


def test_text_and_files(whyrss, compile_c, temporary, tmp_path):
    program, report, kept = compile_c(RETAINING), tmp_path / "report.md", tmp_path / "kept"
    result = whyrss.run("compare-allocators", "-a", "glibc", "--repeat", "1", "--format", "markdown", "-o", report,
                        "--keep", kept, "--", program)
    assert (result.returncode, result.stdout) == (0, "")
    assert report.read_text().startswith("# Allocators compared: program\n")
    assert sorted(path.name for path in kept.iterdir()) == ["glibc-1-1.whyrss", "glibc-1-trim.whyrss"]
    assert whyrss.report(kept / "glibc-1-1.whyrss")["recording"]["command"] == [str(program)]
    again = whyrss.run("compare-allocators", "--keep", kept, "--", program)
    assert again.returncode == 1
    assert "not an empty directory" in again.stderr


def test_output_and_input_of_the_command(whyrss, temporary, tmp_path):
    text = tmp_path / "input"
    text.write_text("from the file\n")
    result = whyrss.run("compare-allocators", "-a", "glibc", "--repeat", "1", "--show-output", "--input", text, "--", "cat")
    assert result.stdout.count("from the file\n") == 3  # bare, recorded, trimmed


def test_commands_that_do_not_start(whyrss):
    assert whyrss.run("compare-allocators", "--", "/does/not/exist").returncode == 127
    assert whyrss.run("compare-allocators", "--", "/etc/passwd").returncode == 126
    assert whyrss.run("compare-allocators").returncode == 2


@pytest.mark.parametrize("during", ["bare", "recorded"])
def test_an_end_by_signal_leaves_nothing(whyrss, compile_c, temporary, tmp_path, during):
    program, started = compile_c(SLEEPER), tmp_path / "started"
    if during == "recorded":  # the bare run ends at once
        script = tmp_path / "script"
        script.write_text(f'#!/bin/sh\ncase "$LD_PRELOAD" in *whyrss*) exec {program} {started};; esac\n')
        script.chmod(0o755)
        words = [script]
    else:
        words = [program, started]
    command = [str(whyrss.program), "compare-allocators", "-a", "glibc", "--", *map(str, words)]
    verb = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(started.exists, "the command runs")
        everybody = processes_naming(tmp_path)
        assert len(everybody) >= 3  # the verb, the command and its child
        verb.send_signal(signal.SIGINT)
        assert verb.wait(PATIENCE_S) == -signal.SIGINT
    finally:
        verb.kill()
        verb.wait()
    wait_until(lambda: not any(is_running(pid) for pid in everybody), "all its processes have ended")
    assert list(temporary.iterdir()) == []


def test_what_the_command_leaves_running_is_ended(whyrss, compile_c, temporary, tmp_path):
    program, started = compile_c(SLEEPER), tmp_path / "started"
    comparison, _ = compared(whyrss, "-a", "glibc", "--repeat", "1", "--", "sh", "-c",
                             f"{program} {started} & until [ -e {started} ]; do sleep 0.05; done")
    assert any("left 2 processes running" in note for note in comparison["notes"])
    assert processes_naming(program) == []
