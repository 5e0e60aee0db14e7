"""Growth that is none: caches with a bound, sawtooth, warm-up. What is flat depends on how long a program grew and
rested, by the clock: on a busy machine it grows for longer."""
from .scenario import MIB, scenario


@scenario("bounded-cache", "A cache fills, then stays", "innocent.py", "cache")
def bounded_cache(account):
    account.made_at(account.main, "heap_live", "results", 32 * MIB, 0.05)
    account.says("heap-growth", account.main, "info", at="results", text="flat since", text_kind="figure")
    account.silent("heap-retained", "heap-fragmented")


@scenario("sawtooth", "RSS goes up and down by 50 MiB", "innocent.py", "sawtooth")
def sawtooth(account):
    account.silent("heap-growth", "heap-retained", "heap-fragmented")


@scenario("warm-up", "RSS grows at the start, then stays", "innocent.py", "warm-up")
def warm_up(account):
    account.made_at(account.main, "heap_live", "buffers", 64 * MIB, 0.02)
    account.says("heap-growth", account.main, "info", at="buffers", text="flat since", text_kind="figure")
    account.silent("heap-retained", "heap-fragmented")
