"""A web application that keeps a copy of each answer; WSGI for gunicorn, ASGI for uvicorn."""
import os

answers = []


def answer():
    answers.append(bytearray(b"x") * (256 << 10))
    return f"answered by {os.getpid()}\n".encode()


def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [answer()]


async def asgi(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
        await send({"type": "http.response.body", "body": answer()})
