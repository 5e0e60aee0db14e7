"""Arrays of numpy that are dropped at once: small ones, each an object and its data, buffers of 64 KiB that nothing is
written to, or results of arithmetic on a million numbers.
    python_arrays.py small|buffers|large COUNT
"""
import sys

import numpy as np


def small(count):
    for _ in range(count):
        np.empty(150)


def buffers(count):
    for _ in range(count):
        np.empty(65536, np.uint8)


def large(count):
    numbers = np.ones(1_000_000)
    for _ in range(count):
        numbers = numbers * 0.5 + np.sqrt(numbers) * 0.25
    return numbers


{"small": small, "buffers": buffers, "large": large}[sys.argv[1]](int(sys.argv[2]))
