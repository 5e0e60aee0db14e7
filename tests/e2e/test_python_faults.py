"""Python stacks taken in the handler of a page fault equal traceback's, for every CPython found."""
import sys

import pytest

import pool_reader
from interpreters import CASES
from zoo_runs import MAX_PYTHON_FRAMES, run_zoo, shown_frames


def touched_blocks(process):
    """[(size in pages, stack id of the allocation, {stack ids of the page faults in it})] of large blocks."""
    live, found = {}, []
    for kind, address, size, stack_id in process.moments:
        if kind == pool_reader.ALLOCATE:
            rounded = pool_reader.asked_pages(size)
            if rounded >= 1 << 20:
                live[address] = (size, set())
                found.append((rounded, stack_id, live[address][1]))
        elif kind == pool_reader.RELEASE:
            live.pop(address, None)
        else:
            for start, (block_size, stacks) in live.items():
                if start <= address < start + block_size:
                    stacks.add(stack_id)
    return found


@pytest.mark.parametrize("python", CASES)
def test_page_faults_equal_traceback(whyrss, tmp_path, python):
    """In the handler of a page fault the frames are those of the line that touches the page."""
    pool, expected = run_zoo(whyrss.shim, python, tmp_path, WHYRSS_OPTS="touch=4")
    if not any(kind == pool_reader.TOUCH for process in pool.values() for kind, *_ in process.moments):
        pytest.skip("page faults are not sampled here")
    equal, wrong = 0, []
    for pid, process in pool.items():
        for size, allocated_by, stack_ids in touched_blocks(process):
            stacks = [process.stacks[stack_id] for stack_id in stack_ids if stack_id]
            if (pid, size) not in expected or not stacks:
                continue
            wanted = expected[pid, size][:MAX_PYTHON_FRAMES]
            if not allocated_by or shown_frames(process, process.stacks[allocated_by].python) != wanted:
                continue  # another block of as many pages
            found = [(shown_frames(process, stack.python), stack.flags & pool_reader.STACK_TORN) for stack in stacks]
            # At the end the interpreter takes itself down: some blocks are touched once more, by no line.
            same = any(frames for frames, _ in found)
            same &= all(frames in (wanted, []) and not torn for frames, torn in found)
            equal += same
            if not same:
                wrong.append((pid, size, wanted[:4], [(frames[:4], torn) for frames, torn in found]))
    faults = [stack_id for process in pool.values() for kind, _, _, stack_id in process.moments
              if kind == pool_reader.TOUCH]
    torn = sum(bool(process.stacks[moment[3]].flags & pool_reader.STACK_TORN) for process in pool.values()
               for moment in process.moments if moment[0] == pool_reader.TOUCH and moment[3])
    print(f"{python}: {equal} blocks of {len(expected)}, {len(faults)} faults, {faults.count(0)} without a stack, "
          f"{torn} torn", file=sys.stderr)
    assert not wrong, f"{len(wrong)} differ, first: {wrong[0]}"
    assert equal > 300
