"""A FastAPI application that keeps each answer, served by uvicorn and asked 300 times by a thread of this process."""
import socket
import threading
import urllib.request

import fastapi
import uvicorn

from truth import say

app = fastapi.FastAPI()
answers = {}


@app.get("/rows/{number}")
def rows(number: int):
    answers[number] = [{"id": i, "name": "row %d of %d" % (i, number)} for i in range(1000)]  # keeps
    return {"rows": len(answers[number])}


def visit(port, server):
    for number in range(300):
        with urllib.request.urlopen("http://127.0.0.1:%d/rows/%d" % (port, number), timeout=20) as answer:
            answer.read()
    server.should_exit = True


def size_of_answers():
    import sys
    size = 0
    for answer in answers.values():
        size += sys.getsizeof(answer)
        for row in answer:
            size += sys.getsizeof(row) + sys.getsizeof(row["name"]) + (sys.getsizeof(row["id"]) if row["id"] > 256 else 0)
    return size


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
    threading.Thread(target=visit, args=(listener.getsockname()[1], server)).start()
    server.run([listener])
    print("%d answers" % len(answers))
    say("answers", size_of_answers())


if __name__ == "__main__":
    main()
