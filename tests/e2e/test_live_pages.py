"""The table of live bytes per page, read from outside as the collector does, against a program that knows its blocks."""
import collections
import os
import pathlib
import struct
import subprocess

import pytest

import pool_reader

PROGRAM = pathlib.Path(os.environ.get("WHYRSS_BUILD", "build/release")) / "tests/programs/live_pages"
LIBRARIES = pathlib.Path("/usr/lib/x86_64-linux-gnu")
ALLOCATORS = {"glibc": None, "jemalloc": "libjemalloc.so.2", "tcmalloc": "libtcmalloc_minimal.so.4",
              "mimalloc": "libmimalloc.so.2"}
PAGE, UNIT, LEAF_PAGES, DIRECTORY_ENTRIES = 4096, 8, 1 << 18, 1 << 17
THREAD_DIRECTORIES = 16
LARGE = 32 * 1024
ROUNDS = 20000


class Memory:
    """The table of a process that waits."""

    def __init__(self, pid, table):
        self.file = open(f"/proc/{pid}/mem", "rb", buffering=0)
        self.table = table

    def read(self, address, size):
        self.file.seek(address)
        return self.file.read(size)

    def live(self):
        """page -> live units, where there are any or ever were."""
        magic, directory, _, _, refused = struct.unpack("<8sQIIQ", self.read(self.table, 32))
        assert magic == b"whylive\n" and refused == 0
        of_threads = struct.unpack(f"<{THREAD_DIRECTORIES}Q", self.read(self.table + 32, THREAD_DIRECTORIES * 8))
        self.own_directories = sum(address != 0 for address in of_threads)
        counters = collections.Counter()
        for address in [directory, *filter(None, of_threads)]:
            for page, counter in self.counters(address):
                counters[page] += counter
        return collections.Counter({page: (counter + 0x8000) % 0x10000 - 0x8000 for page, counter in counters.items()
                                    if counter % 2**32 != 0})

    def counters(self, directory):
        """Pages and their counters, where these are not 0."""
        for index, leaf in enumerate(struct.unpack(f"<{DIRECTORY_ENTRIES}Q", self.read(directory, DIRECTORY_ENTRIES * 8))):
            if leaf == 0:
                continue
            for page, (counter,) in enumerate(struct.iter_unpack("<I", self.read(leaf, LEAF_PAGES * 4))):
                if counter != 0:
                    yield index * LEAF_PAGES + page, counter


def units_of(blocks):
    """page -> units of the blocks that are counted there."""
    units = collections.Counter()
    for address, usable in blocks:
        end = address + usable
        while usable < LARGE and address < end:
            following = min(end, (address // PAGE + 1) * PAGE)
            units[address // PAGE] += (following - address) // UNIT
            address = following
    return units


class Program:
    """live_pages under the library, step by step."""

    def __init__(self, whyrss, pool, allocator, threads, options):
        library = ALLOCATORS[allocator] and LIBRARIES / ALLOCATORS[allocator]
        if library and not library.exists():
            pytest.skip(f"{library} is not installed")
        environment = {**os.environ, **pool_reader.make_pool(pool), "WHYRSS_OPTS": f"{options},touch=off",
                       "LD_PRELOAD": f"{whyrss.shim}:{library}" if library else str(whyrss.shim)}
        self.process = subprocess.Popen([PROGRAM, str(threads), str(ROUNDS)], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()

    def until(self, word):
        """The lines before `word`, of (address, usable size)."""
        blocks = []
        for line in self.process.stdout:
            if line.strip() == word:
                return blocks
            address, usable = line.split()
            blocks.append((int(address, 16), int(usable)))
        return pytest.fail(f"ended before it said {word}: {self.process.wait()}")

    def proceed(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.mark.parametrize("options", ["sample_bytes=64KiB", "sample_bytes=1", "mode=exact"])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_every_page_has_its_live_bytes(whyrss, tmp_path, allocator, threads, options):
    # Given a program that takes and gives back blocks of all sizes by all kinds of calls
    pool = tmp_path / "pool"
    with Program(whyrss, pool, allocator, threads, options) as program:
        program.until("ready")
        memory = Memory(program.process.pid, pool_reader.slots(pool)[program.process.pid].liveness)
        before = memory.live()
        # When it holds some of them, and then none
        program.proceed()
        blocks = program.until("held")
        held = memory.live()
        program.proceed()
        program.until("released")
        released = memory.live()
        program.proceed()
        assert program.process.wait() == 0
    # Then what each page lost is what its blocks had
    assert len(blocks) > 100 * threads
    lost = held - released
    assert not released - held
    assert lost == +units_of(blocks)
    # And threads counted for themselves, where events need no common order
    assert (1 if threads > 1 and options != "mode=exact" else 0) <= memory.own_directories
    assert memory.own_directories <= (0 if options == "mode=exact" else threads)
    # And nothing but what the threads left behind stays, nowhere less than nothing
    assert min(released.values()) >= 0
    assert 0 <= (sum(released.values()) - sum(before.values())) * UNIT < 16 * 1024


def replayed(events):
    """address -> size of the blocks that live in the end; each comes after the release of the one before."""
    live = {}
    for _, kind, address, size, stack in events:
        if kind == pool_reader.COMPACT_ALLOCATE:
            assert address not in live, hex(address)
            live[address] = size
        else:
            live.pop(address, None)  # what came before the library is not known
    return live


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_exact_mode_has_every_small_block(whyrss, tmp_path, allocator, threads):
    pool = tmp_path / "pool"
    with Program(whyrss, pool, allocator, threads, "mode=exact") as program:
        program.until("ready")
        program.proceed()
        blocks = program.until("held")
        events = pool_reader.compact_events(pool)[program.process.pid]
        held = replayed(events)
        program.proceed()
        program.until("released")
        released = replayed(pool_reader.compact_events(pool)[program.process.pid])
        program.proceed()
        assert program.process.wait() == 0
    assert {address: size for address, size in blocks if size < LARGE} == dict(held.items() - released.items())
    assert not released.items() - held.items()
    slot = pool_reader.slots(pool)[program.process.pid]
    assert slot.waits == 0
    # Stacks: of all but what came before the library was ready for them.
    assert sum(stack == 0 for _, kind, _, _, stack in events if kind == pool_reader.COMPACT_ALLOCATE) < 100
    assert len({stack for _, _, _, _, stack in events}) > 5
