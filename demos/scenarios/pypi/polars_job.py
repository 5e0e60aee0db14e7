"""A frame of Polars, whose threads allocate from a jemalloc of its own. With `drop` it is given up again."""
import sys
import time

import polars

from truth import anonymous_bytes, say


def make():
    keys = polars.int_range(0, 8_000_000, eager=True)
    return polars.DataFrame({"key": keys}).with_columns(half=polars.col("key") * 0.5, text=polars.col("key").cast(polars.String))  # makes


def main():
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
