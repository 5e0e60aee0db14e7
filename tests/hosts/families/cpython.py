"""CPython's own tests, on each CPython that pyenv has: the same tests pass, fail and are skipped, test by test."""
import pathlib
import re
import xml.etree.ElementTree

from harness.host import CannotRun, Host

VERSIONS = pathlib.Path.home() / ".pyenv/versions"
OLDEST = (3, 8)
TESTS = ["test_os", "test_posix", "test_subprocess", "test_multiprocessing_fork", "test_multiprocessing_spawn",
         "test_multiprocessing_forkserver", "test_multiprocessing_main_handling", "test_concurrent_futures", "test_threading", "test_thread", "test_signal", "test_gc",
         "test_faulthandler", "test_mmap", "test_ctypes", "test_capi", "test_json", "test_pickle", "test_fork1", "test_wait3",
         "test_wait4", "test_popen", "test_pty", "test_select", "test_selectors", "test_resource", "test_sys", "test_tracemalloc",
         "test_weakref", "test_io", "test_exceptions", "test_embed", "test_sys_settrace", "test_dict", "test_zlib", "test_sqlite3",
         "test_decimal", "test_asyncio", "test_shutil", "test_tempfile", "test_socket", "test_c_locale_coercion",
         "test_cmd_line", "test_regrtest", "test_generators", "test_buffer", "test_memoryview", "test_array", "test_bytes"]
LONG = ("test_asyncio", "test_regrtest", "test_concurrent_futures", "test_socket", "test_subprocess",
        "test_multiprocessing_fork", "test_multiprocessing_spawn", "test_multiprocessing_forkserver")


def interpreters(chosen):
    """version -> program, of those that were asked for."""
    found = {}
    for folder in VERSIONS.glob("*"):
        numbers = re.match(r"(\d+)\.(\d+)\.", folder.name)
        if not numbers or (int(numbers[1]), int(numbers[2])) < OLDEST:
            continue
        version = f"{numbers[1]}.{numbers[2]}"
        if not chosen or version in chosen:
            found[version] = folder / "bin" / f"python{version}"
    return dict(sorted(found.items(), key=lambda entry: int(entry[0].split(".")[1])))


def outcomes(scene, output):
    """test -> passed, failed, error or skipped. Where the run did not live to write them, what it said last."""
    try:
        tree = xml.etree.ElementTree.parse(scene.work / "junit.xml")
    except (OSError, xml.etree.ElementTree.ParseError):
        return {"results": f"none: {' '.join(output.split()[-20:])}"}
    found = {}
    for case in tree.iter("testcase"):
        said = {child.tag for child in case} & {"failure", "error", "skipped"}
        found[case.get("name") or "without a name"] = ",".join(sorted(said)) or "passed"
    return found


def one_test(version, python, name):
    def prepare(_scene):
        folder = python.parents[1] / f"lib/python{version}/test"
        if not (folder / f"{name}.py").exists() and not (folder / name).is_dir():
            raise CannotRun(f"CPython {version} has no {name}")

    def command(_scene):
        return [python, "-m", "test", "-v", "--junit-xml", "junit.xml", "--tempdir", ".", name]
    return Host(f"cpython/{version}/{name}", command, prepare=prepare, outcome=outcomes, ends=None,
                limit_s=900 if name in LONG else 420, files_at_exec=False)


def hosts(options):
    chosen = [version for version in options.pythons.split(",") if version]
    tests = [test for test in options.python_tests.split(",") if test] or TESTS
    return [one_test(version, python, name) for version, python in interpreters(chosen).items() for name in tests]
