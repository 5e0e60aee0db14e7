"""gdb, strace and valgrind, recorded themselves (under) and around a recorded program (over)."""
from harness.host import PROGRAMS, Host, only, without

GDB = ["/usr/bin/gdb", "-nx", "-q", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set confirm off"]
STEPS = ["-ex", "break finish_allocate", "-ex", "run", "-ex", "bt 2", "-ex", "print total", "-ex", "next", "-ex", "continue"]
NOISE = without(r"0x[0-9a-f]+", r"\b(Thread|LWP|process|Inferior \d+ \(process) [0-9a-fx~]+",
                r"^(\[.*\]|process .*|Using host libthread_db.*|warning: .*|Download.*)\n", r"\[.*(Thread|Inferior).*\]\n")


def make_program(scene):
    scene.prepare("gcc", "-O1", "-g", "-pthread", "-o", scene.folder / "allocate", PROGRAMS / "allocate.c")


def program(scene):
    return [scene.folder / "allocate", "2", "8000"]


def under(name, tool, outcome=without(), **more):
    return Host(f"tracers/{name}", lambda scene: [*tool, *program(scene)], (name.split("-")[0], "gcc"), make_program, outcome,
                limit_s=240, files_at_exec=False, **more)


def over(name, tool, outcome=without(), **more):
    return Host(f"tracers/{name}", program, (name.split("-")[0], "gcc"), make_program, outcome, limit_s=240,
                around=lambda inner: [*tool, *inner], files_at_exec=False, **more)


def hosts(_options):
    return [
        under("gdb-under", [*GDB, *STEPS, "--args"], NOISE),
        over("gdb-over", [*GDB, "-ex", "run", "--args"], only("^allocated", "^child")),
        under("strace-under", ["/usr/bin/strace", "-f", "-o", "trace"]),
        over("strace-over", ["/usr/bin/strace", "-f", "-o", "trace"]),
        under("valgrind-under", ["/usr/bin/valgrind", "-q", "--error-exitcode=9", "--leak-check=full"]),
        over("valgrind-over", ["/usr/bin/valgrind", "-q", "--error-exitcode=9", "--trace-children=yes", "--trace-children-skip=*/whyrss",
                               "--undef-value-errors=no"]),  # memcheck replaces no malloc in whyrss itself, which is static
        over("valgrind-helgrind", ["/usr/bin/valgrind", "-q", "--tool=helgrind", "--error-exitcode=9",
                                   "--trace-children=yes", "--trace-children-skip=*/whyrss",
                                   f"--suppressions={PROGRAMS}/helgrind.supp"]),
    ]
