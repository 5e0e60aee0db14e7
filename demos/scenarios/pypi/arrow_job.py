"""A table of Arrow is filtered; what comes of it lies in Arrow's own memory pool. With `drop` it is given up again."""
import sys
import time

import numpy
import pyarrow
import pyarrow.compute

from truth import anonymous_bytes, say


def load():
    numbers = numpy.random.default_rng(0).random(24_000_000)  # loads
    say("table", numbers.nbytes)
    return pyarrow.table({"key": numbers[:12_000_000], "value": numbers[12_000_000:]})


def main():
    table = load()
    before = anonymous_bytes()
    kept = table.filter(pyarrow.compute.greater(table["value"], 0.1))  # filters
    say("grew", anonymous_bytes() - before)
    say("kept", kept.nbytes)
    if "drop" in sys.argv:
        del kept
    say("in use", pyarrow.total_allocated_bytes())
    time.sleep(0.5)
    return locals()


if __name__ == "__main__":
    held = main()
