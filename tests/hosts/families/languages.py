"""Programs of other languages: their collectors, threads, signal handlers, and how they start programs."""
from harness.host import PROGRAMS, Host, files_made

GO = {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "GO111MODULE": "auto", "GOPROXY": "off"}
SQL = r"""
create table t (i integer primary key, v text, b blob);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
  insert into t select i, printf('%x', i * 7919), zeroblob(i % 300) from n;
create index tv on t (v); select count(*), sum(length(b)), max(v) from t;
.shell "$PROBE"
delete from t where i % 3 = 0; vacuum; select count(*) from t;
select v, count(*) over (order by i rows 5 preceding) from t order by v desc limit 3;
pragma integrity_check;
"""


def script(program, name, *options):
    """A command: the interpreter with a script of tests/hosts/programs."""
    return lambda _scene: [program, *options, PROGRAMS / name]


def prepare_java(scene):
    scene.prepare("javac", "-d", scene.folder, PROGRAMS / "Work.java")


def java(*options):
    return lambda scene: ["/usr/bin/java", *options, "-cp", scene.folder, "Work"]


def prepare_rust(scene):
    scene.prepare("/usr/bin/rustc", "-O", "-g", "-o", scene.folder / "made", PROGRAMS / "work.rs")


def go_environment(scene):
    return {**GO, "GOCACHE": str(scene.folder / "cache"), "GOPATH": str(scene.folder / "path")}


def prepare_go(source, cgo):
    def prepare(scene):
        scene.prepare("/usr/bin/go", "build", "-o", scene.folder / "made", PROGRAMS / source, CGO_ENABLED=cgo,
                      **go_environment(scene))
    return prepare


def go_compiler(scene):
    variables = [f"{name}={value}" for name, value in {**go_environment(scene), "CGO_ENABLED": "0"}.items()]
    script_text = f'cp -al "$SCENE/cache" cache; GOCACHE=$PWD/cache go build -o out {PROGRAMS}/work.go; ./out'
    return ["/usr/bin/env", *variables, "/bin/sh", "-ec", script_text]


def work(scene):
    return [scene.folder / "made"]


def hosts(_options):
    jdk = ("openjdk-17-jdk-headless",)
    return [
        Host("languages/node", script("/usr/bin/node", "work.js"), ("nodejs",), ends=5),
        Host("languages/java", java(), jdk, prepare_java, ends=4),
        Host("languages/java-parallel", java("-XX:+UseParallelGC", "-Xmx256m"), jdk, prepare_java, ends=4),
        Host("languages/javac", lambda _: ["/usr/bin/javac", "-d", ".", PROGRAMS / "Work.java"], jdk,
             outcome=files_made("Work.class"), files_at_exec=False),
        Host("languages/ruby", script("/usr/bin/ruby", "work.rb"), ("ruby",), ends=6),
        Host("languages/php", script("/usr/bin/php", "work.php", "-d", "memory_limit=1G"), ("php-cli",), ends=9),
        Host("languages/perl", script("/usr/bin/perl", "work.pl"), ("perl",), ends=5),
        Host("languages/python", script("/usr/bin/python3", "work.py"), ("python3",), ends=4),
        Host("languages/sqlite", lambda scene: ["/bin/sh", "-c", f"sqlite3 d.db < {scene.folder}/work.sql"], ("sqlite3",),
             lambda scene: scene.write("work.sql", SQL)),
        Host("languages/rust", work, ("rustc",), prepare_rust, ends=8),
        Host("languages/rustc", lambda _: ["/usr/bin/rustc", "-O", "-o", "out", PROGRAMS / "work.rs"], ("rustc",),
             outcome=files_made("out"), files_at_exec=False),
        Host("languages/go", work, ("golang-go",), prepare_go("work.go", "0"), reported=False, limit_s=300, ends=3),
        Host("languages/go-cgo", work, ("golang-go", "gcc"), prepare_go("work_cgo.go", "1"), limit_s=300, ends=3),
        Host("languages/go-build", go_compiler, ("golang-go",), prepare_go("work.go", "0"), limit_s=300, ends=3),
    ]
