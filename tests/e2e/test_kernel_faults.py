"""Pages that the kernel makes resident in a call of the program: counted exactly, with the line of the call, and the
call none the wiser: results, errno, interruption, cancellation and longjmp are as without us.
"""
import collections
import re
import subprocess

import pytest

import pool_reader
from conftest import PATIENCE_S, compiled
from fault_programs import FUNCTIONS_ON_STACKS, Functions

PAGE = 4096


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("programs"), "kernel_faults", "-O2", "-D_FORTIFY_SOURCE=2",
                    *FUNCTIONS_ON_STACKS)


@pytest.fixture
def counted(traced):
    """traced(...), where faults of the kernel are counted."""
    def run(command, touch="1", **options):
        result, pool = traced(command, touch=touch, **options)
        if not pool_reader.read_pool(pool):
            return result, {}
        processes = pool_reader.read_pool(pool)
        why = next(iter(processes.values())).touch_states[0].why
        if "perf_event_open" in why:
            pytest.skip(f"page faults are not followed here: {why}")
        return result, processes
    return run


def filled(result):
    """What the program says it has filled: (function, address, bytes)."""
    return [(name, int(address, 16), int(size)) for name, address, size
            in re.findall(r"^(\w+) (0x[0-9a-f]+) (\d+)$", result.stdout, re.M)]


