"""%%whyrss: what the memory of a notebook's cell is, by cause and line.

    %load_ext whyrss

    %%whyrss
    rows = [parse(line) for line in open("big.txt")]

The kernel has to be started with whyrss's library, as memory that was there before cannot be asked who allocated it:

    python3 -m whyrss_ipython install        # adds the kernel "Python 3 (whyrss)" to Jupyter, for this user
    whyrss record -- jupyter lab             # or: all kernels of one server; also: whyrss record -- ipython

A kernel without it runs the cell all the same and says what to do. (To run the cell in a recorded child process instead
would lose all that it assigns.)
"""

import argparse
import json
import os
import re
import shlex
import sys
import time

import whyrss
import whyrss_live

HOW_TO = ("whyrss: this kernel runs without whyrss's library, so the cell was run, but not watched: choose the kernel "
          "\"Python 3 (whyrss)\", which `%s %s install` adds, or start Jupyter by `whyrss record -- jupyter lab`" %
          (shlex.quote(sys.executable or "python3"), shlex.quote(os.path.abspath(__file__))))
_RESULTS = "whyrss-results"  # pages, beside the notebook: Jupyter serves nothing else
_GROWN_BYTES = 4 << 20  # a program that does nothing takes less
_LONG_AFTER = {"text": "Processes, MiB", "markdown": "## Processes, MiB"}  # what explains the totals, not the cell


# --- names of cells

def _cell_names(shell):
    """Path of the code of each cell that was run -> "In[3]"."""
    return {name: "In[%d]" % number for name, number in getattr(shell.compile, "_filename_map", {}).items() if number}


# --- the magic

class _NoExit(argparse.ArgumentParser):
    def error(self, message):
        from IPython.core.error import UsageError
        raise UsageError("%%%%whyrss: %s" % message)

    def exit(self, status=0, message=None):
        raise SystemExit  # after --help, which prints on its own


def _arguments(line):
    parser = _NoExit(prog="%%whyrss", description="Runs the cell and says why its memory grew.")
    parser.add_argument("name", nargs="?", help="of the phase that the cell is in the recording (default: In[3])")
    parser.add_argument("--full", action="store_true", help="the whole report, not its first three parts alone")
    parser.add_argument("--no-html", dest="html", action="store_false",
                        help="do not show the recording so far as a page in Jupyter, which is written to %s/" % _RESULTS)
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as reason:  # quotes that do not match
        return parser.error(str(reason))
    except SystemExit:
        return None


_SHOW_ERRORS = ("showtraceback", "showsyntaxerror", "showindentationerror")


def _run_cell(shell, cell):
    """Runs it as it would run without the magic: with its own name and lines, its result shown. The error, or None."""
    # The magic's own line takes the place of line 1; another cell magic has to stay the first.
    code = cell if cell.lstrip().startswith("%%") else "# %%whyrss\n" + cell
    shown = {name: shell.__dict__.get(name) for name in _SHOW_ERRORS}
    for name in _SHOW_ERRORS:
        setattr(shell, name, lambda *_, **__: None)  # the outer cell shows it, once
    try:
        result = shell.run_cell(code, store_history=False)
    finally:
        for name, own in shown.items():
            if own is None:
                delattr(shell, name)
            else:
                setattr(shell, name, own)
    return result.error_before_exec or result.error_in_exec


def _unused(name, used):
    """Of several phases of one name a report shows the first begin and the last end."""
    count = used[name] = used.get(name, 0) + 1
    return name if count == 1 else "%s (%d)" % (name, count)


def _shortened(text, form):
    return text.split("\n%s\n" % _LONG_AFTER[form])[0].rstrip() + "\n"


