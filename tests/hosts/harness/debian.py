"""Debian's packages: which are there, and installing those that are not."""
import contextlib
import os
import pathlib
import subprocess

POLICY = pathlib.Path("/usr/sbin/policy-rc.d")


def is_installed(package):
    result = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}", package], capture_output=True, text=True,
                            check=False)
    return result.stdout == "installed"


@contextlib.contextmanager
def no_service_starts():
    """Packages start their servers when they are installed; ours start theirs themselves."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()


class Installer:
    def __init__(self, allowed):
        self.allowed = allowed
        self.updated = False

    def missing(self, packages):
        """What cannot be had of these packages, after trying to install it."""
        absent = [package for package in packages if not is_installed(package)]
        if absent and self.allowed and os.geteuid() == 0:
            self.install(absent)
        return [package for package in absent if not is_installed(package)]

    def install(self, packages):
        with no_service_starts():
            if not self.updated:
                self.updated = True
                self.apt_get("update")
            self.apt_get("install", "-y", "--no-install-recommends", *packages)

    @staticmethod
    def apt_get(*arguments):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "-q", *arguments], env=environment, stdin=subprocess.DEVNULL,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=1800, check=False)
