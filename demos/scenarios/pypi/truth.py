"""What a job measures of itself, for demos/run pypi."""
import os


def say(what, size):
    """Printed as "WHAT: N bytes", in one write, so that lines of workers do not mix."""
    os.write(1, b"%s: %d bytes\n" % (what.encode(), size))


def rolled_up(name):
    """The sum of the fields of smaps_rollup that begin with a name."""
    with open("/proc/self/smaps_rollup", encoding="ascii") as rollup:
        return sum(int(line.split()[1]) << 10 for line in rollup if line.startswith(name))


def private_bytes():
    """Of this process: pages that no other process maps."""
    return rolled_up("Private_")


def anonymous_bytes():
    """Of this process: pages of no file, and private copies of those of files."""
    return rolled_up("Anonymous:")
