"""Imports and allocates for two seconds, then works for fifteen without growing."""
import importlib
import time

from truth import BLOCK, FILL, MIB, pace, rss, say

KEPT, GROWS_S, FLAT_S = 400 * MIB, 2, 15
OBJECT, HEADER = 448, 33  # of a bytes object
MODULES = ("asyncio", "email.mime.text", "http.server", "sqlite3", "unittest", "xml.dom.minidom", "logging.config")


def allocate():
    begun, blocks = time.monotonic(), []
    for done in range(0, KEPT, BLOCK):
        blocks += [b"%d" % (10**9 + number) + FILL[:OBJECT - HEADER - 10] for number in range(BLOCK // OBJECT)]  # keeps
        pace(begun, done, KEPT / GROWS_S)
    return blocks


def churn(until):
    while time.monotonic() < until:
        rows = [{"row": number, "text": "x" * number} for number in range(100)]
        rows.append(bytearray(FILL) * 32)
        time.sleep(0.01)


imported = [importlib.import_module(name) for name in MODULES]
kept = allocate()
churn(time.monotonic() + 1)
before = rss()
churn(time.monotonic() + FLAT_S - 1)
say("end", rss=rss(), since=rss() - before)
