"""Fetches a URL into a file with asyncio's streams: fetch_asyncio.py URL FILE."""

import asyncio
import sys
from urllib.parse import urlsplit


async def fetch(url: str, path: str) -> None:
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port or 80)
    request = f"GET {place.path} HTTP/1.0\r\nHost: {place.netloc}\r\n\r\n"
    writer.write(request.encode())
    await writer.drain()
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0]
    if b" 200 " not in status + b" ":
        raise RuntimeError(f"{url}: {status.decode(errors='replace')}")
    with open(path, "wb") as file:
        while block := await reader.read(1 << 16):
            file.write(block)
    writer.close()
    await writer.wait_closed()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: fetch_asyncio.py URL FILE")
    asyncio.run(fetch(sys.argv[1], sys.argv[2]))
