"""demos/recipes: each is run as it stands there, and what it expected_lines comes out."""
import itertools
import json
import os
import shutil
import subprocess
import threading

import pytest

import recipe_runs
from conftest import PATIENCE_S, ROOT, wait_until
from expected.report_reading import bytes_by_line, cause, read_report, verdicts
from memory_groups import MOUNT, remove
from recipe_runs import RECIPES, RecipeRuns, line_of, needs

MIB = 1 << 20
KEPT = line_of("train.py", "batches.append")


@pytest.fixture
def runs(whyrss, tmp_path, tmp_path_factory):
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents:  # other users' programs pass through, as where a service is installed
        if parent.is_relative_to(tmp_path_factory.getbasetemp().parent):
            parent.chmod(parent.stat().st_mode | 0o011)
    return RecipeRuns(whyrss, tmp_path)


def live_at(processes, line):
    """Live heap that a line made, summed over processes."""
    return sum(bytes_by_line(cause(process, "heap_live")["sites"], "growth", line) for process in processes)


def needs_module(name, package):
    if subprocess.run(["/usr/bin/python3", "-c", f"import {name}"], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"{package} is not installed")


def test_every_recipe_has_a_test():
    text = (ROOT / "tests/e2e/test_recipes.py").read_text()
    recipes = [path.name for path in RECIPES.iterdir() if path.is_file()]
    assert len(recipes) > 10
    assert not [name for name in recipes if f'"{name}"' not in text]


def test_other_output_is_found():
    assert recipe_runs.matches("  info  62 MiB at a.py:9 in ...", "  info  60.1 MiB at a.py:9 in load")
    assert not recipe_runs.matches("62 MiB at a.py:9", "55 MiB at a.py:9")
    assert not recipe_runs.matches("62 MiB at a.py:9", "62 MiB at a.py:10")
    assert not recipe_runs.matches("62 MiB at a.py:9", "62 KiB at a.py:9")


