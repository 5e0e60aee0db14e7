"""The application of `gunicorn --preload`: a table of Python objects, that each request reads."""
from truth import private_bytes, say

table = {str(i): [float(i), float(i + 1)] for i in range(300_000)}  # builds
first = None


def application(environ, start_response):
    global first
    if first is None:
        first = private_bytes()
    total = sum(row[0] for row in table.values())  # reads
    say("private since the first request", private_bytes() - first)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"%d" % total]
