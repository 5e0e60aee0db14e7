"""Which line made memory resident: two functions that touch one mapping, and two that read one file."""
import pathlib
import sys

import pytest

from expected.report_reading import assert_conserved, cause, read_report

MIB = 1 << 20
SOURCE = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kMiB = 1 << 20 };

__attribute__((noinline)) static void fill_most(char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096) ((volatile char*)from)[i] = 1;
  __asm__ volatile("");
}
__attribute__((noinline)) static void fill_rest(char* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 4096) ((volatile char*)from)[i] = 2;
  __asm__ volatile("");
}
__attribute__((noinline)) static int scan_most(const char* from, size_t bytes) {
  int sum = 0;
  for (size_t i = 0; i < bytes; i += 4096) sum += ((volatile const char*)from)[i];
  return sum;
}
__attribute__((noinline)) static int scan_rest(const char* from, size_t bytes) {
  int sum = 1;
  for (size_t i = 0; i < bytes; i += 4096) sum += ((volatile const char*)from)[i];
  return sum;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  char* memory = mmap(NULL, 64 * kMiB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  madvise(memory, 64 * kMiB, MADV_NOHUGEPAGE);
  fill_most(memory, 48 * kMiB);
  fill_rest(memory + 48 * kMiB, 16 * kMiB);

  int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
  char block[65536];
  memset(block, 7, sizeof block);
  for (int i = 0; i < 64 * 16; ++i)
    if (write(fd, block, sizeof block) != (ssize_t)sizeof block) return 1;
  const char* file = mmap(NULL, 64 * kMiB, PROT_READ, MAP_SHARED, fd, 0);
  if (file == MAP_FAILED) return 1;
  printf("%d\n", scan_most(file, 48 * kMiB) + scan_rest(file + 48 * kMiB, 16 * kMiB));
  return 0;
}
"""


@pytest.fixture
def recorded(whyrss, recording, compile_c, tmp_path):
    program = compile_c(SOURCE)
    data = tmp_path / "data.bin"
    _, report = whyrss.record_whole(recording, [program, data], "--touch", "2")
    if report["recording"]["capabilities"]["touch"] == "none":
        pytest.skip(f"page faults cannot be sampled here: {report['processes'][0]['touch']['off_reason']}")
    return report


def by_function(sites):
    """Bytes by the innermost function that has a name; None for bytes without a sampled touch."""
    found = {}
    for site in sites:
        assert sum(touch["growth"] for touch in site["touched_by"]) in (0, site["growth"])
        for touch in site["touched_by"]:
            assert touch["growth"] >= 0
            names = [frame["function"] for frame in touch["stack"] if frame["function"]]
            name = names[0] if names else None
            found[name] = found.get(name, 0) + touch["growth"]
    return found


def test_functions_get_what_they_touched(whyrss, recording, recorded):
    assert_conserved(recorded)
    process = recorded["processes"][0]
    mapped = max(cause(process, "anonymous")["sites"], key=lambda site: site["growth"])
    assert mapped["growth"] == 64 * MIB
    touched = by_function([mapped])
    assert touched["fill_most"] == pytest.approx(48 * MIB, rel=0.05)
    assert touched["fill_rest"] == pytest.approx(16 * MIB, rel=0.05)

    files = cause(process, "file_cache")["sites"] + cause(process, "shared_memory")["sites"]
    data = [site for site in files if (site["mapping"] or "").endswith("data.bin")]
    read = by_function(data)
    assert read["scan_most"] == pytest.approx(48 * MIB, rel=0.1)
    assert read["scan_rest"] == pytest.approx(16 * MIB, rel=0.1)

    text = whyrss.run("report", recording, "--by", "touch").stdout
    for function in ("fill_most", "fill_rest", "scan_most", "scan_rest"):
        assert f" in {function}" in text, text
    markdown = whyrss.run("report", recording, "--by", "touch", "--format", "markdown").stdout
    assert "fill\\_rest" in markdown or "fill_rest" in markdown


SEGMENTS = """
import mmap, os
from fork_truth import take_snapshot

SIZE = 64 << 10

def make(number):
    if not NAMED:
        return mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    file = os.memfd_create(f"segment {number}")
    os.ftruncate(file, SIZE)
    return mmap.mmap(file, SIZE)

def fill(segment):
    segment[:] = b"x" * SIZE

kept = [make(number) for number in range(400)]
for segment in kept:
    fill(segment)
take_snapshot()
os._exit(0)
"""


@pytest.mark.parametrize("named", [True, False])
def test_small_mappings_of_one_line_show_the_line_that_touches_them(whyrss, recording, tmp_path, named):
    """Each has fewer faults than one sample stands for; together they have enough."""
    script = tmp_path / "segments.py"
    script.write_text(SEGMENTS.replace("NAMED", str(named)))
    path = f"PYTHONPATH={whyrss.shim.parent / 'python'}:{pathlib.Path(__file__).parent}"
    result = whyrss.record(recording, ["env", path, sys.executable, "-B", script], "--touch", "5")
    assert result.returncode == 0, result.stderr
    report = read_report(whyrss.run("report", recording, "--format", "json", "--top", "1000").stdout)
    if report["recording"]["capabilities"]["touch"] == "none":
        pytest.skip(f"page faults cannot be sampled here: {report['processes'][0]['touch']['off_reason']}")
    made = [site for site in cause(report["processes"][0], "shared_memory" if named else "anonymous")["sites"]
            if any(frame["function"] == "make" for frame in site["stack"])]
    assert len(made) == (400 if named else 1)
    assert sum(site["growth"] for site in made) == 400 * 65536
    filled = [touch["growth"] for site in made for touch in site["touched_by"]
              if any(frame["function"] == "fill" for frame in touch["stack"])]
    assert sum(filled) > 0.9 * 400 * 65536
