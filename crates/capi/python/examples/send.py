"""Sends standard input to a host by a route: send.py HOST PORT [ROUTE]"""

import shutil
import socket
import sys

import longhaul

host, port, route = [*sys.argv[1:], None][:3]
with longhaul.create_connection((host, int(port)), route=route, purpose="nightly results") as sock:
    with sock.makefile("wb") as stream:
        shutil.copyfileobj(sys.stdin.buffer, stream)
    sock.shutdown(socket.SHUT_WR)
    while answer := sock.recv(65536):
        sys.stdout.buffer.write(answer)
