"""jemalloc, tcmalloc and mimalloc: preloaded, linked, and linked statically, where the program itself defines malloc."""
import os

from harness.host import PROGRAMS, CannotRun, Host

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
ALLOCATORS = {  # name: (package, shared library, linker's name, static archive, what that needs)
    "jemalloc": ("libjemalloc-dev", "libjemalloc.so.2", "jemalloc", "libjemalloc.a"),
    "tcmalloc": ("libgoogle-perftools-dev", "libtcmalloc.so.4", "tcmalloc", "libtcmalloc.a", "-lunwind", "-llzma"),
    "tcmalloc-minimal": ("libgoogle-perftools-dev", "libtcmalloc_minimal.so.4", "tcmalloc_minimal",
                         "libtcmalloc_minimal.a"),
    "mimalloc": ("libmimalloc-dev", "libmimalloc.so.2", "mimalloc", "libmimalloc.a"),
}


def compiled(*flags):
    def prepare(scene):
        source = PROGRAMS / "allocate.c"
        for flag in flags:
            if str(flag).endswith(".a") and not os.path.exists(flag):
                raise CannotRun(f"{flag} is in none of Debian's packages")
        scene.prepare("gcc", "-O1", "-pthread", "-o", scene.folder / "allocate", source, *flags, "-lstdc++", "-lm")
    return prepare


def allocate(scene):
    return [scene.folder / "allocate", "4", "40000"]


def hosts_of(name):
    package, shared, linked, static, *more = ALLOCATORS[name]
    packages = (package, "g++")
    return [
        Host(f"allocators/{name}-preloaded", allocate, packages, compiled(), files_at_exec=False,
             environment={"LD_PRELOAD": f"{LIBRARIES}/{shared}"}),
        Host(f"allocators/{name}-linked", allocate, packages, compiled(f"-l{linked}"), files_at_exec=False),
        Host(f"allocators/{name}-static", allocate, packages,
             compiled(f"{LIBRARIES}/{static}", *more), files_at_exec=False),
        Host(f"allocators/{name}-all-static", allocate, packages,
             compiled("-static", "-Wl,--allow-multiple-definition", f"{LIBRARIES}/{static}", *more), files_at_exec=False,
             reported=False),
    ]


def hosts(_options):
    return [Host("allocators/glibc", allocate, ("g++",), compiled(), files_at_exec=False),
            *(host for name in ALLOCATORS for host in hosts_of(name))]
