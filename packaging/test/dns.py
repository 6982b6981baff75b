"""Answers DNS queries for one name with one IPv4 address: dns.py NAME ADDRESS"""

import socket
import struct
import sys

name = b"".join(bytes([len(label)]) + label.encode() for label in sys.argv[1].split(".")) + b"\0"
address = socket.inet_aton(sys.argv[2])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
while True:
    query, client = server.recvfrom(512)
    end = query.index(b"\0", 12) + 5
    question = query[12:end]
    known = question[:-4].lower() == name
    found = known and question[-4:-2] == b"\0\1"
    header = query[:2] + struct.pack("!5H", 0x8580 if known else 0x8583, 1, int(found), 0, 0)
    answer = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + address if found else b""
    server.sendto(header + question + answer, client)