class CellMagic:
    """%%whyrss of one shell."""

    def __init__(self, shell):
        self._shell = shell
        self._used = shell.__dict__.setdefault("_whyrss_phases", {})  # outlives %reload_ext

    def __call__(self, line, cell):
        __tracebackhide__ = True  # pylint: disable=unused-variable; the error is the cell's
        options = _arguments(line)
        if options is None:
            return
        if not whyrss_live.is_recorded():
            error = _run_cell(self._shell, cell)
            print(HOW_TO, file=sys.stderr)
            if error is not None:
                raise error
            return
        if self._is_asynchronous(cell):
            from IPython.core.error import UsageError
            raise UsageError("%%whyrss: a cell that awaits cannot run inside of a magic: use "
                             "`with whyrss.phase(\"name\"): ...` in it, and whyrss report --from name --to name")
        phase = _unused(options.name or "In[%d]" % self._shell.execution_count, self._used)
        whyrss.snapshot()
        begun = time.monotonic()
        with whyrss.phase(phase):
            error = _run_cell(self._shell, cell)
            duration_s = time.monotonic() - begun
            whyrss.snapshot()
        try:
            self._show(phase, duration_s, options)
        except (whyrss_live.Unavailable, OSError) as reason:  # never the cell's fault
            print("whyrss: no report of %s: %s" % (phase, reason), file=sys.stderr)
        if error is not None:
            raise error

    def _is_asynchronous(self, cell):
        try:
            return self._shell.should_run_async(cell, transformed_cell=self._shell.transform_cell(cell))
        except Exception:  # no code that could be read: running it says why
            return False

    def _show(self, phase, duration_s, options):
        from IPython.display import display
        folder = whyrss_live.recording()
        whyrss_live.name_files(_cell_names(self._shell), folder)
        found = whyrss_live.report_json(phase, "--top", "1", folder=folder)
        family = whyrss_live.family(found, os.getpid())
        rss = family[0]["rss"]
        # Only the kernel, unless others grew that it started, and the recording is of nothing else.
        grown = any((one["rss"]["peak"] or 0) - (one["rss"]["first"] or 0) >= _GROWN_BYTES for one in family[1:])
        own = [] if grown and whyrss_live.is_alone(found, os.getpid()) else ["--pid", str(os.getpid())]
        head = "%s: RSS %+.1f MiB in %.2f s, at most %+.1f MiB meanwhile" % (
            phase, (rss["last"] - rss["first"]) / 2**20, duration_s, (rss["peak"] - rss["first"]) / 2**20)
        shown = {}
        for form, kind in (("text", "text/plain"), ("markdown", "text/markdown")):
            report = whyrss_live.report(phase, "--format", form, "--in-notebook", *own, folder=folder)
            shown[kind] = report if options.full else _shortened(report, form)
        shown["text/plain"] = head + "\n" + shown["text/plain"]
        shown["text/markdown"] = "**%s**\n\n%s" % (re.sub(r"([\\`*_<\[|])", r"\\\1", head),
                                                   shown["text/markdown"].replace("# Why RSS grew\n\n", "", 1))
        display(shown, raw=True)
        if options.html and hasattr(self._shell, "kernel") and whyrss_live.has_verb("html"):
            self._show_page(phase, folder)

    @staticmethod
    def _show_page(phase, folder):
        from IPython.display import IFrame, display
        os.makedirs(_RESULTS, exist_ok=True)
        page = os.path.join(_RESULTS, "%s-%s.html" % (time.strftime("%Y%m%d-%H%M%S"),
                                                      re.sub(r"[^A-Za-z0-9_.-]+", "_", phase)))
        whyrss_live.run("html", folder, "-o", page)
        print("whyrss: " + page)
        display(IFrame(page, "100%", "700"))


def load_ipython_extension(shell):
    """%load_ext whyrss, or %load_ext whyrss_ipython."""
    shell.register_magic_function(CellMagic(shell), "cell", "whyrss")


# --- a kernel with the library

