"""What a forked process itself knows of the pages that it copied, for programs that a test records."""
import array
import ctypes
import json
import mmap
import os
import resource
import sys

import whyrss  # noqa: F401  moments goes on without it; a test must not

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../demos/scenarios"))

from moments import take_snapshot  # noqa: E402
from workers import finish, start  # noqa: E402

__all__ = ["PAGE", "finish", "minor_faults", "remember_frames", "say", "settle", "start", "take_snapshot",
           "tracked_pages"]

PAGE = mmap.PAGESIZE


def minor_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def say(path, **entry):
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(log, (json.dumps(entry) + "\n").encode())
    os.close(log)


# Which physical page was where when this process was forked; empty where the kernel does not tell them.
frames_at_fork = {}
FRAME, PRESENT, FILE, PROTECTED = (1 << 55) - 1, 1 << 63, 1 << 61, 1 << 57
STRETCH = 512 * 8  # bytes of entries
NONE = bytes(STRETCH)


def private_ranges():
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        for line in maps:
            span, access = line.split(None, 2)[:2]
            start, end = (int(number, 16) for number in span.split("-"))
            if access[3] == "p" and start < 1 << 47:
                yield start, end


def physical_frames(pagemap, start, end):
    """An entry of 8 bytes per page."""
    return os.pread(pagemap, (end - start) // PAGE * 8, start // PAGE * 8)


def remember_frames():
    """Before a fork: what the child will inherit."""
    frames_at_fork.clear()
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    for start, end in list(private_ranges()):
        frames_at_fork[start, end] = physical_frames(pagemap, start, end)
    os.close(pagemap)


def copied_pages():
    """Inherited pages that are other physical pages now; None where that is not known."""
    copied, known = 0, False
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    for (start, end), before in frames_at_fork.items():
        after = physical_frames(pagemap, start, end)
        # Most have not changed: only stretches that have are compared page by page.
        for at in range(0, len(after), STRETCH):
            old_stretch, new_stretch = before[at:at + STRETCH], after[at:at + STRETCH]
            if known and old_stretch == new_stretch or old_stretch == NONE:
                continue
            for old, new in zip(array.array("Q", old_stretch), array.array("Q", new_stretch)):
                if old & new & PRESENT and not (old | new) & FILE:
                    known = known or old & FRAME != 0
                    copied += (old ^ new) & FRAME != 0
    os.close(pagemap)
    return copied if known else None


def settle():
    """Takes a snapshot, and returns the pages that this process has copied: counting and snapshots copy some too."""
    take_snapshot()
    copied_pages()
    copied = copied_pages()
    take_snapshot()
    return copied


def tracked_pages(buffer, size):
    """How many pages at the beginning of a bytearray are write-protected, so that the next write to them is seen."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer))
    start, end = -(-address // PAGE) * PAGE, (address + size) // PAGE * PAGE
    pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
    tracked = sum(1 for page in array.array("Q", physical_frames(pagemap, start, end)) if page & PROTECTED)
    os.close(pagemap)
    return tracked
