"""visit.py PORT TIMES: waits until a server answers there, asks it so often, and says how many different processes answered."""
import sys
import time
import urllib.error
import urllib.request


def ask():
    with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/", timeout=60) as response:
        return response.read()


def wait_for_the_server(deadline_s=100):
    for _ in range(deadline_s * 10):
        try:
            return ask()
        except urllib.error.URLError:
            time.sleep(0.1)
    return ask()


workers = {wait_for_the_server()} | {ask() for _ in range(int(sys.argv[2]) - 1)}
while len(workers) < 2 and "--both" in sys.argv:
    workers.add(ask())
print(f"{sys.argv[2]} answers")
