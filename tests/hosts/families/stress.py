"""Every stressor of stress-ng that runs without privileges, for a second, with its own verification."""
import re
import shutil
import subprocess

from harness.host import CannotRun, Host

WRONG_BARE = {
    "urandom": "it reads 2 bytes to the last byte of its page, and so overwrites what happens to lie behind it",
}
# By tmpfile(3), which no option sends elsewhere, until the next program finds no space.
FILLS_TMP = ("forkheavy", "resources")
LARGE_TMP = 4 << 30
# stress-ng is kept from harming the machine that it shares: by processes of its user, memory, disk.
STRESS_NG = "/usr/bin/stress-ng"


def stressors():
    """Their names; none as long as stress-ng is not installed."""
    try:
        listed = subprocess.run([STRESS_NG, "--stressors"], capture_output=True, text=True, check=True).stdout
    except OSError:
        return []
    return listed.split()


def verified(_scene, output):
    """What stress-ng says of its own checks: failures, and whether all stressors succeeded."""
    kept = [line.partition("] ")[2] for line in output.splitlines()
            if re.search(r": (fail|error): | successful run| unsuccessful run|skipped|untrustworthy|terminated", line)]
    return {"verification": "\n".join(re.sub(r"\d+\.\d+s|\d{3,}|0x[0-9a-f]+", "~", line) for line in kept)}


def refuse(name):
    if name in WRONG_BARE:
        raise CannotRun(f"stress-ng's own mistake: {WRONG_BARE[name]}")
    if name in FILLS_TMP and shutil.disk_usage("/tmp").total > LARGE_TMP:
        raise CannotRun("it takes all the space in /tmp for a while, which other work may need: mount a small tmpfs there")


def stressor(name):
    words = ["/usr/bin/prlimit", "--nproc=3000", STRESS_NG, f"--{name}", "2", "--timeout", "1", "--verify", "--stdout", "--temp-path", ".", "--no-rand-seed",
             "--oomable"]
    return Host(f"stress-ng/{name}", lambda _: words, ("stress-ng",), prepare=lambda _: refuse(name), user="nobody", outcome=verified, ends=None, limit_s=60, timed=False,
                memory_max=6 << 30, disk_max=2 << 30, files_at_exec=False)


def hosts(_options):
    found = [stressor(name) for name in stressors()]
    return found or [stressor("cpu")]  # installs it; the next run has them all
