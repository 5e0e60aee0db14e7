"""What will stop by itself says where: file cache at the size of the file, copies of inherited memory when all of it is
copied. And what whyrss itself takes in a program with many threads.
"""
import pytest

from expected.report_reading import verdicts

MIB = 1 << 20
READ_A_FILE = """
import mmap, sys, time
path, mib = sys.argv[1], int(sys.argv[2])
with open(path, "wb") as file:
    for _ in range(64):
        file.write(bytes(1 << 20))
with open(path, "rb") as file:
    view = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    view.madvise(mmap.MADV_RANDOM)
    for at in range(0, mib << 20, 4096):
        view[at]
time.sleep(0.3)
"""
WRITE_A_PART = r"""
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void) {
  char* block = malloc(64 << 20);
  memset(block, 1, 64 << 20);
  if (fork() == 0) {
    usleep(300000);
    memset(block, 2, 16 << 20);
    usleep(500000);
    _exit(0);
  }
  wait(NULL);
  return 0;
}
"""

MANY_THREADS = """
import threading, time
end = threading.Event()
kept = []
def work():
    kept.append(bytearray(100_000))
    end.wait()
threads = [threading.Thread(target=work) for _ in range(100)]
for thread in threads:
    thread.start()
time.sleep(1)
end.set()
"""


@pytest.mark.parametrize("mib", [48, 64])
def test_file_cache_ends_at_the_size_of_the_file(whyrss, recording, tmp_path, mib):
    script = tmp_path / "read.py"
    script.write_text(READ_A_FILE)
    result, report = whyrss.record_whole(recording, ["/usr/bin/python3", script, tmp_path / "data.bin", mib])
    assert (result.returncode, result.stderr) == (0, "")
    verdict, = verdicts(report, "file-cache-growth")
    if "bound_bytes" not in verdict["evidence"]:
        pytest.skip(f"no sizes are told of files in {tmp_path}")
    assert verdict["evidence"]["bound_bytes"] == 64 * MIB
    assert verdict["evidence"]["resident_bytes"] == mib * MIB
    bound = "It ends by itself at 64 MiB, the size of data.bin." if mib < 64 else "All of it is in memory now"
    assert bound in verdict["why"]


MAP_IT_AGAIN = """
import mmap, sys, time
with open(sys.argv[1], "wb") as file:
    file.write(bytes(24 << 20))
views = []
for _ in range(3):
    with open(sys.argv[1], "rb") as file:
        views.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
    sum(views[-1][at] for at in range(0, 24 << 20, 4096))
time.sleep(0.3)
"""


def test_a_file_that_is_mapped_more_than_once_has_its_own_size(whyrss, recording, tmp_path):
    script = tmp_path / "again.py"
    script.write_text(MAP_IT_AGAIN)
    result, report = whyrss.record_whole(recording, ["/usr/bin/python3", script, tmp_path / "data.bin"])
    assert (result.returncode, result.stderr) == (0, "")
    verdict, = verdicts(report, "file-cache-growth")
    if "bound_bytes" not in verdict["evidence"]:
        pytest.skip(f"no sizes are told of files in {tmp_path}")
    assert "72 MiB file cache of data.bin, mapped more than once (" in verdict["headline"]
    assert verdict["evidence"]["file_bytes"] == 24 * MIB
    assert verdict["evidence"]["bound_bytes"] == verdict["evidence"]["resident_bytes"] == 72 * MIB
    assert "data.bin has 24 MiB. It is mapped more than once, 72 MiB in all" in verdict["why"]


def test_copies_end_when_all_is_copied(whyrss, recording, compile_c):
    result, report = whyrss.record_whole(recording, [compile_c(WRITE_A_PART, "-fno-builtin")])
    assert (result.returncode, result.stderr) == (0, "")
    verdict, = verdicts(report, "fork-cow-write")
    assert abs(verdict["evidence"]["left_to_copy_bytes"] - 48 * MIB) <= MIB
    assert abs(verdict["evidence"]["bound_bytes"] - 64 * MIB) <= MIB
    assert "It stops when all is copied: at most 48" in verdict["why"]


def test_a_thread_takes_few_pages(whyrss, recording):
    """Buffers (4 pages), the stack of the fault handler (4), and what a stack was taken into; not the frames of another
    thread, which are copied until it runs Python code itself (8).
    """
    result, report = whyrss.record_whole(recording, ["/usr/bin/python3", "-c", MANY_THREADS])
    assert result.returncode == 0, result.stderr
    of_whyrss = next(cause for cause in report["processes"][0]["causes"] if cause["cause"] == "whyrss")
    assert of_whyrss["rss"]["peak"] < 2.5 * MIB + 100 * 18 * 4096
