"""Native frames by name and line: inlined calls, Rust and C++, separate debug files, and recordings that are read where
the programs are not."""
import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest

from conftest import PATIENCE_S, line_of, manifest_of, wait_until
from expected.report_reading import cause, read_report

BLOCK_BYTES = 48 << 20
STORES_NAMES_S = 0.2  # of a recording of less than half of it the first report reads them
LIBRARY = r"""
#include <stdlib.h>
#include <string.h>
static inline __attribute__((always_inline)) void *deepest(size_t size) {
  return malloc(size);  // line of deepest
}
static inline __attribute__((always_inline)) void *middle(size_t size) {
  return deepest(size + 1);  // line of middle
}
__attribute__((noinline)) static void *hidden(size_t size) {
  void *block = middle(size);  // line of hidden
  memset(block, 1, size);
  return block;
}
void *library_keep(size_t size) {
  void *block = hidden(size);  // line of library_keep
  return block ? (char *)block + 1 : 0;
}
"""
PROGRAM = r"""
#include <stddef.h>
#include <unistd.h>
void *library_keep(size_t size);
int main(void) {
  volatile void *kept = library_keep(%d);  // line of main
  char end;
  return kept == 0 || read(0, &end, 1) != 0;
}
""" % BLOCK_BYTES
NAMES = ["deepest", "middle", "hidden", "library_keep", "main"]


class Built:
    """A program with a library of its own, in one directory."""
    def __init__(self, directory, *compiler):
        directory.mkdir()
        self.compiler = compiler
        self.directory = directory
        self.library, self.program = directory / "libkeep.so", directory / "program"
        (directory / "keep.c").write_text(LIBRARY)
        (directory / "program.c").write_text(PROGRAM)
        self.build("-shared", "-fPIC", "keep.c", "-o", self.library)
        self.build("program.c", "-o", self.program, "-L.", "-lkeep", "-Wl,-rpath,$ORIGIN")

    def build(self, *arguments):
        run(*self.compiler, "-O1", "-Wl,--build-id", *arguments, cwd=self.directory)


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **options)
    assert result.returncode == 0, result.stderr


@pytest.fixture
def built(tmp_path):
    if not shutil.which("gcc") or not shutil.which("objcopy"):
        pytest.skip("gcc and objcopy are not both installed")
    return Built(tmp_path / "built", "gcc", "-g")


def block_sites(report):
    return [site for process in report["processes"] for slug in ("heap_live", "anonymous")
            for site in cause(process, slug)["sites"] if site["resident"] >= BLOCK_BYTES]


def kept_stack(report):
    """The stack of the large block."""
    (site,) = block_sites(report)
    return site["stack"]


def wait_until_seen(whyrss, recording):
    def seen():
        result = whyrss.run("report", recording, "--format", "json")
        return result.returncode == 0 and block_sites(read_report(result.stdout))
    wait_until(seen, "the block is in a walk")
    names_file(recording).unlink(missing_ok=True)  # only what is stored at the end shall count


def record(whyrss, recording, *command):
    """Records a program that keeps a block until its input ends."""
    with subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", *command], stdin=subprocess.PIPE) as job:
        wait_until_seen(whyrss, recording)
        time.sleep(STORES_NAMES_S)
        job.stdin.close()
        assert job.wait(PATIENCE_S) == 0


def named(stack):
    """Those of NAMES that the stack shows, in its order."""
    return [frame["function"] for frame in stack if frame["function"] in NAMES]


def assert_all_named(stack, built):
    frames = [frame for frame in stack if frame["function"] in NAMES]
    assert [frame["function"] for frame in frames] == NAMES
    for frame in frames:
        source = "program.c" if frame["function"] == "main" else "keep.c"
        text = PROGRAM if frame["function"] == "main" else LIBRARY
        assert frame["file"].endswith("/" + source)
        assert frame["line"] == line_of(text, f"// line of {frame['function']}")
        assert frame["module"] == str(built.program if frame["function"] == "main" else built.library)
        assert frame.get("inlined", False) == (frame["function"] in ("deepest", "middle"))


def names_file(recording):
    return recording / "symbols.zst"


def fresh_report(whyrss, recording):
    """As if no report had been made before."""
    names_file(recording).unlink(missing_ok=True)
    return whyrss.report(recording)


COMPILERS = [("gcc", "-g"), ("gcc", "-g1"), ("gcc", "-g", "-gdwarf-4"), ("gcc", "-g", "-gsplit-dwarf"),
             ("clang", "-g"), ("clang", "-gline-tables-only")]


@pytest.mark.parametrize("compiler", COMPILERS, ids=" ".join)
def test_inlined_calls_are_frames(whyrss, recording, tmp_path, compiler):
    if not shutil.which(compiler[0]):
        pytest.skip(f"{compiler[0]} is not installed")
    built = Built(tmp_path / "built", *compiler)
    record(whyrss, recording, built.program)
    for report in (whyrss.finished_report(recording), fresh_report(whyrss, recording)):
        assert_all_named(kept_stack(report), built)
    # The text blames what the reader can change: the innermost line, inlined or not.
    text = whyrss.run("report", recording).stdout
    assert f"keep.c:{line_of(LIBRARY, '// line of deepest')} in deepest" in text


