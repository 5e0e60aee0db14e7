"""Receives short messages with a buffer of 64 KiB each.
    python_receive.py COUNT
"""
import socket
import sys

left, right = socket.socketpair()
for _ in range(int(sys.argv[1])):
    left.send(b"x" * 100)
    right.recv(65536)
