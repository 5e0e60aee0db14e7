"""A frame of Polars, whose threads allocate from a jemalloc of its own. With `drop` it is given up again; with `series`
many are kept whose sizes are no whole pages."""
import sys
import time

import polars

from truth import anonymous_bytes, say


def make():
    keys = polars.int_range(0, 8_000_000, eager=True)
    return polars.DataFrame({"key": keys}).with_columns(half=polars.col("key") * 0.5, text=polars.col("key").cast(polars.String))  # makes


def warm():
    """Polars starts its threads."""
    return polars.DataFrame({"key": [1, 2]}).with_columns(half=polars.col("key") * 0.5)


def collect():
    return [polars.int_range(0, 1_048_000, eager=True) * (0.5 + i) for i in range(16)]  # keeps


def main():
    warm()
    if "series" in sys.argv:
        kept = collect()
        say("in use", sum(series.estimated_size() for series in kept))
        time.sleep(0.5)
        return kept
    before = anonymous_bytes()
    frame = make()
    time.sleep(1.5)  # Polars gives back what it no longer needs half a second later
    say("grew", anonymous_bytes() - before)
    say("in use", frame.estimated_size())
    if "drop" in sys.argv:
        del frame
        time.sleep(0.2)
        say("stays", anonymous_bytes() - before)
    return locals()


if __name__ == "__main__":
    held = main()