def test_separate_debug_files(whyrss, recording, built):
    """.gnu_debuglink in the three places where such files are kept; the checksum of one that is another's counts."""
    record(whyrss, recording, built.program)
    debug = built.directory / "libkeep.so.debug"
    run("objcopy", "--only-keep-debug", built.library, debug)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={debug}", built.library)
    assert_all_named(kept_stack(fresh_report(whyrss, recording)), built)

    (built.directory / ".debug").mkdir()
    hidden = debug.rename(built.directory / ".debug" / debug.name)
    assert_all_named(kept_stack(fresh_report(whyrss, recording)), built)

    hidden.unlink()
    stripped = kept_stack(fresh_report(whyrss, recording))
    assert named(stripped) == ["library_keep", "main"]  # from .dynsym

    (built.directory / "other.c").write_text(LIBRARY.replace("deepest", "other"))
    built.build("-shared", "-fPIC", "other.c", "-o", built.directory / "libother.so")
    run("objcopy", "--only-keep-debug", built.directory / "libother.so", debug)
    assert named(kept_stack(fresh_report(whyrss, recording))) == ["library_keep", "main"]


def test_debug_file_of_the_distribution(whyrss, recording, built):
    """By build id below /usr/lib/debug; one that is installed later is used although names are known already."""
    notes = subprocess.run(["readelf", "-n", built.library], capture_output=True, text=True, check=True).stdout
    build_id = notes.split("Build ID:")[1].split()[0]
    folder = f"/usr/lib/debug/.build-id/{build_id[:2]}"
    made = not os.path.isdir(folder)
    try:
        os.makedirs(folder, exist_ok=True)
        os.access(folder, os.W_OK) or pytest.skip(f"{folder} cannot be written to")
    except OSError as error:
        pytest.skip(f"no debug file can be installed here: {error}")
    debug = f"{folder}/{build_id[2:]}.debug"
    try:
        run("objcopy", "--only-keep-debug", built.library, built.directory / "kept")
        run("objcopy", "--strip-all", built.library)
        record(whyrss, recording, built.program)
        assert named(kept_stack(whyrss.finished_report(recording))) == ["library_keep", "main"]
        shutil.copy(built.directory / "kept", debug)
        assert_all_named(kept_stack(whyrss.report(recording)), built)
    finally:
        if os.path.exists(debug):
            os.unlink(debug)
        if made:
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def test_common_file_of_dwz(whyrss, recording, built):
    """.gnu_debugaltlink: what several libraries have in common lies in one more file."""
    if not shutil.which("dwz"):
        pytest.skip("dwz is not installed")
    record(whyrss, recording, built.program)
    shutil.copy(built.library, built.directory / "other.so")
    run("dwz", "-m", "common.debug", "libkeep.so", "other.so", cwd=built.directory)
    assert_all_named(kept_stack(fresh_report(whyrss, recording)), built)
    (built.directory / "common.debug").unlink()
    assert named(kept_stack(fresh_report(whyrss, recording)))[-3:] == ["hidden", "library_keep", "main"]


def test_mini_debug_info(whyrss, recording, built):
    """.gnu_debugdata: the symbols that .dynsym leaves out, compressed."""
    if not shutil.which("xz"):
        pytest.skip("xz is not installed")
    record(whyrss, recording, built.program)
    mini = built.directory / "mini"
    run("objcopy", "-S", "--remove-section", ".comment", "--keep-symbol=hidden", built.library, mini)
    run("xz", "-k", mini)
    run("objcopy", "--strip-all", "--add-section", f".gnu_debugdata={mini}.xz", built.library)
    assert named(kept_stack(fresh_report(whyrss, recording))) == ["hidden", "library_keep", "main"]


def test_a_copy_needs_no_programs(whyrss, recording, built, tmp_path):
    record(whyrss, recording, built.program)
    copy = tmp_path / "copy.whyrss"
    shutil.copytree(recording, copy)
    built.directory.rename(tmp_path / "elsewhere")
    report = whyrss.report(copy)
    assert_all_named(kept_stack(report), built)
    (note,) = [note for note in report["recording"]["lost"]["notes"] if "stored with the recording" in note]
    assert str(built.library) in note and str(built.program) in note
    # A program of the same name that was built since must not lend its names.
    (tmp_path / "elsewhere").rename(built.directory)
    built.build("-shared", "-fPIC", "-DX=1", "-O0", "keep.c", "-o", built.library)
    assert_all_named(kept_stack(whyrss.report(copy)), built)
    report = fresh_report(whyrss, copy)
    assert named(kept_stack(report)) == ["main"]
    assert any("build id differs" in note for note in report["recording"]["lost"]["notes"])


