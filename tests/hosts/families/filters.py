"""Programs that forbid themselves things: seccomp filters, namespaces, other users."""
from harness.host import PROGRAMS, Host


def hosts(_options):
    return [
        Host("filters/bubblewrap", lambda _: ["/usr/bin/bwrap", "--ro-bind", "/", "/", "--unshare-all", "--dev", "/dev", "--proc",
                                              "/proc", "/bin/sh", "-c", "echo $$; id -u; ls /proc | grep -c '^[0-9]'"],
             ("bubblewrap",), files_at_exec=False),
        Host("filters/unshare", lambda _: ["/usr/bin/unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork",
                                           "/bin/sh", "-c", "echo $$; id -u"], files_at_exec=False),
        Host("filters/setpriv", lambda _: ["/usr/bin/setpriv", "--reuid=65534", "--clear-groups", "--no-new-privs", "/bin/sh", "-c",
                                           "id -u; sort /etc/passwd | head -1"], files_at_exec=False),
        Host("filters/sshd", ssh, ("openssh-server", "openssh-client"), prepare_ssh, limit_s=60, files_at_exec=False),
    ]


def prepare_ssh(scene):
    for name in ("host", "user"):
        scene.prepare("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", scene.folder / name)
    scene.write("authorized", (scene.folder / "user.pub").read_text())
    scene.write("sshd_config", f"ListenAddress 127.0.0.1\nPort {scene.port}\nHostKey {scene.folder}/host\nUsePAM no\n"
                f"AuthorizedKeysFile {scene.folder}/authorized\nStrictModes no\nPidFile none\n")
    # sshd wants this folder to exist
    scene.prepare("mkdir", "-p", "/run/sshd")


def ssh(scene):
    client = (f"ssh -F none -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=known -o LogLevel=ERROR "
              f"-i ../user -p {scene.port} \"$USER\"@127.0.0.1 'echo inside; exit 5' || echo \"status $?\"")
    server = ["/usr/sbin/sshd", "-D", "-e", "-f", scene.folder / "sshd_config"]
    return ["/usr/bin/python3", "-S", "-E", PROGRAMS / "with_server.py", "TERM", str(scene.port), *server, "--", "/bin/sh",
            "-c", client]
