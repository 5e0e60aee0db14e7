"""The packages: the folder that runs from anywhere, the wheel, the .deb. Each is made here from the build under test.

In root file systems of other Debian releases they run where tests/roots/run has made some.
"""
import json
import os
import pathlib
import re
import shutil
import sys

import pytest

import interpreters
from conftest import ROOT, Whyrss, read_report, run
from exports import needs

FLOOR = (2, 17)  # of glibc: the wheel's tag, and what analyzer/docs/recipes.md says
UNPRIVILEGED = 65534
WORKERS = r"""
import os
def load():
    return [bytes(1000 + number % 7) for number in range(60000)]
kept = load()
for _ in range(2):
    if os.fork() == 0:
        total = sum(len(block) for block in kept)
        os._exit(0)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print("done")
"""
KEPT_BYTES = 60000 * 1036
MADE_LINE, READ_LINE = 4, 8


def pack(whyrss, generator, folder):
    needs("cpack", "dpkg-deb", "strip")
    packed = run("cpack", "--config", whyrss.build / "CPackConfig.cmake", "-G", generator, "-B", folder)
    assert packed.returncode == 0, packed.stdout + packed.stderr
    (package,) = [path for path in folder.iterdir() if path.is_file()]
    return package


@pytest.fixture(scope="module")
def tar(whyrss, tmp_path_factory):
    package = pack(whyrss, "TZST", tmp_path_factory.mktemp("tar"))
    assert re.fullmatch(r"whyrss-[0-9.]+-linux-x86_64\.tar\.zst", package.name)
    return package


@pytest.fixture(scope="module")
def folder(tar, tmp_path_factory):
    """The folder, unpacked to where it was not made for."""
    place = tmp_path_factory.mktemp("unpacked")
    assert run("tar", "-C", place, "-xf", tar).returncode == 0
    (found,) = place.iterdir()
    return found


@pytest.fixture(scope="module")
def deb(whyrss, tmp_path_factory):
    return pack(whyrss, "DEB", tmp_path_factory.mktemp("deb"))


@pytest.fixture(scope="module")
def wheel(whyrss, tmp_path_factory):
    needs("cmake", "strip")
    made = run(sys.executable, ROOT / "analyzer/package/wheel.py", whyrss.build, tmp_path_factory.mktemp("wheel"))
    assert made.returncode == 0, made.stderr
    return pathlib.Path(made.stdout.strip())


def check_workers(report):
    """Lines and bytes of WORKERS: what was made, and what its children copied by reading it."""
    parent, *children = sorted(report["processes"], key=lambda process: process["born"] == "fork")
    assert len(children) == 2
    live = next(cause for cause in parent["causes"] if cause["cause"] == "heap_live")
    made = sum(site["growth"] for site in live["sites"]
               if any(frame["line"] == MADE_LINE for frame in site["stack"] if frame["kind"] == "python"))
    assert 0.9 * KEPT_BYTES < made < 1.1 * KEPT_BYTES
    for child in children:
        assert child["cow"]["copied"] > 0.8 * KEPT_BYTES
    verdict = next(one for one in report["verdicts"] if one["id"] == "fork-cow-refcount")
    assert f":{MADE_LINE}" in verdict["headline"] and f":{READ_LINE}" in verdict["headline"]


def elf_files(folder):
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def test_nothing_in_the_folder_needs_a_newer_libc(folder):
    needs("readelf")
    checked = set()
    for path in elf_files(folder):
        header = run("readelf", "-hW", path).stdout
        if "REL (Relocatable" in header:
            continue
        dynamic = run("readelf", "-dW", path).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic))
        assert needed <= {"libc.so.6", "ld-linux-x86-64.so.2"}, path
        assert "(RELR)" not in dynamic and "(RUNPATH)" not in dynamic and "(RPATH)" not in dynamic, path
        for name in re.findall(r"Name: (\w+?_[0-9.]+)", run("readelf", "-VW", path).stdout):
            library, _, version = name.rpartition("_")
            assert library == "GLIBC" and tuple(map(int, version.split("."))) <= FLOOR, (path, name)
        checked.add(path.relative_to(folder).as_posix())
    assert checked == {"bin/whyrss", "lib/libwhyrss.so", "lib/whyrss/own_allocator"}


def test_the_folder_names_its_libraries_and_can_be_linked_anew(folder, tmp_path):
    doc = folder / "share/doc/whyrss"
    libraries = (doc / "LIBRARIES.md").read_text()
    for name in ("elfutils", "glibc", "libiberty", "gcc-", "zlib", "libzstd", "sqlite3", "fmtlib", "cli11", "preact"):
        assert name in libraries, name
    assert {"LGPL-3", "GPL-3", "libdw-dev.txt", "libc6-dev.txt"} <= {path.name for path in (doc / "licences").iterdir()}
    needs("c++")
    linked = run(folder / "share/whyrss/relink/relink", tmp_path / "whyrss")
    assert linked.returncode == 0, linked.stderr
    assert run(tmp_path / "whyrss", "--version").stdout == run(folder / "bin/whyrss", "--version").stdout