def test_each_call_is_counted_with_its_line(counted, program):
    used = subprocess.run(["nm", "-D", program], capture_output=True, text=True, check=True).stdout
    for name in ("read", "pread", "recv", "recvfrom", "fread", "fread_unlocked"):
        assert f" __{name}_chk" in used
    result, processes = counted([program, "once"])
    assert result.returncode == 0, result.stderr
    (process,) = processes.values()
    functions = Functions(program)
    counts = collections.defaultdict(list)
    for record in process.kernel_faults:
        assert record.weight_calls == 1
        counts[record.address].append((functions.names(process, record.stack_id)[0], record.size_bytes, record.faults))
    calls = filled(result)
    assert len(calls) == 25
    for name, address, size in calls:
        function = {"by_populate": "by_map", "by_locked": "by_map", "by_fread": "read_items",
                    "by_fread_unlocked": "read_items"}.get(name, name)
        if name in ("by_readv", "by_preadv", "by_preadv2", "by_recvmsg"):
            assert counts[address] == [(function, size // 2, size // 2 // PAGE)], name
            assert counts[address + size] == [(function, size // 2, size // 2 // PAGE)], name
        else:
            assert counts[address] == [(function, size, size // PAGE)], name


def test_the_calls_are_what_they_are_without_us(counted, program):
    bare = subprocess.run([program, "hazards"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bare.returncode == 0 and "vfork child 7" in bare.stdout
    result, processes = counted([program, "hazards"])
    address = filled(result)[-1][1]
    assert (result.returncode, re.sub("0x.*", "", result.stdout), result.stderr) == (
        0, re.sub("0x.*", "", bare.stdout), "")
    (process,) = processes.values()
    # The last read is counted after all that happened before; the vfork child reported none, and what a handler read
    # within an interrupted call was reported once.
    assert process.kernel_faults[-1].address == address
    assert {(record.size_bytes, record.faults) for record in process.kernel_faults} == {(16 * PAGE, 16)}
    assert len({record.address for record in process.kernel_faults}) == len(process.kernel_faults)


@pytest.mark.parametrize("size", [4096, 65536, 1 << 20])
@pytest.mark.parametrize("touch", ["61", "auto"])
def test_what_is_measured_stands_for_all(counted, program, size, touch):
    """64 MiB read into fresh memory, and as much into memory that is there. One read in `weight` is measured, whatever
    was measured before: 6 standard deviations of the sum."""
    count = (64 << 20) // size
    result, processes = counted([program, "loop", count, size], touch=touch, chunks=16384)
    assert result.returncode == 0, result.stderr
    ((_, start, total),) = filled(result)
    (process,) = processes.values()
    records = [record for record in process.kernel_faults if start <= record.address < start + total]
    weights = {record.weight_calls for record in records}
    assert {record.faults for record in records} == {size // PAGE}
    assert max(weights) == max(1, (512 * 1024) // size) or touch == "auto"
    estimate = sum(record.faults * record.weight_calls for record in records) * PAGE
    six_sigma = 6 * (count * (max(weights) - 1)) ** 0.5 * size
    assert abs(estimate - total) <= six_sigma


def test_off_means_off(traced, program):
    result, pool = traced([program, "once"], touch="off")
    assert result.returncode == 0, result.stderr
    (process,) = pool_reader.read_pool(pool).values()
    assert process.kernel_faults == []


@pytest.mark.parametrize("action, call, counts", [("eperm", "perf_event_open", False), ("kill", "perf_event_open", False),
                                                  ("eperm", "userfaultfd", True)])
def test_where_page_faults_are_refused_they_are_not_counted(traced, forbid, program, action, call, counts):
    result, pool = traced([*forbid(action, call), program, "once"])
    assert result.returncode == 0, result.stderr
    (process,) = pool_reader.read_pool(pool).values()
    assert bool(process.kernel_faults) == (counts and process.touch_states[-1].armed)


def test_a_program_that_ignores_sigtrap_is_counted(traced, program):
    """No signal is needed for it."""
    result, pool = traced(["sh", "-c", f"trap '' TRAP; exec {program} once"])
    assert result.returncode == 0, result.stderr
    (process,) = pool_reader.read_pool(pool).values()
    assert "ignores SIGTRAP" in process.touch_states[-1].why
    assert len(process.kernel_faults) == 29


def test_a_program_that_shuts_itself_in_lives(whyrss, recording, counted, program):
    """Its filter kills for what sampling and counting need: they end before, in all threads and in children."""
    bare = subprocess.run([program, "shut_in"], capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    if "filter 0" not in bare.stdout:
        pytest.skip("this machine lets nobody install a seccomp filter")
    assert bare.stdout.splitlines()[:2] == ["no filter -1 14", "nor this -1 14"]
    result, processes = counted([program, "shut_in"])
    assert (result.returncode, result.stdout.splitlines()[-1], result.stderr) == (0, "child 768", "")
    parent = next(process for process in processes.values() if process.kernel_faults)
    start = int(re.search(r"^pages (\S+)", result.stdout, re.M).group(1), 16)
    touched = {(touch.address - start) // PAGE for touch in parent.touches if start <= touch.address < start + 400 * PAGE}
    assert touched == set(range(200))
    assert len(parent.kernel_faults) == 10
    assert any("seccomp filter" in note for note in parent.notes)
    recorded = whyrss.record(recording, [program, "shut_in"], "--touch", "1")
    assert (recorded.returncode, recorded.stderr) == (0, "")


PYTHON = """\
import numpy, os, sys
path = sys.argv[1]
def by_read():
  with open(path, "rb", buffering=0) as file:
    return file.read()
def by_readinto():
  into = bytearray(1 << 20)
  with open(path, "rb") as file:
    file.readinto(into)
  return into
def by_os_read():
  number = os.open(path, os.O_RDONLY)
  return os.read(number, 8 << 20)
def by_numpy():
  return numpy.fromfile(path, dtype=numpy.uint8)
kept = [by_read(), by_readinto(), by_os_read(), by_numpy()]
print(*map(len, kept))
"""


def test_python_lines_that_read_are_those_of_the_call(counted, tmp_path):
    script, data = tmp_path / "script.py", tmp_path / "data"
    script.write_text(PYTHON)
    data.write_bytes(bytes(8 << 20))
    if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], capture_output=True, check=False).returncode != 0:
        pytest.skip("numpy is not installed")
    result, processes = counted(["/usr/bin/python3", script, data])
    assert result.stdout.split() == [str(8 << 20), str(1 << 20), str(8 << 20), str(8 << 20)], result.stderr
    (process,) = processes.values()
    faults = collections.Counter()
    for record in process.kernel_faults:
        frames = process.stacks[record.stack_id].python
        if frames:
            code = process.codes[frames[0].code]
            line = pool_reader.line_of(process.python.version_hex, code, frames[0].last_instruction)
            faults[code.name, line] += record.faults
    # bytearray() has filled its memory itself.
    assert ("by_readinto", 9) not in faults
    for place in (("by_read", 5), ("by_os_read", 13), ("by_numpy", 15)):
        # A part may be memory that was there; or huge pages, of which one fault brings 512.
        assert faults[place] >= 4
