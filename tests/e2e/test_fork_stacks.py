"""A fork child goes on with the tables of its parent: stacks and code that the parent has described are not
described again, and every event of every generation still says its line.
"""
import os
import subprocess
import sys
import textwrap

import pool_reader

PATIENCE_S = 120

# Each event is a bytes object whose size says how deep it is made. Recorded are usable sizes, which go in steps of 16;
# blocks as large as that the C library does not map apart, so that no more is lost.
KINDS = (40, 60, 80, 100)
PROGRAM = textwrap.dedent("""
    import os, sys, threading

    def size_of(kind, depth):
        return kind * 1000 + 16 * depth

    WORKER = size_of(60, 0)

    def allocate(size):
        return bytes(size)  # LINE

    def worker(size):
        return allocate(size)

    def child(body):
        pid = os.fork()
        if pid == 0:
            body()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0

    def recurse(depth, size):
        return recurse(depth - 1, size) if depth else allocate(size)

    def busy():
        for turn in range(1500):
            recurse(turn % 60, size_of(40, turn % 60))
""")

BODIES = {
    # The same stack in all four processes of three generations; then new ones in each, so that the ids that
    # follow are other stacks in each of them.
    "generations": """
        children = []
        for turn in range(3):
            if turn > 0:
                pid = os.fork()
                children = children + [pid] if pid else []
            worker(WORKER)
            recurse(2 + os.getpid() % 5, size_of(100, 2 + os.getpid() % 5))
        for pid in children:
            assert os.waitpid(pid, 0)[1] == 0
    """,
    # The parent of the grandchild has become another program meanwhile.
    "exec": """
        ended, end = os.pipe()  # `end` is closed when the grandchild has ended

        def leave():
            worker(WORKER)
            replaced, replace = os.pipe()
            if os.fork() == 0:
                os.close(replace)
                os.read(replaced, 1)  # until the parent's exec has closed its end
                worker(WORKER)
                recurse(4, size_of(100, 4))
                os._exit(0)
            os.execv(sys.executable, [sys.executable, "-c", "pass"])

        worker(WORKER)
        child(leave)
        os.close(end)
        os.read(ended, 1)
    """,
    # Other threads store stacks and code at the moment of the fork; the child has only their traces.
    "threads": """
        threads = [threading.Thread(target=busy) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(15):
            child(lambda: [recurse(depth, size_of(80, depth)) for depth in range(1, 60, 7)])
        for thread in threads:
            thread.join()
    """,
}


def run(shim, tmp_path, body):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM + textwrap.dedent(BODIES[body]))
    pool = tmp_path / "pool"
    # Samples would describe code of their own choice.
    environment = {**os.environ, "LD_PRELOAD": str(shim), "PYTHONWARNINGS": "ignore",
                   "WHYRSS_OPTS": "touch=off,sample_bytes=1000GiB", **pool_reader.make_pool(pool)}
    result = subprocess.run([sys.executable, program], env=environment, capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    return pool_reader.read_pool(pool)


def python_lines(process, event):
    """Innermost first: (function, line)."""
    found = []
    for frame in process.stacks[event.stack_id].python:
        if not frame.flags & pool_reader.FRAME_INCOMPLETE:
            code = process.codes[frame.code]
            found.append((code.name, pool_reader.line_of(process.python.version_hex, code, frame.last_instruction)))
    return found


def usable(size):
    """What glibc gives for a bytes object of that size: its head, and the whole chunk but for 8 bytes."""
    return (size + 33 + 8 + 15) // 16 * 16 - 8


ALLOCATE_LINE = 1 + PROGRAM.splitlines().index("    return bytes(size)  # LINE")


def check_known_sizes(processes):
    """Every block of the program's own sizes comes from allocate(), by way of as many recurse() as it says."""
    checked = 0
    for process in pool_reader.images_of(processes):
        for event in process.events:
            kind = event.size_bytes // 1000
            if event.kind != pool_reader.ALLOCATE or kind not in KINDS:
                continue
            depth = (event.size_bytes - usable(kind * 1000)) // 16
            lines = python_lines(process, event)
            assert lines[0] == ("allocate", ALLOCATE_LINE), (event.size_bytes, lines)
            if kind == 60:
                assert [name for name, _ in lines[:2]] == ["allocate", "worker"]
            else:
                assert [name for name, _ in lines].count("recurse") == depth + 1
            checked += 1
    return checked


def test_generations_share_what_was_described(whyrss, tmp_path):
    processes = run(whyrss.shim, tmp_path, "generations")
    assert len(processes) == 4
    assert check_known_sizes(processes) == 2 * (3 + 2 + 1 + 1)
    by_tables = {process.tables: process for process in processes.values()}
    for process in processes.values():
        stacks = {event.stack_id for event in process.events if event.size_bytes == usable(60_000)}
        assert len(stacks) == 1
        parent = by_tables.get(process.inherited)
        if parent is None:
            assert stacks <= process.own_stacks
        else:
            assert not stacks & process.own_stacks, "described before the fork"
            own_files = {process.codes[code].file.rpartition("/")[2] for code in process.own_codes}
            assert "program.py" not in own_files, "all its functions were described before"
    assert sorted(process.inherited in by_tables for process in processes.values()) == [False, True, True, True]


def test_a_grandchild_of_a_replaced_program(whyrss, tmp_path):
    processes = run(whyrss.shim, tmp_path, "exec")
    assert check_known_sizes(processes) == 4


def test_forks_beside_threads_that_store_stacks(whyrss, tmp_path):
    processes = run(whyrss.shim, tmp_path, "threads")
    assert len(processes) == 16
    assert check_known_sizes(processes) == 15 * len(range(1, 60, 7)) + 3 * 1500
