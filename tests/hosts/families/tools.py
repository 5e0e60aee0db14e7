"""Compilers, build tools and filters: trees of short programs, programs with threads, much data through pipes."""
from harness.host import PROGRAMS, Host, files_made

C_SOURCE = PROGRAMS / "allocate.c"
CC_SOURCE = PROGRAMS / "templates.cc"
MAKEFILE = """
all: probe
out/%: ; @mkdir -p out; printf '%s' $* | sha256sum > $@; test $$(( $* % 7 )) != 0 || sort $@ > $@.sorted
probe: sub $(addprefix out/,$(shell seq 1 60)) ; @"$(PROBE)"
sub: ; @+$(MAKE) --no-print-directory -f ../Makefile inner
inner: a.o b.o c.o ; @cat $^ | cksum
%.o: ; @echo $* > $@
.PHONY: all probe sub inner
"""
REPOSITORY = r"""
git init -q -b main origin && cd origin && git config user.name a && git config user.email a@example.org
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
i=0; while [ $i -lt 60 ]; do
  seq $i $((i * 37 + 2000)) > "file$((i % 12))"; git add . && git commit -q -m "commit $i"; i=$((i+1))
done
"""
GIT = r"""
git clone -q --no-local "$SCENE/origin" copy && cd copy && git config pack.threads 2
git -c alias.probe='!"$PROBE"' probe
git gc -q --aggressive --prune=now && git fsck --full --no-progress && git count-objects -v | grep -v size
git rev-parse HEAD; git log --stat --oneline | cksum; git checkout -q -b other HEAD~5; git merge -q main; git status -s
git archive HEAD | sha256sum; git grep -c 777 | sort
"""
TAR = r"""
tar -cf - --sort=name --mtime=@0 --owner=0 --group=0 --mode=0644 -C "$SCENE" data | xz -T2 -6 > data.tar.xz
sha256sum < data.tar.xz; mkdir out; tar -xf data.tar.xz -C out; cat out/data/* | sha256sum; xz -t data.tar.xz
tar -czf data.tar.gz -C out data && tar -tzf data.tar.gz | sort
"""


def numbers(count):
    """A preparation: files of numbers in no order."""
    def prepare(scene):
        for name in "abc":
            scene.write(f"data/{name}", "".join(f"{i * 2654435761 % 4294967291 * (ord(name) - 96)}\n" for i in range(count)))
    return prepare


def shell(script):
    return lambda _scene: ["/bin/sh", "-ec", script]


def hosts(_options):
    compile_c = [C_SOURCE, "-O2", "-c", "-o", "out.o"]
    compile_cc = [CC_SOURCE, "-O2", "-std=c++17", "-c", "-o", "out.o"]
    return [
        Host("tools/gcc", lambda _: ["/usr/bin/gcc", *compile_c], ("gcc",), outcome=files_made("out.o"), files_at_exec=False),
        Host("tools/g++", lambda _: ["/usr/bin/g++", *compile_cc], ("g++",), outcome=files_made("out.o"),
             files_at_exec=False),
        Host("tools/g++-lto", lambda _: ["/usr/bin/g++", CC_SOURCE, "-O2", "-std=c++17", "-flto=2", "-pipe", "-o", "out"],
             ("g++",), files_at_exec=False),
        Host("tools/clang", lambda _: ["/usr/bin/clang", *compile_c], ("clang",), outcome=files_made("out.o"),
             files_at_exec=False),
        Host("tools/clang++", lambda _: ["/usr/bin/clang++", *compile_cc], ("clang",), outcome=files_made("out.o"),
             files_at_exec=False),
        Host("tools/make", lambda _: ["/usr/bin/make", "-j4", "-Otarget", "-f", "../Makefile"], ("make",),
             lambda scene: scene.write("Makefile", MAKEFILE)),
        Host("tools/git", shell(GIT), ("git",), lambda scene: scene.prepare("/bin/sh", "-ec", REPOSITORY)),
        Host("tools/tar-xz", shell(TAR), ("xz-utils",), numbers(60_000), files_at_exec=False),
        Host("tools/sort", shell('sort --parallel=2 -S 4M -T . --compress-program=gzip "$SCENE"/data/* | sha256sum'),
             prepare=numbers(200_000), files_at_exec=False),
        Host("tools/find-xargs", shell("find /usr/share/doc -type f -print0 | sort -z | xargs -0 -n 50 -P 2 cksum | sort | "
                                       "sha256sum"), files_at_exec=False),
        Host("tools/cmake", shell('cmake -S "$SCENE/project" -B b >/dev/null && cmake --build b -j2 >/dev/null && b/made'),
             ("cmake", "g++"), prepare_cmake, files_at_exec=False, limit_s=300),
    ]


def prepare_cmake(scene):
    scene.write("project/made.c", "#include <stdio.h>\nint main(void) { puts(\"made\"); return 0; }\n")
    scene.write("project/CMakeLists.txt", "cmake_minimum_required(VERSION 3.20)\nproject(made C)\nadd_executable(made made.c)\n")
