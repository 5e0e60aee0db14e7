"""with_server.py SIGNAL PLACE SERVER... -- CLIENT...: runs the client while the server runs, then ends the server.

PLACE is a Unix socket or a port of the loopback that the server accepts connections at. Prints how both ended, and
ends with the client's status. The server's own output goes to standard error.
"""
import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE_S = 90


def accepts(place):
    port = place.isdigit()
    with socket.socket(socket.AF_INET if port else socket.AF_UNIX) as probe:
        probe.settimeout(5)
        try:
            probe.connect(("127.0.0.1", int(place)) if port else place)
        except OSError:
            return False
        return True


def main():
    stop, place, *words = sys.argv[1:]
    split = words.index("--")
    server = subprocess.Popen(words[:split], stdout=2)
    deadline = time.monotonic() + PATIENCE_S
    while not accepts(place):
        if server.poll() is not None or time.monotonic() > deadline:
            print("server: never accepted a connection, status", server.poll())
            server.kill()
            return 1
        time.sleep(0.1)
    subprocess.run([os.environ["PROBE"]], check=True)
    client = subprocess.run(words[split + 1:], check=False)
    server.send_signal(signal.Signals[f"SIG{stop}"])
    try:
        status = server.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        server.kill()
        status = "does not end"
    print("server:", status, "client:", client.returncode, flush=True)
    return client.returncode


sys.exit(main())
