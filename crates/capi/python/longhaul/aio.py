"""asyncio over routes: the loop's own transports and streams, over sockets of :mod:`longhaul`."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Callable, Optional, Tuple

from .sockets import Address, Socket, create_server as _create_server, getaddrinfo

__all__ = ["connect", "create_connection", "create_server", "open_connection", "start_server"]


async def connect(sock: Socket, address: Address) -> None:
    """Connects a socket without blocking the loop."""
    loop = asyncio.get_running_loop()
    sock.setblocking(False)
    try:
        sock.connect(address)
        return
    except BlockingIOError:
        pass
    writable = loop.create_future()
    fd = sock.fileno()
    loop.add_writer(fd, lambda: writable.done() or writable.set_result(None))
    try:
        await writable
    finally:
        loop.remove_writer(fd)
    error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, f"{os.strerror(error)}: {sock.reason}" if sock.reason else os.strerror(error))


async def _connected(host: str, port: int, route: Optional[str], acceptor: bool, closed: bool, wishes: dict) -> Socket:
    loop = asyncio.get_running_loop()
    failed: Optional[OSError] = None
    for address in await loop.run_in_executor(None, getaddrinfo, host, port, route, acceptor, closed):
        sock = Socket()
        try:
            sock.wish(**wishes)
            await connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
    raise failed or OSError(f"{host} has no address")


async def create_connection(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    host: str,
    port: int,
    *,
    route: Optional[str] = None,
    acceptor: bool = False,
    closed: bool = False,
    **wishes,
) -> Tuple[asyncio.Transport, asyncio.BaseProtocol]:
    """As the loop's create_connection, by a route."""
    sock = await _connected(host, port, route, acceptor, closed, wishes)
    try:
        return await asyncio.get_running_loop().create_connection(protocol_factory, sock=sock)
    except BaseException:
        sock.close()
        raise


async def open_connection(
    host: str, port: int, *, limit: int = 2**16, **options
) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """As asyncio.open_connection, by a route."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(lambda: protocol, host, port, **options)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def create_server(protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, *, backlog: int = 128, **wishes):
    """As the loop's create_server, for sessions."""
    sock = _create_server((host, port), backlog, **wishes)
    return await asyncio.get_running_loop().create_server(protocol_factory, sock=sock, backlog=backlog)


async def start_server(client_connected, host: str, port: int, *, limit: int = 2**16, **options):
    """As asyncio.start_server, for sessions."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, client_connected, loop=loop)

    return await create_server(factory, host, port, **options)