def test_the_folder_records_read_only_and_without_root(folder, open_folder):
    copy = open_folder / folder.name
    shutil.copytree(folder, copy, symlinks=True)
    for path in [copy, *copy.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    program = open_folder / "workers.py"
    program.write_text(WORKERS)
    place = open_folder / "place"
    place.mkdir()
    # In a user namespace of its own a test without root sees the same tree.
    drop = {}
    if os.geteuid() == 0:
        os.chown(place, UNPRIVILEGED, UNPRIVILEGED)
        drop = {"user": UNPRIVILEGED, "group": UNPRIVILEGED, "extra_groups": []}
    recorded = run(copy / "bin/whyrss", "record", "-o", "it", "--", "/usr/bin/python3", program, cwd=place, **drop)
    assert (recorded.returncode, recorded.stdout) == (0, "done\n"), recorded.stderr
    assert "workers copied" in recorded.stderr
    check_workers(Whyrss(copy / "bin/whyrss").report(place / "it"))


def test_allocators_are_found_from_the_folder(folder, tmp_path):
    if not list(pathlib.Path("/usr/lib").rglob("libjemalloc.so.2")):
        pytest.skip("jemalloc is not installed")
    result = run(folder / "bin/whyrss", "compare-allocators", "-a", "glibc,jemalloc", "--repeat", "1", "--format", "json",
                 "--", "true", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    found = {one["label"]: one for one in json.loads(result.stdout)["contestants"]}
    assert found["glibc"]["version"] == os.confstr("CS_GNU_LIBC_VERSION").split()[1]
    assert re.match(r"[0-9]+\.", found["jemalloc"]["version"])


def test_the_wheel_is_what_it_says(wheel):
    assert re.fullmatch(r"whyrss-[0-9.]+-py3-none-manylinux_%d_%d_x86_64\.whl" % FLOOR, wheel.name)
    assert wheel.stat().st_size < 20 << 20


@pytest.mark.parametrize("python", interpreters.CASES)
def test_a_venv_gets_the_wheel(wheel, tmp_path, python):
    venv = tmp_path / "venv"
    made = run(python, "-m", "venv", venv)
    if made.returncode != 0:
        pytest.skip(f"{python} makes no venv: {(made.stdout + made.stderr).splitlines()[:1]}")
    installed = run(venv / "bin/python", "-m", "pip", "install", "--no-index", "--no-deps", "--disable-pip-version-check", wheel)
    assert installed.returncode == 0, installed.stderr
    for path in venv.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o222)

    program = tmp_path / "workers.py"
    program.write_text("import whyrss, sys\nassert whyrss.is_loaded() and sys.argv[1:] == ['--flag', '--', 'x']\n")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    recorded = run(venv / "bin/python", "-m", "whyrss", "run", program, "--flag", "--", "x", cwd=tmp_path, env=environment)
    assert recorded.returncode == 0, recorded.stderr
    program.write_text(WORKERS)
    recorded = run(venv / "bin/python", "-m", "whyrss", "run", "-q", "-o", "it", "--", program, cwd=tmp_path, env=environment)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, "done\n", "")
    script = Whyrss(venv / "bin/whyrss")
    report = script.report(tmp_path / "it")
    assert report["recording"]["command"][0] == str(venv / "bin/python")
    check_workers(report)
    assert run(venv / "bin/python", "-m", "whyrss", "run", cwd=tmp_path, env=environment).returncode == 125


