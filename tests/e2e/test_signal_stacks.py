"""The signal of sampled page faults arrives on the thread's alternate stack: one that the program has given away is left
alone, and a small one is enough for the stack of the fault."""
import ctypes
import os
import pathlib
import shutil

import pytest

import pool_reader
from conftest import compiled, run

GIVEN_AWAY = ["unmapped", "unmapped-by-syscall", "moved", "closed", "covered", "freed", "enlarged", "frame", "chain", "tiny"]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("signal_stacks"), "signal_stacks")


@pytest.mark.parametrize("mode", ["sampled", "exact"])
@pytest.mark.parametrize("kind", GIVEN_AWAY)
def test_a_stack_that_is_none_any_more_is_left_alone(whyrss, recording, program, kind, mode):
    bare = run(program, kind)
    assert bare.returncode == 0 and "touched" in bare.stdout and "kept 0" not in bare.stdout
    result = whyrss.record(recording, [program, kind], "--touch", "1", "--mode", mode)
    assert (result.returncode, result.stdout, result.stderr) == (0, bare.stdout, "")


def touches_below(pool, count):
    """Of the only process, those with a stack of at least `count` frames."""
    (process,) = pool_reader.read_pool(pool).values()
    if not process.touch_states[-1].armed:
        pytest.skip(process.touch_states[-1].why)
    deep = {stack_id for stack_id, stack in process.stacks.items() if len(stack.native) >= count}
    return [touch for touch in process.touches if touch.stack_id in deep], process


def test_a_small_stack_is_enough_for_the_stack_of_a_fault(traced, program):
    result, pool = traced([program, "small"])
    assert (result.returncode, result.stdout, result.stderr) == (0, "touched 300, handled 2\n", "")
    deep, _ = touches_below(pool, 7)  # touch_pages, six of touch_deeply
    assert len(deep) >= 300


def test_sampling_goes_on_with_the_next_stack(traced, program):
    """Between them there is none: a signal has nowhere to go."""
    result, pool = traced([program, "unmapped"])
    assert result.returncode == 0
    deep, _ = touches_below(pool, 2)
    assert 600 <= len(deep) < 900


RUST = """
fn main() {
    let worker = std::thread::spawn(|| {
        let pages = vec![0u8; 400 * 4096];
        let mut pages = std::hint::black_box(pages);
        for i in 0..400 { pages[i * 4096] = 1; }
        println!("touched {}", pages.iter().map(|&byte| byte as u32).sum::<u32>());
    });
    worker.join().unwrap();
}
"""


def test_threads_of_rust_have_stacks(traced, tmp_path):
    cargo = pathlib.Path.home() / ".cargo/bin/rustc"
    compiler = shutil.which("rustc") or (str(cargo) if cargo.exists() else None)
    source = tmp_path / "threads.rs"
    source.write_text(RUST)
    if compiler is None or run(compiler, "-O", "-o", tmp_path / "threads", source, env=dict(os.environ)).returncode != 0:
        pytest.skip("no Rust compiler here")
    smallest = ctypes.CDLL(None).getauxval(51)  # AT_MINSIGSTKSZ
    if smallest > 8192:
        pytest.skip(f"Rust's alternate stacks are {smallest} bytes here, the frame of a signal with AMX to the byte: no room for ours")
    result, pool = traced([tmp_path / "threads"])
    assert (result.returncode, result.stdout, result.stderr) == (0, "touched 400\n", "")
    deep, process = touches_below(pool, 3)
    in_worker = [touch for touch in process.touches if touch.tid != next(iter(process.touches)).tid]
    assert len(in_worker) >= 400
    assert sum(touch in deep for touch in in_worker) >= len(in_worker) * 0.95
