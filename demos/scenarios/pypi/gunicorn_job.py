"""gunicorn --preload with two workers, asked 40 times."""
import signal
import socket
import subprocess
import sys
import time
import urllib.request


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def ask(port):
    with urllib.request.urlopen("http://127.0.0.1:%d/" % port, timeout=20) as answer:
        return answer.read()


def main():
    port = free_port()
    server = subprocess.Popen([sys.executable, "-m", "gunicorn", "--preload", "--workers", "2", "--log-level", "error",
                               "--bind", "127.0.0.1:%d" % port, "web_preload:application"], cwd=sys.path[0])
    for _ in range(200):
        try:
            ask(port)
            break
        except OSError:
            time.sleep(0.1)
    answers = [ask(port) for _ in range(40)]
    server.send_signal(signal.SIGTERM)
    print("%d answers, gunicorn ended with %d" % (len(answers), server.wait()))


if __name__ == "__main__":
    main()
