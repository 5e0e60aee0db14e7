"""C below Python: malloc_pairs.c, built as a library, makes its pairs of malloc and free by 1,024 paths of calls.
    python_pairs.py LIBRARY PAIRS
"""
import ctypes
import sys


def pairs(library, count):
    words = [b"malloc_pairs", b"1", b"random", str(count).encode()]
    return library.main(len(words), (ctypes.c_char_p * len(words))(*words))


assert pairs(ctypes.CDLL(sys.argv[1]), int(sys.argv[2])) == 0