def test_names_are_stored_without_record(whyrss, recording, built, tmp_path):
    with subprocess.Popen([built.program], env=whyrss.env_only(recording), stdin=subprocess.PIPE) as job:
        wait_until_seen(whyrss, recording)
        time.sleep(STORES_NAMES_S)
        job.stdin.close()
        assert job.wait(PATIENCE_S) == 0
    wait_until(names_file(recording).exists, "the collector has stored the names")
    built.directory.rename(tmp_path / "elsewhere")
    assert_all_named(kept_stack(whyrss.report(recording)), built)


def test_a_library_that_was_found_by_a_relative_path(whyrss, recording, built):
    built.build("program.c", "-o", built.program, "-L.", "-lkeep")
    settings = whyrss.env_only(recording, LD_LIBRARY_PATH=".")
    with subprocess.Popen(["./program"], cwd=built.directory, env=settings, stdin=subprocess.PIPE) as job:
        wait_until_seen(whyrss, recording)
        job.stdin.close()
        assert job.wait(PATIENCE_S) == 0
    assert_all_named(kept_stack(whyrss.finished_report(recording)), built)


def test_names_after_a_kill(whyrss, recording, built, tmp_path):
    """Killed all together: the names are lost, nothing else, and the first report stores them."""
    with subprocess.Popen([whyrss.program, "record", "-q", "-o", recording, "--", built.program], stdin=subprocess.PIPE,
                          start_new_session=True) as job:
        wait_until_seen(whyrss, recording)
        os.kill(manifest_of(recording)["collector"]["pid"], signal.SIGKILL)
        os.killpg(job.pid, signal.SIGKILL)
    assert not names_file(recording).exists()
    assert_all_named(kept_stack(whyrss.report(recording)), built)
    built.directory.rename(tmp_path / "elsewhere")
    assert_all_named(kept_stack(whyrss.report(recording)), built)


def test_damaged_names_are_read_again(whyrss, recording, built):
    record(whyrss, recording, built.program)
    sound = names_file(recording).read_bytes()
    for damaged in (b"", sound[:70], sound[:-3], sound[:40] + b"\0" * 8 + sound[48:], sound[:200] + b"x" * 50 + sound[250:],
                    os.urandom(5000)):
        names_file(recording).write_bytes(damaged)
        assert_all_named(kept_stack(whyrss.report(recording)), built)
    names_file(recording).unlink()
    assert_all_named(kept_stack(whyrss.report(recording)), built)


RUST_NAMES = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *today(size_t size) __asm__("_RNvC7mycrate9keep_here");
void *of_old(size_t size) __asm__("_ZN7mycrate4Pool9keep_more17h0123456789abcdefE");
__attribute__((noinline)) void *today(size_t size) {
  void *block = malloc(size);
  memset(block, 1, size);
  return block;
}
__attribute__((noinline)) void *of_old(size_t size) { return (char *)today(size) + 1; }
int main(void) {
  volatile void *kept = of_old(48 << 20);
  char end;
  return kept == 0 || read(0, &end, 1) != 0;
}
"""


def test_rust_names(whyrss, recording, compile_c):
    record(whyrss, recording, compile_c(RUST_NAMES))
    functions = [frame["function"] for frame in kept_stack(whyrss.finished_report(recording))]
    assert functions[functions.index("mycrate::keep_here"):][:3] == ["mycrate::keep_here", "mycrate::Pool::keep_more", "main"]


HOLES = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void *keep_here(size_t size) {
  void *block = malloc(size);
  return memset(block, 1, size);
}
int main(void) {
  volatile void *kept = keep_here(48 << 20);
  char end;
  return kept == 0 || read(0, &end, 1) != 0;
}
"""


@pytest.mark.parametrize("fixed", [[], ["-no-pie"]], ids=["pie", "fixed"])
def test_segments_with_holes_between_them(whyrss, recording, compile_c, fixed):
    """As lld and mold link: the loader then knows each segment by itself, and the headers lie in another one."""
    program = compile_c(HOLES, "-Wl,-z,max-page-size=0x200000", "-Wl,-z,separate-code", *fixed)
    record(whyrss, recording, program)
    report = whyrss.finished_report(recording)
    assert report["recording"]["lost"]["notes"] == []
    assert [frame["function"] for frame in kept_stack(report)][:2] == ["keep_here", "main"]


CONTAINER = r"""
#include <unistd.h>
#include <vector>
__attribute__((noinline)) std::vector<char> &keep(std::size_t size) {
  static std::vector<char> &kept = *new std::vector<char>;
  kept.resize(size);  // line of keep
  return kept;
}
int main() {
  char end;
  return keep(48 << 20).empty() || read(0, &end, 1) != 0;
}
"""


def test_a_container_is_not_to_blame(whyrss, recording, compile_c):
    """The line that asked for the vector, not the one in the header that is inlined into it."""
    record(whyrss, recording, compile_c(CONTAINER, compiler="g++"))
    stack = kept_stack(whyrss.finished_report(recording))
    assert any("/include/c++/" in frame["file"] for frame in stack)
    text = whyrss.run("report", recording).stdout
    assert f"program.cc:{line_of(CONTAINER, '// line of keep')} in keep(unsigned long)" in text
