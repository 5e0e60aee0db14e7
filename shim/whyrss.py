"""Marks for a recording by whyrss; every call is harmless in a program that runs without it.

    import whyrss
    with whyrss.phase("epoch 1"):       # or @whyrss.phase("load") before a function
        ...
    whyrss.mark("model loaded")
    whyrss.snapshot()

`python3 -m whyrss run train.py` records train.py in this Python; record options go before a --:
`python3 -m whyrss run --mode exact -o DIR -- train.py ARGS`. Other verbs are those of the program whyrss that this file was
installed with, or of the one on PATH: `python3 -m whyrss report DIR`.
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


def is_loaded():
    """Whether whyrss's library is in this process, so that marks go into a recording."""
    return _phase_begin is not None


def load_ipython_extension(shell):
    """%load_ext whyrss: the cell magic %%whyrss of whyrss_ipython.py."""
    import whyrss_ipython
    whyrss_ipython.load_ipython_extension(shell)


def find_program():
    """The whyrss program: of the wheel beside this file, <prefix>/bin/whyrss of <prefix>/lib/python/whyrss.py, or of PATH."""
    import shutil
    folder = os.path.dirname(os.path.realpath(__file__))
    for prefix in (os.path.join(folder, "whyrss_prefix"), os.path.dirname(os.path.dirname(folder))):
        beside = os.path.join(prefix, "bin", "whyrss")
        if os.access(beside, os.X_OK) and os.path.isfile(beside):
            return beside
    return shutil.which("whyrss")


def _program_arguments(arguments):
    """`run [RECORD OPTIONS --] SCRIPT ARGS...` stands for `record RECORD OPTIONS -- python3 SCRIPT ARGS...`."""
    if not arguments or arguments[0] != "run":
        return arguments
    options, words = [], arguments[1:]
    if words and words[0].startswith("-") and words[0] not in ("-m", "-c") and "--" in words:
        end = words.index("--")
        options, words = words[:end], words[end + 1:]
    return ["record"] + options + ["--"] + ([sys.executable] + words if words else [])


def _main():
    import signal
    program = find_program()
    if program is None:
        sys.stderr.write("whyrss: cannot find the program whyrss, neither in bin/ of the folder that %s was installed "
                         "to nor on PATH\n" % os.path.abspath(__file__))
        return 127
    for name in ("SIGPIPE", "SIGXFSZ"):  # ignored by Python, and it would be inherited
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    try:
        os.execv(program, [program] + _program_arguments(sys.argv[1:]))
    except OSError as error:
        sys.stderr.write("whyrss: cannot run %s: %s\n" % (program, error.strerror))
        return 126


if __name__ == "__main__":
    sys.exit(_main())