def test_pip_removes_all_of_the_wheel(wheel, tmp_path):
    venv = tmp_path / "venv"
    made = run("/usr/bin/python3", "-m", "venv", venv)
    if made.returncode != 0:
        pytest.skip("Debian's python3 makes no venv")

    def files():
        return {path for path in venv.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    before = files()
    assert run(venv / "bin/pip", "install", "--no-index", wheel).returncode == 0
    assert len(files()) > len(before)
    assert run(venv / "bin/pip", "uninstall", "-y", "whyrss").returncode == 0
    assert files() == before


def test_a_folder_by_pip_target(wheel, tmp_path):
    needs("pip3")
    target = tmp_path / "target"
    installed = run("/usr/bin/python3", "-m", "pip", "install", "--no-index", "--target", target, wheel)
    assert installed.returncode == 0, installed.stderr
    recorded = run("/usr/bin/python3", "-m", "whyrss", "run", "-q", "-o", "it", "--", "-c", "print(1)", cwd=tmp_path,
                   env={**os.environ, "PYTHONPATH": str(target), "PATH": "/usr/bin:/bin"})
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (0, "1\n", "")
    assert (tmp_path / "it/manifest.json").exists()


def test_lintian_has_no_error_to_name(deb):
    needs("lintian")
    result = run("lintian", "--allow-root", "--fail-on", "error", deb)
    assert result.returncode == 0, result.stdout


@pytest.fixture
def system(tmp_path):
    """dpkg with a database and a tree of its own."""
    needs("dpkg")
    root, admin = tmp_path / "root", tmp_path / "dpkg"
    for path in (root, admin / "updates", admin / "info", admin / "triggers"):
        path.mkdir(parents=True)
    (admin / "status").touch()

    def dpkg(*arguments):
        return run("dpkg", "--admindir", admin, "--instdir", root, "--force-depends", "--force-not-root",
                   "--force-script-chrootless", "--log", tmp_path / "log", *arguments, env={**os.environ, "PATH": "/usr/sbin:/sbin:" + os.environ["PATH"]})
    return root, dpkg


def test_the_deb_comes_and_goes(deb, system, tmp_path):
    root, dpkg = system
    installed = dpkg("-i", deb)
    assert installed.returncode == 0, installed.stderr
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    whyrss = Whyrss(root / "usr/bin/whyrss")
    recorded = whyrss.record(tmp_path / "it", ["/usr/bin/python3", str(program)])
    assert (recorded.returncode, recorded.stdout) == (0, "done\n"), recorded.stderr
    check_workers(whyrss.report(tmp_path / "it"))
    modules = root / "usr/lib/python3/dist-packages"
    environment = {**os.environ, "PYTHONPATH": str(modules), "PATH": "/usr/bin:/bin"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    assert run("/usr/bin/python3", "-m", "whyrss", "--version", env=environment).stdout == whyrss.run("--version").stdout
    assert list(modules.glob("__pycache__/*.pyc"))  # they go with the package

    assert dpkg("-P", "whyrss").returncode == 0
    assert not [path for path in root.rglob("*") if not path.is_dir()]
    assert not list(root.glob("usr/lib/whyrss"))


ROOTS = ROOT / "build/roots"
SUITES = sorted(path.name for path in ROOTS.glob("*") if (path / "usr/bin/python3").exists()) if ROOTS.is_dir() else []
# $1 root file system, $2 place to write to, $3 the folder, $4 the .deb, $5 what is run
IN_ROOT = r"""
set -e
mkdir -p "$2/upper" "$2/work" "$2/root"
mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$2/root"
cd "$2/root"
mkdir -p proc dev sys opt/whyrss job
mount -t proc proc proc
mount --rbind /dev dev
mount --rbind /sys sys
mount --bind "$3" opt/whyrss
mount -o remount,bind,ro opt/whyrss
cp "$4" job/whyrss.deb
cp "$2/workers.py" job/
exec chroot . /bin/sh -ec "cd /job; $5"
"""
LISTED = "find / -xdev -path /proc -prune -o -path /job -prune -o -path '/var/*' -prune -o ! -name '*.pyc' ! -type d -print | sort"


@pytest.fixture(params=SUITES or [None])
def in_root_file_system(request, folder, deb, tmp_path):
    """Runs a shell script in a root file system, which stays as it is; (what it prints, its folder /job)."""
    if request.param is None:
        pytest.skip("no root file system in build/roots: tests/roots/run makes some")
    if os.geteuid() != 0:
        pytest.skip("chroot needs root")
    (tmp_path / "workers.py").write_text(WORKERS)

    def run_there(script):
        result = run("unshare", "--mount", "bash", "-c", IN_ROOT, "bash", ROOTS / request.param, tmp_path, folder, deb, script)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout, tmp_path / "upper/job"
    return run_there


def test_the_folder_in_a_root_file_system(in_root_file_system):
    output, job = in_root_file_system("/opt/whyrss/bin/whyrss record -q -o it -- python3 workers.py;"
                                      "/opt/whyrss/bin/whyrss report it --format json -o report.json")
    assert output == "done\n"
    check_workers(read_report((job / "report.json").read_text()))


def test_native_lines_in_a_root_file_system(in_root_file_system):
    """Of a program of that release: without debug information its stacks are functions and files."""
    _, job = in_root_file_system("/opt/whyrss/bin/whyrss record -q -o it -- perl -e 'my @kept = map { q(x) x 3000 } 1..20000';"
                                 "/opt/whyrss/bin/whyrss report it --format json -o report.json")
    (process,) = read_report((job / "report.json").read_text())["processes"]
    heap = [site for cause in process["causes"] if cause["cause"] in ("heap_live", "heap_retained") for site in cause["sites"]]
    known = sum(site["growth"] for site in heap
                if any("Perl_" in frame["function"] for frame in site["stack"] if frame["kind"] == "native"))
    assert known > 50 << 20 > 0.5 * sum(site["growth"] for site in heap) > 0


def test_the_deb_in_a_root_file_system(in_root_file_system):
    output, job = in_root_file_system(
        f"{LISTED} >before; dpkg -i whyrss.deb >/dev/null; whyrss record -q -o it -- python3 workers.py;"
        f"whyrss report it --format json -o report.json; python3 -m whyrss --version; dpkg -P whyrss >/dev/null; {LISTED} >after")
    assert re.fullmatch(r"done\nwhyrss [0-9.]+\n", output)
    assert (job / "before").read_text() == (job / "after").read_text() != ""
    check_workers(read_report((job / "report.json").read_text()))
