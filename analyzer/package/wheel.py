#!/usr/bin/env python3
"""Makes a Python wheel of a finished build, without network and without a compiler.

    wheel.py BUILD [FOLDER]      BUILD/whyrss-VERSION-py3-none-manylinux_2_17_x86_64.whl, or in FOLDER

In it: the modules of lib/python, and beside them the folder whyrss_prefix with bin/whyrss and lib/libwhyrss.so, which find
each other wherever it is: a venv, a conda prefix, ~/.local, a --target folder.
"""
import base64
import hashlib
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import zipfile

FLOOR = (2, 17)  # of glibc; manylinux_2_17
TAG = "py3-none-manylinux_%d_%d_x86_64" % FLOOR
PREFIX = "whyrss_prefix"  # as whyrss.find_program() has it
COMMAND = "[console_scripts]\nwhyrss = whyrss:_main\n"
LEFT_OUT = ("share/doc/whyrss/", "lib/python/", "lib/cmake/")  # licences go to the metadata; CMake is no part of Python
SUMMARY = "Tells why the memory of a program grows, and which line does it"


def install(build, prefix):
    for more in ([], ["--component", "package"]):
        subprocess.run(["cmake", "--install", build, "--prefix", prefix, "--strip", *more], check=True,
                       stdout=subprocess.DEVNULL)


def newest_glibc(path):
    """The newest version of glibc that an ELF file asks for; (): it asks for none."""
    versions = subprocess.run(["readelf", "-VW", path], capture_output=True, text=True, check=True).stdout
    return max((tuple(map(int, found.split("."))) for found in re.findall(r"Name: GLIBC_([0-9.]+)", versions)), default=())


def check_floor(prefix):
    for name in ("bin/whyrss", "lib/libwhyrss.so", "lib/whyrss/own_allocator"):
        newest = newest_glibc(prefix / name)
        if newest > FLOOR:
            sys.exit("wheel.py: %s needs glibc %s; no such wheel can be tagged %s" % (name, newest, TAG))


def metadata(version, prefix):
    readme = "`whyrss CMD ARGS...` records a program and all its child processes, and says why their memory grew.\n" \
             "`python3 -m whyrss run train.py` does so with this Python. `whyrss --help` lists the rest.\n"
    licences = "".join("License-File: %s\n" % path.name for path in licence_files(prefix))
    return ("Metadata-Version: 2.1\nName: whyrss\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\n%s"
            "Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n%s" % (version, SUMMARY, licences, readme))


def licence_files(prefix):
    return sorted(path for path in (prefix / "share/doc/whyrss").rglob("*") if path.is_file())


class Wheel:
    """A zip file with the list of what is in it."""

    def __init__(self, path, info):
        self._zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self._record = info + "/RECORD"
        self._lines = []

    def add(self, name, content, mode=0o644):
        self._write(name, content, mode)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self._lines.append("%s,sha256=%s,%d\n" % (name, digest, len(content)))

    def _write(self, name, content, mode):
        entry = zipfile.ZipInfo(name)  # of 1980: the same files make the same wheel
        entry.external_attr = (stat.S_IFREG | mode) << 16
        self._zip.writestr(entry, content, zipfile.ZIP_DEFLATED, 9)

    def close(self):
        self._write(self._record, ("".join(self._lines) + self._record + ",,\n").encode(), 0o644)
        self._zip.close()


def make_wheel(prefix, folder):
    python = prefix / "lib/python"
    (own_info,) = python.glob("whyrss-*.dist-info")
    version = own_info.name[len("whyrss-"):-len(".dist-info")]
    info = own_info.name
    path = folder / ("whyrss-%s-%s.whl" % (version, TAG))
    wheel = Wheel(path, info)
    for module in sorted(python.glob("*.py")):
        wheel.add(module.name, module.read_bytes())
    for file in sorted(path for path in prefix.rglob("*") if path.is_file()):
        name = file.relative_to(prefix).as_posix()
        if name.startswith(LEFT_OUT):
            continue
        mode = 0o755 if os.access(file, os.X_OK) else 0o644
        wheel.add("%s/%s" % (PREFIX, name), file.read_bytes(), mode)
    for licence in licence_files(prefix):
        wheel.add("%s/licenses/%s" % (info, licence.name), licence.read_bytes())
    wheel.add(info + "/METADATA", metadata(version, prefix).encode())
    wheel.add(info + "/WHEEL", ("Wheel-Version: 1.0\nGenerator: whyrss\nRoot-Is-Purelib: false\nTag: %s\n" % TAG).encode())
    wheel.add(info + "/entry_points.txt", COMMAND.encode() + b"\n" + (own_info / "entry_points.txt").read_bytes())
    wheel.close()
    return path


def main(arguments):
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        sys.exit(__doc__)
    build, folder = arguments[0], pathlib.Path(arguments[-1])
    with tempfile.TemporaryDirectory() as temporary:
        prefix = pathlib.Path(temporary)
        install(build, prefix)
        check_floor(prefix)
        folder.mkdir(parents=True, exist_ok=True)
        print(make_wheel(prefix, folder))


if __name__ == "__main__":
    main(sys.argv[1:])
