"""Marks for a recording by whyrss; every call is harmless in a program that runs without it.

    import whyrss
    with whyrss.phase("epoch 1"):
        ...
    whyrss.mark("model loaded")
    whyrss.snapshot()
"""

import contextlib
import ctypes


def _find(name, *argument_types):
    try:
        function = getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError):
        return None
    function.argtypes = argument_types
    function.restype = None
    return function


_phase_begin = _find("whyrss_phase_begin", ctypes.c_char_p)
_phase_end = _find("whyrss_phase_end", ctypes.c_char_p)
_mark = _find("whyrss_mark", ctypes.c_char_p)
_snapshot = _find("whyrss_snapshot")


def _bytes(text):
    return str(text).encode("utf-8", "surrogateescape")


@contextlib.contextmanager
def phase(name):
    """Names what the block does; the report can then be cut to it."""
    if _phase_begin is not None:
        _phase_begin(_bytes(name))
    try:
        yield
    finally:
        if _phase_end is not None:
            _phase_end(_bytes(name))


def mark(text):
    """Names this moment."""
    if _mark is not None:
        _mark(_bytes(text))


def snapshot():
    """Has the pages of this process looked at now; waits at most 50 ms."""
    if _snapshot is not None:
        _snapshot()