def check_answers(report):
    workers = [process for process in report["processes"] if live_at([process], line_of("app.py", "answers.append"))]
    assert len(workers) == 2
    assert live_at(workers, line_of("app.py", "answers.append")) == pytest.approx(400 * (MIB // 4), rel=0.05)
    assert report["recording"]["exit"]["code"] == 0 and report["recording"]["complete"]


def test_gunicorn(runs):
    needs("gunicorn")
    runs.follow("gunicorn.sh")
    check_answers(runs.report("web.whyrss"))


def test_uvicorn(runs):
    needs("gunicorn")
    needs_module("uvicorn", "python3-uvicorn")
    runs.follow("uvicorn.sh")
    check_answers(runs.report("web.whyrss"))


def test_celery(runs):
    needs_module("celery", "python3-celery")
    runs.follow("celery.sh")
    report = runs.report("worker.whyrss")
    assert live_at(report["processes"], line_of("tasks.py", "parsed.append")) == pytest.approx(60 * MIB, rel=0.05)
    assert report["recording"]["exit"] == {"code": 0, "signal": None, "oom_killed": False}


def test_pytest_xdist(runs):
    needs_module("xdist", "python3-pytest-xdist")
    runs.follow("pytest-xdist.sh", bare=False)
    kept = live_at(runs.report("tests.whyrss")["processes"], line_of("test_cache.py", "kept.append"))
    assert kept == pytest.approx(80 * MIB, rel=0.05)


def test_airflow(runs):
    runs.follow("airflow.sh")
    report = runs.report("tasks.whyrss")
    (task,) = [process for process in report["processes"] if live_at([process], line_of("transform.py", "bytes(1000)"))]
    assert live_at([task], line_of("transform.py", "bytes(1000)")) == pytest.approx(100_000 * 1040, rel=0.1)
    assert task["command"][-1] == "transform" and task["born"] == "fork"


def test_jupyter(runs):
    needs("jupyter-execute")
    needs_module("ipykernel", "python3-ipykernel")
    runs.follow("jupyter.sh", bare=False)
    (recording,) = (runs.folder / "recorded/home/.cache/whyrss").iterdir()
    report = read_report(runs.whyrss.report_text(recording, "--from", "In[2]", "--to", "In[2]"))
    assert live_at(report["processes"], ("In[2]", 4)) == pytest.approx(40 * MIB, rel=0.05)


# --- containers

IMAGE_PACKAGES = """python3-minimal python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libc-bin dash coreutils
zlib1g libexpat1 base-files base-passwd libacl1 libattr1 libgmp10 libselinux1 libpcre2-8-0 libssl3 libbz2-1.0 liblzma5 libffi8
libuuid1 libgcc-s1"""
IMAGE = "localhost/small-python"


def make_root(root):
    """A root file system with python3, of this machine's own packages."""
    for name in ("bin", "lib", "lib64", "sbin"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    listed = subprocess.run(["dpkg", "-L", *IMAGE_PACKAGES.split()], capture_output=True, text=True, check=False).stdout
    paths = {line for line in listed.splitlines() if line.startswith("/") and not line.startswith("/usr/share/")}
    paths = sorted(path.lstrip("/") for path in paths - {"/.", "/bin", "/lib", "/lib64", "/sbin"} if os.path.lexists(path))
    packed = subprocess.run(["tar", "-C", "/", "-c", "--no-recursion", "-T", "-"], input="\n".join(paths).encode(),
                            stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "-C", root, "-x", "--keep-directory-symlink"], input=packed.stdout, check=True)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    if os.geteuid() != 0 or not shutil.which("dpkg") or not os.path.exists("/usr/bin/python3.11"):
        pytest.skip("the image is made as root from Debian 12's own Python")
    folder = tmp_path_factory.mktemp("images")
    make_root(folder / IMAGE)
    shutil.copytree(RECIPES / "programs", folder / IMAGE / "app")
    return folder


# crun knows no mix of cgroup v1 and v2: with v2 hidden, which has no controllers there, it finds v1.
ENTER = """#!/bin/bash
exec unshare -m bash -c 'if [[ -d /sys/fs/cgroup/unified ]]; then mount -t tmpfs tmpfs /sys/fs/cgroup/unified; fi
  exec "$@"' docker {command} "$@"
"""


def engine_of_crun(images):
    needs("crun")
    if not os.path.exists("/usr/share/containers/seccomp.json"):
        pytest.skip("golang-github-containers-common is not installed")
    return {"docker": ENTER.format(command=f"/usr/bin/python3 -B {ROOT}/tests/e2e/docker_by_crun.py {images}")}, {}


def engine_of_podman(images):
    needs("podman")
    (images / "containers.conf").write_text('[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
                                            '[engine]\ncgroup_manager = "cgroupfs"\n')
    (images / "storage.conf").write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{images}/store"\nrunroot = "{images}/run"\n')
    variables = {"CONTAINERS_CONF": str(images / "containers.conf"), "CONTAINERS_STORAGE_CONF": str(images / "storage.conf")}
    if not (images / "store").exists():
        subprocess.run(f"tar -C {images / IMAGE} -c . | podman import -q - {IMAGE}", shell=True, check=True,
                       env={**os.environ, **variables}, capture_output=True)
    return {"docker": ENTER.format(command="podman")}, variables


ENGINES = {"crun": engine_of_crun, "podman": engine_of_podman}


@pytest.fixture(params=ENGINES)
def containers(request, images, runs):
    """(the command docker, the environment that it needs), of one engine after the other."""
    commands, variables = ENGINES[request.param](images)
    variables["IMAGE"] = IMAGE
    probe = runs.folder / "probe"
    probe.write_text(commands["docker"])
    probe.chmod(0o755)
    tried = subprocess.run([probe, "run", "--rm", IMAGE, "true"], env={**os.environ, **variables}, capture_output=True, text=True,
                           check=False)
    if tried.returncode != 0:
        pytest.skip(f"{request.param} runs no container here: {tried.stderr.strip().splitlines()[-1:]}")
    return commands, variables


def check_training(report, mib=60):
    (process,) = [process for process in report["processes"] if process["python"]]
    assert live_at([process], KEPT) == pytest.approx(mib * MIB, rel=0.05)
    return process


@pytest.mark.parametrize("recipe", ["container-mounted.sh", "container-locked.sh"])
def test_container(runs, containers, recipe):
    commands, variables = containers
    runs.follow(recipe, commands, **variables)
    report = runs.report("out/job-*")
    assert check_training(report)["pid"] == 1
    assert report["recording"]["exit"] == {"code": 0, "signal": None, "oom_killed": False}
    assert report["recording"]["lost"]["events"] == 0


def test_container_with_the_pids_of_the_host(runs, containers):
    commands, variables = containers
    runs.follow("container-pid.sh", commands, **variables)
    report = runs.report("out/job-*")
    check_training(report)
    assert report["recording"]["complete"]


def test_container_at_its_limit(runs, containers):
    commands, variables = containers
    runs.follow("container-limit.sh", commands, **variables)
    report = runs.report("out/job-*")
    (verdict,) = verdicts(report, "killed")
    assert verdict["evidence"]["limit_bytes"] == 100 * MIB
    (process,) = report["processes"]
    # No snapshot has what it took in the last moment.
    assert 80 * MIB < live_at([process], KEPT) <= 100 * MIB
    assert cause(process, "unknown")["rss"]["last"] < 4 * MIB


@pytest.mark.parametrize("containers", ["podman"], indirect=True)
def test_container_with_the_tool_in_its_image(runs, containers):
    """crun alone builds no images."""
    commands, variables = containers
    runs.follow("container-image.sh", commands, bare=False, **variables)
    report = runs.report("out/job")
    check_training(report)
    assert report["recording"]["complete"]


# --- Kubernetes

VALIDATE = """
import { Pod } from "kubernetes-models/v1/Pod";
let text = "";
process.stdin.on("data", (part) => (text += part)).on("end", () => new Pod(JSON.parse(text)).validate());
"""


@pytest.fixture
def manifest():
    yaml = pytest.importorskip("yaml", reason="python3-yaml is not installed")
    return yaml.safe_load((RECIPES / "kubernetes.yaml").read_text())


def test_manifest_by_the_schema_of_kubernetes(whyrss, manifest):
    readers = ROOT / "build/readers"
    if not shutil.which("node") or not (readers / "node_modules/kubernetes-models").exists():
        pytest.skip("no kubernetes-models: tests/fetch-readers")

    def errors(pod):
        return subprocess.run(["node", "--input-type=module", "-e", VALIDATE], input=json.dumps(pod), cwd=readers, text=True, capture_output=True,
                              check=False).stderr
    assert errors(manifest) == ""
    del manifest["spec"]["containers"][0]["volumeMounts"][0]["mountPath"]
    assert "mountPath" in errors(manifest)


def docker_words(container, spec, folders):
    """What `docker run` needs to run a container of a pod."""
    words = ["run", "--rm"] + (["--pid", "host"] if spec["shareProcessNamespace"] else [])
    for mount in container["volumeMounts"]:
        words += ["-v", f"{folders[mount['name']]}:{mount['mountPath']}" + (":ro" if mount.get("readOnly") else "")]
    for variable in container.get("env", []):
        words += ["-e", f"{variable['name']}={variable['value']}"]
    if "resources" in container:
        words += ["--memory", container["resources"]["limits"]["memory"].replace("Mi", "m")]
    return [*words, container["image"], *container["command"]]


@pytest.fixture
def image_with_the_folder(whyrss, images):
    tool = images / "localhost/whyrss"
    shutil.copytree(images / IMAGE, tool, symlinks=True)
    for name in ("bin/whyrss", "lib/libwhyrss.so"):
        (tool / "opt/whyrss" / name).parent.mkdir(parents=True)
        shutil.copy(whyrss.program.parent.parent / name, tool / "opt/whyrss" / name)


@pytest.mark.usefixtures("image_with_the_folder")
def test_kubernetes(runs, images, manifest):
    """The pod's containers by crun: its volumes are folders, and the namespace that they share is the host's."""
    commands, _ = engine_of_crun(images)
    docker = runs.folder / "docker"
    docker.write_text(commands["docker"])
    docker.chmod(0o755)
    spec = manifest["spec"]
    folders = {volume["name"]: runs.folder / volume["name"] for volume in spec["volumes"]}
    for folder in folders.values():
        folder.mkdir()
    for container in spec["initContainers"]:
        subprocess.run([docker, *docker_words(container, spec, folders)], check=True)
    started = [subprocess.Popen(["timeout", str(PATIENCE_S), docker, *docker_words(container, spec, folders)], stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True) for container in spec["containers"]]
    output = "".join(process.communicate()[0] for process in started)
    assert [process.returncode for process in started] == [0, 0], output
    assert not recipe_runs.missing_lines(RECIPES / "kubernetes.yaml", output), output
    report = runs.whyrss.report(folders["recording"] / "job")
    check_training(report)
    assert report["recording"]["complete"]


# --- batch systems

ALONE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "--uts", "--mount", "--ipc"]
CLUSTER = [*ALONE, "bash", ROOT / "tests/e2e/slurm_cluster.sh"]
ROWS = line_of("rank.py", "rows.append")


@pytest.fixture
def on_cluster(runs):
    """on_cluster(COMMAND) -> its output, on two nodes of Slurm that are made for it."""
    needs("slurmctld", "slurmd", "munged", "ip")
    tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces for a cluster here: {tried.stderr.strip()}")
    work = recipe_runs.copied_files(runs.folder, {})
    cluster = runs.folder / "cluster"
    cluster.mkdir()

    def run(script):
        done = subprocess.run([*CLUSTER, cluster, "bash", "-c", script], cwd=work, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=PATIENCE_S, check=False,
                              env=recipe_runs.environment(runs.whyrss, runs.folder, {"CLUSTER": str(cluster)}))
        assert done.returncode == 0, done.stdout
        return done.stdout
    runs.work = work
    return run


def test_slurm(runs, on_cluster):
    output = on_cluster(f"sbatch --wait --output=out {RECIPES / 'slurm.sh'} && cat out")
    broken = recipe_runs.missing_lines(RECIPES / "slurm.sh", output)
    assert not broken, "\n".join([*broken, output])
    recordings = [runs.whyrss.report(path) for path in sorted(runs.work.glob("rec/node?-*"))]
    assert [report["recording"]["host"] for report in recordings] == ["node1", "node2"]
    processes = [process for report in recordings for process in report["processes"]]
    assert live_at(processes, ROWS) == pytest.approx((3 * 20 + 80) * MIB, rel=0.05)
    assert max(live_at([process], ROWS) for process in processes) == pytest.approx(80 * MIB, rel=0.05)


def test_slurm_task_prolog(runs, on_cluster):
    """The tasks' own command line and output stay."""
    prolog = RECIPES / "slurm-task-prolog.sh"
    output = on_cluster(f"mkdir rec; srun -N2 --ntasks-per-node=1 --task-prolog={prolog} python3 train.py 60")
    assert [line for line in output.splitlines() if "batches" in line] == ["60 batches"] * 2
    for path in sorted(runs.work.glob("rec/node?-*")):
        check_training(runs.whyrss.finished_report(path))
    assert len(list(runs.work.glob("rec/node?-*"))) == 2


LOSE_A_NODE = """
mkdir rec
eval "srun -N2 --ntasks-per-node=1 $(whyrss env --for slurm -o "$PWD/rec/%h-%j") python3 train.py 400" &
job=$!
until grep -q 'train.py' rec/node2-1/process-*/* 2>/dev/null || [ -e rec/node2-1/manifest.json ]; do sleep 0.1; done
sleep 1
kill -9 "$(cat "$CLUSTER/slurmd.node2.pid")"
kill -9 "$(sed -nE 's/.*"pid": *([0-9]+).*/\\1/p' rec/node2-1/manifest.json | tail -1)"
wait $job
whyrss reduce rec/node1-* -o 0.part
export SLURM_JOB_NODELIST='node[1-2]'
whyrss merge 0.part -o one.whyrss-job --nodes 'node[1-2]' && whyrss report one.whyrss-job
whyrss merge 0.part rec/node2-* -o both.whyrss-job && whyrss report both.whyrss-job
"""


def test_slurm_loses_a_node(on_cluster):
    """The node's daemon and its collector are killed: the job's report names what is missing, or what is incomplete."""
    output = on_cluster(LOSE_A_NODE)
    one, both = output.split("What is missing")[1:3]
    assert "node2" in one, output
    assert "2 ranks on 2 nodes" in output and "node2" in both, output


def test_openmpi(runs):
    needs("mpirun")
    runs.follow("openmpi.sh")
    recordings = [runs.whyrss.report(path) for path in sorted(runs.work.glob("rec/*"))]
    grown = [live_at(report["processes"], ROWS) for report in recordings]
    assert grown == pytest.approx([20 * MIB] * 3 + [80 * MIB], rel=0.06)


# --- systemd

@pytest.fixture
def systemd(whyrss):
    """The output of systemd_host.sh."""
    needs("systemctl", "systemd-analyze")
    tried = subprocess.run([*ALONE, "true"], capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"no namespaces for a systemd here: {tried.stderr.strip()}")
    name = f"whyrss-systemd-{os.getpid()}"
    script = [ROOT / "tests/e2e/systemd_host.sh", name, whyrss.program, RECIPES / "train.service", RECIPES / "programs"]
    host = subprocess.Popen([*ALONE, "bash", *script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)
    watch = threading.Timer(PATIENCE_S, host.kill)
    watch.start()
    lines = list(itertools.takewhile(lambda line: line != "=== end\n", host.stdout))
    watch.cancel()
    host.kill()
    host.wait()
    host.stdout.close()
    groups = [path for kind in MOUNT.iterdir() for path in (kind / name).rglob("*") if path.is_dir()]
    groups = sorted(groups, reverse=True) + [kind / name for kind in MOUNT.iterdir() if (kind / name).is_dir()]
    for group in groups:
        wait_until(lambda group=group: remove(group), f"{group} is removed")
    return "".join(lines)


def test_systemd(systemd):
    first, second = systemd.split("=== a smaller limit\n")
    assert "ExecMainStatus=0" in first and "Result=success" in first, first
    broken = recipe_runs.missing_lines(RECIPES / "train.service", first)
    assert not broken, "\n".join([*broken, first])
    # Killed at its limit, as it is without whyrss.
    assert "ExecMainStatus=9" in second, second
    assert "killed by the kernel at the memory limit of 40 MiB" in second, second
