"""Imports and allocates for two seconds, then works for fifteen without growing."""
import importlib
import time

from truth import BLOCK, FILL, MIB, pace, rss, say

KEPT, GROWS_S, FLAT_S = 400 * MIB, 2, 15
MODULES = ("asyncio", "email.mime.text", "http.server", "sqlite3", "unittest", "xml.dom.minidom", "decimal", "logging.config")


def allocate():
    begun, blocks = time.monotonic(), []
    for done in range(0, KEPT, BLOCK):
        blocks.append(bytearray(FILL))  # keeps
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
