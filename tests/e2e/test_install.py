"""`cmake --install`: what is in the tree, a CMake project that uses it, the manual page and what a shell completes."""
import os
import pathlib
import re
import shutil

import pytest

from conftest import Whyrss, run

VERSION = re.compile(r"project\(whyrss VERSION (\S+)")
ROOT = pathlib.Path(__file__).resolve().parents[2]

CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.13)
project(consumer LANGUAGES C CXX)
find_package(whyrss %s REQUIRED)
add_executable(consumer consumer.cc)
target_link_libraries(consumer PRIVATE whyrss::whyrss)
"""
CONSUMER_SOURCE = r"""
#include <whyrss.h>
#include <cstdio>
#include <vector>
static std::vector<char> block;
__attribute__((noinline)) static void keep() { block.assign(40 << 20, 'x'); }
int main() {
  WHYRSS_PHASE_BEGIN("keeping");
  keep();
  WHYRSS_PHASE_END("keeping");
  return std::puts(whyrss_mark != nullptr ? "recorded" : "bare") < 0;
}
"""


@pytest.fixture(scope="module")
def prefix(whyrss, tmp_path_factory):
    if not shutil.which("cmake"):
        pytest.skip("cmake is not installed")
    place = tmp_path_factory.mktemp("install") / "prefix"
    installed = run("cmake", "--install", whyrss.build, "--prefix", place)
    assert installed.returncode == 0, installed.stderr
    return place


@pytest.fixture(scope="module")
def installed(prefix):
    return Whyrss(prefix / "bin/whyrss")


def version():
    return VERSION.search((ROOT / "CMakeLists.txt").read_text())[1]


def test_destdir_and_prefix(whyrss, prefix, tmp_path):
    staged = run("cmake", "--install", whyrss.build, "--prefix", "/usr/local", env={**os.environ, "DESTDIR": str(tmp_path)})
    assert staged.returncode == 0, staged.stderr

    def names(folder):
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names(tmp_path / "usr/local") == names(prefix)
    assert {"bin/whyrss", "lib/libwhyrss.so", "lib/whyrss/own_allocator", "include/whyrss.h", "lib/python/whyrss.py",
            "lib/cmake/whyrss/whyrss-config.cmake", "share/man/man1/whyrss.1", "share/doc/whyrss/LICENSE",
            "share/bash-completion/completions/whyrss", "share/zsh/site-functions/_whyrss",
            "share/fish/vendor_completions.d/whyrss.fish"} <= names(prefix)


def test_a_project_finds_it(installed, prefix, recording, tmp_path):
    project, build = tmp_path / "consumer", tmp_path / "consumer-build"
    project.mkdir()
    (project / "CMakeLists.txt").write_text(CONSUMER_CMAKE % version())
    (project / "consumer.cc").write_text(CONSUMER_SOURCE)
    configured = run("cmake", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix}", "-DCMAKE_CXX_FLAGS=-g")
    assert configured.returncode == 0, configured.stderr
    built = run("cmake", "--build", build)
    assert built.returncode == 0, built.stdout
    assert run(build / "consumer").stdout == "bare\n"

    result = installed.record(recording, [str(build / "consumer")])
    assert (result.returncode, result.stdout, result.stderr) == (0, "recorded\n", "")
    report = installed.finished_report(recording)
    assert [phase["name"] for phase in report["phases"]] == ["keeping"]
    (process,) = report["processes"]
    live = next(cause for cause in process["causes"] if cause["cause"] == "heap_live")
    (site,) = [site for site in live["sites"] if site["growth"] >= 40 << 20]
    assert "keep" in [frame["function"].partition("(")[0] for frame in site["stack"]]


def test_a_project_that_wants_another_version_gets_an_error(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE % "99.0")
    configured = run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    assert configured.returncode != 0 and f"version: {version()}" in configured.stderr


def verbs(installed):
    return re.findall(r"^  whyrss ([a-z][a-z-]*)", installed.run("--help").stdout, re.M)


def options_of(installed, verb):
    return set(re.findall(r"^ +(?:-[a-z],)?(--[a-z-]+)", installed.run(verb, "--help").stdout, re.M))


def test_the_manual_page_has_every_option(installed, prefix):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    page = run("man", "--warnings=w", "-l", prefix / "share/man/man1/whyrss.1", env={**os.environ, "MANWIDTH": "120"})
    assert (page.returncode, page.stderr) == (0, "")
    text = re.sub("[\u2010\u2011\u2212]", "-", page.stdout)
    for verb in verbs(installed):
        assert f"\n{verb.upper()}\n" in text
        for option in options_of(installed, verb):
            assert option in text, (verb, option)


def test_the_manual_page_fits_80_columns(prefix):
    if not shutil.which("man"):
        pytest.skip("man is not installed")
    page = run("man", "-Tutf8", "-l", prefix / "share/man/man1/whyrss.1", env={**os.environ, "MANWIDTH": "80"})
    text = re.sub("\x1b\\[[0-9;]*m|.\b", "", page.stdout)
    assert page.returncode == 0 and not [line for line in text.splitlines() if len(line) > 80]


def complete_in_bash(prefix, *words):
    """What bash offers for the last one of these words of a command line."""
    script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _whyrss; printf "%s\\n" "${COMPREPLY[@]}"'
    result = run("bash", "-c", script, "bash", prefix / "share/bash-completion/completions/whyrss", prefix / "bin/whyrss",
                 *words)
    assert (result.returncode, result.stderr) == (0, "")
    return set(result.stdout.split())


def complete_in_zsh(prefix, *words):
    """The same of zsh, whose completion system is stood in for: it takes a terminal."""
    script = ('compadd() { [[ $1 == -- ]] && shift; print -l -- "$@"; }; _call_program() { shift; eval "$@"; }\n'
              '_command_names() { :; }; _files() { print files; }; _normal() { print normal; }\n'
              'file=$1; shift; words=("$@"); CURRENT=$#; source $file')
    result = run("zsh", "-f", "-c", script, "zsh", prefix / "share/zsh/site-functions/_whyrss", "whyrss", *words,
                 env={**os.environ, "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"})
    assert (result.returncode, result.stderr) == (0, "")
    return set(result.stdout.split())


def complete_in_fish(prefix, *words):
    """The same of fish, which says itself what it would offer, and explanations behind a tab."""
    result = run("fish", "-N", "-c", 'source $argv[1]; complete -C "$argv[2]"',
                 prefix / "share/fish/vendor_completions.d/whyrss.fish", " ".join(["whyrss", *words]),
                 env={**os.environ, "PATH": f"{prefix / 'bin'}:{os.environ['PATH']}"})
    assert (result.returncode, result.stderr) == (0, "")
    return {line.split("\t")[0] for line in result.stdout.splitlines()}


@pytest.mark.parametrize("shell, complete", [("bash", complete_in_bash), ("zsh", complete_in_zsh),
                                             ("fish", complete_in_fish)])
def test_shells_complete(installed, prefix, shell, complete):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    assert set(verbs(installed)) <= complete(prefix, "")
    for verb in verbs(installed):
        assert options_of(installed, verb) == complete(prefix, verb, "--"), verb
    assert complete(prefix, "record", "--mode", "") == {"sampled", "exact"}
    assert complete(prefix, "no-such-verb", "--mo") in (set(), {"normal"})