def _kernel(arguments):
    """Becomes ipykernel with the library preloaded; without it where that is impossible. The process stays the same."""
    library = whyrss_live.shim()
    environment = dict(os.environ)
    if library is None:
        sys.stderr.write("whyrss: cannot find libwhyrss.so: the kernel runs without it\n")
    elif not whyrss_live.is_recorded():
        environment["LD_PRELOAD"] = ":".join([library] + [one for one in [os.environ.get("LD_PRELOAD")] if one])
        environment.setdefault("WHYRSS_OUTPUT", os.path.join(_cache(), "kernel-%p"))
        os.makedirs(os.path.dirname(environment["WHYRSS_OUTPUT"]), mode=0o700, exist_ok=True)
    here = os.path.dirname(os.path.abspath(__file__))  # for `import whyrss`, wherever the notebook is
    environment["PYTHONPATH"] = os.pathsep.join([one for one in [os.environ.get("PYTHONPATH")] if one] + [here])
    os.execve(sys.executable, [sys.executable, "-m", "ipykernel_launcher"] + arguments, environment)


def _cache():
    folder = os.environ.get("XDG_CACHE_HOME", "")
    return os.path.join(folder if os.path.isabs(folder) else os.path.expanduser("~/.cache"), "whyrss")


def kernel_spec(mode="sampled"):
    """What Jupyter's kernel.json says. A launcher instead of variables: those would replace a LD_PRELOAD that is set,
    and a library that is gone would keep the kernel from nothing, but print a line for each program that it starts."""
    spec = {"argv": [sys.executable, os.path.abspath(__file__), "kernel", "-f", "{connection_file}"],
            "display_name": "Python %d (whyrss)" % sys.version_info[0], "language": "python",
            "metadata": {"debugger": True}}
    if mode != "sampled":
        spec["env"] = {"WHYRSS_OPTS": "mode=" + mode}
        spec["display_name"] = "Python %d (whyrss, %s)" % (sys.version_info[0], mode)
    return spec


def _install(options):
    if options.prefix:
        base = os.path.join(options.prefix, "share", "jupyter")
    elif os.environ.get("JUPYTER_DATA_DIR"):
        base = os.environ["JUPYTER_DATA_DIR"]
    else:
        data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
        base = os.path.join(data, "jupyter")
    name = options.name or "whyrss-python3" + ("" if options.mode == "sampled" else "-" + options.mode)
    folder = os.path.join(base, "kernels", name)
    spec = kernel_spec(options.mode)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "kernel.json"), "w", encoding="utf-8") as file:
        json.dump(spec, file, indent=1)
        file.write("\n")
    print("whyrss: %s: choose the kernel \"%s\"; its recordings are in %s" %
          (folder, spec["display_name"], _cache()))
    try:
        import ipykernel  # noqa: F401  pylint: disable=unused-import
    except ImportError:
        print("whyrss: %s has no ipykernel, which the kernel needs" % sys.executable, file=sys.stderr)
        return 1
    return 0


def _main(arguments):
    if arguments[:1] == ["kernel"]:  # what follows is ipykernel's
        _kernel(arguments[1:])
    parser = argparse.ArgumentParser(prog="python3 -m whyrss_ipython", description="Jupyter with whyrss's library.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    install = verbs.add_parser("install", help="add a kernel that is recorded")
    install.add_argument("--name", help="of the kernel's folder (default: whyrss-python3, or whyrss-python3-exact)")
    install.add_argument("--mode", choices=["sampled", "exact"], default="sampled",
                         help="exact: each object with its line, at several times the cost (default: %(default)s)")
    install.add_argument("--prefix", help="install to PREFIX/share/jupyter instead of the user's own folder")
    verbs.add_parser("kernel", help="what the installed kernel runs")
    options = parser.parse_args(arguments)
    if not re.fullmatch(r"[A-Za-z0-9._-]+", getattr(options, "name", None) or "-"):
        parser.error("--name: letters, digits, '.', '_' and '-' alone")
    try:
        return _install(options)
    except OSError as error:
        sys.stderr.write("whyrss: cannot install the kernel: %s\n" % error)
        return 1


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
