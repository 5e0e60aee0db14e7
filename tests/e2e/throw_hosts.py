"""Builds the three kinds of host of C++ exceptions: also for tests/bench/throw.

direct: the program links libstdc++ itself; plugin: a C program opens a C++ library; indirect: a C program is linked
with a C++ library, so that what a preloaded library needs would come before libgcc_s.
"""
import pathlib
import subprocess

PROGRAMS = pathlib.Path(__file__).resolve().parents[1] / "programs"
KINDS = ("direct", "plugin", "indirect")


def build_hosts(folder):
    """kind -> command without its last arguments: [program, count as text, plugin...]."""
    def run(*command):
        subprocess.run([str(part) for part in command], check=True)
    work, host = folder / "work.o", folder / "host.o"
    library = folder / "libthrow_work.so"
    run("g++", "-O1", "-g", "-fPIC", "-c", PROGRAMS / "throw_work.cc", "-o", work)
    run("gcc", "-O1", "-g", "-c", PROGRAMS / "throw_host.c", "-o", host)
    run("g++", "-shared", work, "-o", library, "-lpthread")
    run("g++", host, work, "-o", folder / "direct", "-ldl", "-lpthread")
    run("gcc", host, "-o", folder / "plugin", "-ldl")
    run("gcc", host, "-o", folder / "indirect", "-Wl,--no-as-needed", library, f"-Wl,-rpath,{folder}", "-ldl")
    return lambda kind, count: [str(folder / kind), str(count), *([str(library)] if kind == "plugin" else [])]
