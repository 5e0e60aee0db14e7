"""`docker run` by crun, for machines without Docker and Podman: the same OCI settings, and Docker's default seccomp profile.

docker_by_crun.py IMAGES run OPTION... IMAGE COMMAND...     an image is a folder below IMAGES: its root file system
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import uuid

PROFILE = pathlib.Path("/usr/share/containers/seccomp.json")  # golang-github-containers-common
CAPABILITIES = ["CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
                "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"]
MASKED = ["/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/sched_debug", "/proc/scsi",
          "/sys/firmware"]
READ_ONLY = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"]


def parse(words):
    parser = argparse.ArgumentParser(prog="docker", allow_abbrev=False)
    parser.add_argument("verb", choices=["run"])
    parser.add_argument("--rm", action="store_true", required=True)
    parser.add_argument("-v", dest="volumes", action="append", default=[])
    parser.add_argument("-e", dest="environment", action="append", default=[])
    parser.add_argument("--user", default="0:0")
    parser.add_argument("--read-only", action="store_true")
    parser.add_argument("--memory", default="")
    parser.add_argument("--pid", choices=["host"])
    parser.add_argument("--cap-drop", choices=["ALL"])
    parser.add_argument("--security-opt", choices=["no-new-privileges"])
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args(words)


def rules(capabilities):
    """The profile's rules for this machine and these capabilities, as the runtime wants them."""
    profile = json.loads(PROFILE.read_text())
    held = set(capabilities)

    def applies(rule):
        wanted, excluded = rule["includes"] or {}, rule["excludes"] or {}
        return (set(wanted.get("caps", [])) <= held and not set(excluded.get("caps", [])) & held
                and "amd64" in wanted.get("arches", ["amd64"]))
    chosen = []
    for rule in filter(applies, profile["syscalls"]):
        entry = {"names": rule["names"], "action": rule["action"],
                 "args": [{"index": one["index"], "value": one["value"], "valueTwo": one["valueTwo"], "op": one["op"]}
                          for one in rule["args"] or []]}
        if "errnoRet" in rule:
            entry["errnoRet"] = rule["errnoRet"]
        chosen.append(entry)
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile["defaultErrnoRet"],
            "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"], "syscalls": chosen}


def mounts(options):
    def file_system(where, kind, *flags):
        return {"destination": where, "type": kind, "source": kind, "options": list(flags)}
    found = [file_system("/proc", "proc"),
             file_system("/dev", "tmpfs", "nosuid", "strictatime", "mode=755", "size=65536k"),
             file_system("/dev/pts", "devpts", "nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"),
             file_system("/dev/shm", "tmpfs", "nosuid", "noexec", "nodev", "mode=1777", "size=65536k"),
             {"destination": "/sys", "type": "none", "source": "/sys", "options": ["rbind", "nosuid", "noexec", "nodev", "ro"]}]
    for volume in options.volumes:
        source, destination, *flags = volume.split(":")
        found.append({"destination": destination, "type": "none", "source": source, "options": ["rbind", *(flags or ["rw"])]})
    return found


def settings(options, root, name):
    user, group = map(int, options.user.split(":"))
    capabilities = [] if options.cap_drop else CAPABILITIES
    held = [] if user else capabilities  # what a program of an ordinary user is left with
    namespaces = ["network", "ipc", "uts", "mount"] + ([] if options.pid else ["pid"])
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": name,
                   **dict(word.split("=", 1) for word in options.environment)}
    return {
        "ociVersion": "1.0.0",
        "root": {"path": str(root), "readonly": options.read_only},
        "hostname": name,
        "mounts": mounts(options),
        "process": {"user": {"uid": user, "gid": group}, "cwd": "/", "args": options.command,
                    "env": [f"{key}={value}" for key, value in environment.items()],
                    "noNewPrivileges": bool(options.security_opt),
                    "capabilities": {"bounding": capabilities, "effective": held, "permitted": held}},
        "linux": {"namespaces": [{"type": kind} for kind in namespaces], "maskedPaths": MASKED, "readonlyPaths": READ_ONLY,
                  "cgroupsPath": f"/whyrss-recipe-{name}", "seccomp": rules(capabilities),
                  "resources": {"memory": memory(options.memory)} if options.memory else {}},
    }


def memory(text):
    limit = int(text.removesuffix("m")) << 20
    return {"limit": limit, "swap": limit}


def main():
    options = parse(sys.argv[2:])
    name = uuid.uuid4().hex[:12]
    with tempfile.TemporaryDirectory() as bundle:
        config = settings(options, pathlib.Path(sys.argv[1]) / options.image, name)
        (pathlib.Path(bundle) / "config.json").write_text(json.dumps(config))
        command = ["crun", "--root", f"{bundle}/state", "--cgroup-manager", "cgroupfs", "run", "--bundle", bundle, name]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
