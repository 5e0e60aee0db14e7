"""Marks for a recording by whyrss; every call is harmless in a program that runs without it.

    import whyrss
    with whyrss.phase("epoch 1"):       # or @whyrss.phase("load") before a function
        ...
    whyrss.mark("model loaded")
    whyrss.snapshot()

`python3 -m whyrss record python3 train.py` runs the whyrss program that this file was installed with, or the one on PATH.
"""

import contextlib
import os
import sys

try:
    import ctypes
except ImportError:  # an interpreter built without it
    ctypes = None

__all__ = ["mark", "phase", "snapshot"]


def _find(library_type, name, *argument_types):
    try:
        function = getattr(getattr(ctypes, library_type)(None), name)
    except (AttributeError, OSError):
        return None
    function.argtypes = argument_types
    function.restype = None
    return function


# PyDLL keeps the interpreter's lock: a mark takes less than handing it over, and threads keep their order.
_phase_begin = _find("PyDLL", "whyrss_phase_begin", ctypes.c_char_p) if ctypes else None
_phase_end = _find("PyDLL", "whyrss_phase_end", ctypes.c_char_p) if ctypes else None
_mark = _find("PyDLL", "whyrss_mark", ctypes.c_char_p) if ctypes else None
_snapshot = _find("CDLL", "whyrss_snapshot") if ctypes else None


def _bytes(text):
    """Valid UTF-8 without a NUL, whatever it is given: a name must never stop the program."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "backslashreplace")
    elif not isinstance(text, str):
        try:
            text = str(text)
        except Exception:  # somebody's __str__
            text = "<%s>" % type(text).__name__
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace")


class phase(contextlib.ContextDecorator):  # pylint: disable=invalid-name; used like a function
    """Names what the block does; the report can then be cut to it. Phases may nest and overlap."""

    def __init__(self, name):
        self._name = _bytes(name)

    def __enter__(self):
        if _phase_begin is not None:
            _phase_begin(self._name)
        return self

    def __exit__(self, *_):
        if _phase_end is not None:
            _phase_end(self._name)
        return False


def mark(text):
    """Names this moment."""
    if _mark is not None:
        _mark(_bytes(text))


def snapshot():
    """Has the pages of this process looked at now; waits for it, some ms or on a busy machine up to 2 s."""
    if _snapshot is not None:
        _snapshot()


def _program():
    """The whyrss program: <prefix>/bin/whyrss of <prefix>/lib/python/whyrss.py, else of PATH."""
    import shutil
    prefix = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    beside = os.path.join(prefix, "bin", "whyrss")
    return beside if os.access(beside, os.X_OK) and os.path.isfile(beside) else shutil.which("whyrss")


def _main():
    import signal
    program = _program()
    if program is None:
        sys.stderr.write("whyrss: cannot find the program whyrss, neither in bin/ of the folder that %s was installed "
                         "to nor on PATH\n" % os.path.abspath(__file__))
        return 127
    for name in ("SIGPIPE", "SIGXFSZ"):  # ignored by Python, and it would be inherited
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(program, [program] + sys.argv[1:])
    except OSError as error:
        sys.stderr.write("whyrss: cannot run %s: %s\n" % (program, error.strerror))
        return 126


if __name__ == "__main__":
    sys.exit(_main())
