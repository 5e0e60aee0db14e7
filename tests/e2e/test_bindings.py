"""Whose unwinder, exceptions and operator new a program gets: its own, with the library preloaded as without."""
import os
import re
import shutil
import subprocess

import pytest

from conftest import PATIENCE_S
from throw_hosts import KINDS, build_hosts

# Not __cxa_thread_atexit_impl, which is no part of it: the library has its own, to know when main returns.
UNWINDER = re.compile(r"^(_Unwind_\w+|__cxa_(?!thread_atexit_impl)\w+|__gxx_\w+|__gcc_\w+|backtrace\w*|_U[a-z]?x86_64_\w+|unw_\w+|dl_iterate_phdr|_dl_find_object)$")
BINDING = re.compile(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: \w+ symbol `(\w+)'")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    if not shutil.which("g++"):
        pytest.skip("g++ is not installed")
    return build_hosts(tmp_path_factory.mktemp("hosts"))


def run_with_bindings(command, folder, **more):
    """The result and where each file's references to the unwinder were bound: {(file, symbol, target)}."""
    folder.mkdir()
    debug = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(folder / "bindings")}
    result = subprocess.run(command, env={**os.environ, **debug, **more}, capture_output=True, text=True,
                            timeout=PATIENCE_S, check=False)
    text = "".join(path.read_text(errors="replace") for path in folder.glob("bindings.*"))
    bound = {match.groups() for match in BINDING.finditer(text)}
    assert bound
    return result, {(file, symbol, target) for file, target, symbol in bound if UNWINDER.match(symbol)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_unwinder_is_the_program_s(whyrss, hosts, recording, tmp_path, kind):
    command = hosts(kind, 3)
    bare, without = run_with_bindings(command, tmp_path / "bare")
    assert bare.returncode == 0 and bare.stdout.startswith("caught fell, a thread left through 1 destructor"), bare.stderr
    traced, with_us = run_with_bindings(command, tmp_path / "traced", LD_PRELOAD=str(whyrss.shim),
                                        WHYRSS_OUTPUT=str(recording))
    assert (traced.returncode, traced.stdout, traced.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    own = str(whyrss.shim)
    theirs = {binding for binding in with_us if binding[0] != own}
    assert any(symbol == "_Unwind_RaiseException" for _, symbol, _ in without)
    assert any(symbol == "__cxa_throw" for _, symbol, _ in without)
    assert any(symbol == "backtrace" for _, symbol, _ in without)
    # The collector and what it runs start without us in their environment, and with LD_DEBUG: only files of the host count.
    files = {file for file, _, _ in without}
    assert {binding for binding in theirs if binding[0] in files} == without
    assert not [binding for binding in with_us if own in binding[::2] and binding[1].startswith(("_Unwind", "unw_", "__cxa_throw"))]


NEW_PROGRAM = r"""
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

static volatile std::size_t huge = SIZE_MAX / 2;
static int handled, wanted;

static void handler() {
  if (++handled == wanted) std::set_new_handler(nullptr);
}

struct alignas(128) Wide { char bytes[128]; };
struct Thrower {
  char bytes[100000];
  Thrower() { throw 42; }
};

template <class Call>
static void show(const char* what, Call call) {
  for (wanted = 0; wanted < 4; ++wanted) {
    handled = 0;
    std::set_new_handler(wanted > 0 ? handler : nullptr);
    const char* got = "no exception";
    void* block = nullptr;
    try {
      block = call();
    } catch (const std::bad_alloc& error) {
      got = error.what();
    }
    std::printf("%s: %s, handler called %d times, %s\n", what, got, handled, block ? "a block" : "null");
    std::set_new_handler(nullptr);
    if (block) std::free(block);
  }
}

int main() {
  for (int round = 0; round < 3; ++round) {
    show("new", [] { return ::operator new(huge); });
    show("new[]", [] { return ::operator new[](huge); });
    show("new nothrow", [] { return ::operator new(huge, std::nothrow); });
    show("new[] nothrow", [] { return ::operator new[](huge, std::nothrow); });
    show("new aligned", [] { return ::operator new(huge, std::align_val_t(128)); });
    show("new[] aligned", [] { return ::operator new[](huge, std::align_val_t(128)); });
    show("new aligned nothrow", [] { return ::operator new(huge, std::align_val_t(128), std::nothrow); });
    show("new[] aligned nothrow", [] { return ::operator new[](huge, std::align_val_t(128), std::nothrow); });
    try {
      new Wide[huge / sizeof(Wide)];
      std::puts("a block");
    } catch (const std::bad_alloc&) {
      std::puts("an array too large");
    }
    int caught = 0;
    for (int i = 0; i < 100; ++i) {
      try {
        new Thrower;
      } catch (int value) {
        caught += value;
      }
    }
    std::printf("thrown out of constructors: %d\n", caught);
    delete new Wide;
    operator delete(operator new(100000, std::nothrow), std::nothrow);
  }
  return 6;
}
"""
ALLOCATORS = [pytest.param(None, id="glibc")] + [
    pytest.param(f"/usr/lib/x86_64-linux-gnu/{name}", id=name.split(".")[0])
    for name in ("libjemalloc.so.2", "libtcmalloc_minimal.so.4", "libmimalloc.so.2")]


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_new_fails_as_always(whyrss, recording, compile_c, allocator):
    program = compile_c(NEW_PROGRAM, compiler="g++")
    if allocator is not None and not os.path.exists(allocator):
        pytest.skip(f"{allocator} is not installed")
    environment = {**os.environ, **({"LD_PRELOAD": allocator} if allocator else {})}
    bare = subprocess.run([program], env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert bare.returncode == 6 or "mimalloc" in str(allocator)  # mimalloc aborts where the exception should fly
    if allocator is None:
        assert "new: std::bad_alloc, handler called 3 times, null" in bare.stdout
        assert "new nothrow: no exception, handler called 2 times, null" in bare.stdout
    recorded = whyrss.record(recording, [program], env=environment)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (bare.returncode, bare.stdout, bare.stderr)
    lost = whyrss.finished_report(recording)["recording"]["lost"]
    assert (lost["events"], lost["notes"]) == (0, [])
