"""Sockets whose connections take routes.

:class:`Socket` is a :class:`socket.socket` whose ``connect``, ``listen`` and ``accept`` go by routes of depots; everything else of it is inherited,
because its descriptor is an ordinary TCP socket's. :mod:`longhaul.aio` has the same for asyncio. Its names are those of :mod:`longhaul`.

>>> with longhaul.create_connection(("store.example", 9000), route="depot.example") as sock:
...     sock.sendall(b"...")
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from typing import NamedTuple, Optional, Tuple, Union

from . import _library
from ._library import LibraryNotFound, SockaddrLsl, call, library_version

__all__ = [
    "Address", "AF_LSL", "LibraryNotFound", "SOL_LSL", "Socket", "create_connection", "create_server", "getaddrinfo", "library_version",
]
AF_LSL = 0x4C53
SOL_LSL = 0x4C53

_TEXTS = {"purpose": 1, "route": 5, "onramp": 9}
_NUMBERS = {"size": (2, "=Q"), "rate": (3, "=Q"), "duration": (4, "=Q"), "connect_timeout": (6, "=I"), "closed": (7, "=i"), "acceptor": (8, "=i")}
_PEER_KEY, _REASON, _ROUTED = 10, 11, 12


class Address(NamedTuple):
    """A destination: a name, an address, or both, and the route to it (None leaves it to the rules)."""

    host: Optional[str]
    port: int
    route: Optional[str] = None
    ip: Optional[str] = None
    acceptor: bool = False
    closed: bool = False

    def _raw(self) -> SockaddrLsl:
        return SockaddrLsl.of(self.host, self.ip, self.port, self.route, self.acceptor, self.closed)


AnyAddress = Union[Address, Tuple[str, int]]


def _address(address: AnyAddress) -> Address:
    return address if isinstance(address, Address) else Address(address[0], address[1])


class Socket(socket.socket):
    """A stream socket for connections by routes. Options of the level SOL_LSL are its attributes, to be set before it connects or listens:

    ``purpose``, ``route``, ``onramp`` (texts), ``size`` (bytes), ``rate`` (bits a second), ``duration`` (seconds), ``connect_timeout``
    (milliseconds), ``closed``, ``acceptor``. To be read: ``peer_key``, ``reason``, ``routed``.
    """

    def __init__(self, family: int = -1, type: int = -1, proto: int = -1, fileno: Optional[int] = None):
        if fileno is None:
            fileno = call("socket", AF_LSL, socket.SOCK_STREAM | socket.SOCK_CLOEXEC, 0)
            try:
                super().__init__(fileno=fileno)
            except BaseException:
                os.close(fileno)
                raise
            default = socket.getdefaulttimeout()
            if default is not None:
                self.settimeout(default)
        else:
            super().__init__(family, type, proto, fileno=fileno)

    def connect(self, address: AnyAddress) -> None:
        """Connects, as :meth:`socket.socket.connect` does: at once, in at most the timeout, or raising BlockingIOError."""
        raw = _address(address)._raw()
        timeout = self.gettimeout()
        end = None if timeout is None else time.monotonic() + timeout
        try:
            call("connect", self.fileno(), raw.pointer(), raw.size())
            return
        except BlockingIOError:
            if timeout == 0:
                raise
        except InterruptedError:
            # It goes on; a handler that raises has done so by now.
            pass
        self._wait(select.POLLOUT, end)
        error = self.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))

    def connect_ex(self, address: AnyAddress) -> int:
        try:
            self.connect(address)
        except TimeoutError as error:
            return error.errno or errno.EAGAIN
        except OSError as error:
            if error.errno is None:
                raise
            return error.errno
        return 0

    def bind(self, address: AnyAddress) -> None:
        host, port = address[0], address[1]
        raw = SockaddrLsl.of(None, host or None, port)
        call("bind", self.fileno(), raw.pointer(), raw.size())

    def listen(self, backlog: int = 128) -> None:
        """Takes sessions, through the on-ramp. The descriptor's number stays."""
        call("listen", self.fileno(), backlog)

    def accept(self) -> Tuple["Socket", Tuple[str, int]]:
        timeout = self.gettimeout()
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            if timeout:
                self._wait(select.POLLIN, end)
            peer = SockaddrLsl()
            length = _library.Length(peer.size())
            try:
                fd = call("accept4", self.fileno(), peer.pointer(), _library.by_reference(length), socket.SOCK_CLOEXEC)
            except InterruptedError:
                continue
            except BlockingIOError:
                if not timeout:
                    raise
                continue
            accepted = Socket(fileno=fd)
            if socket.getdefaulttimeout() is None and timeout is not None:
                accepted.setblocking(True)
            return accepted, peer.told()

    def _wait(self, events: int, end: Optional[float]) -> None:
        poll = select.poll()
        poll.register(self.fileno(), events)
        left = None if end is None else max(0.0, end - time.monotonic()) * 1000
        if not poll.poll(left):
            raise TimeoutError("timed out")

    def getsockname(self) -> Tuple[str, int]:
        return self._name("getsockname")

    def getpeername(self) -> Tuple[str, int]:
        return self._name("getpeername")

    def _name(self, function: str) -> Tuple[str, int]:
        address = SockaddrLsl()
        length = _library.Length(address.size())
        call(function, self.fileno(), address.pointer(), _library.by_reference(length))
        return address.told()

    def getsockopt(self, level: int, name: int, length: Optional[int] = None):
        value = _library.get_option(self.fileno(), level, name, 4 if length is None else length)
        return struct.unpack("=i", value)[0] if length is None else value

    def setsockopt(self, level: int, name: int, value, length: Optional[int] = None) -> None:
        if level != SOL_LSL and not isinstance(value, int):
            return super().setsockopt(level, name, value) if length is None else super().setsockopt(level, name, value, length)
        _library.set_option(self.fileno(), level, name, struct.pack("=i", value) if isinstance(value, int) else bytes(value))

    def shutdown(self, how: int) -> None:
        call("shutdown", self.fileno(), how)

    @property
    def peer_key(self) -> Optional[str]:
        """The key that the other end of an accepted connection has shown."""
        return self._text(_PEER_KEY) or None

    @property
    def reason(self) -> str:
        """Why it goes by a route or directly, or what failed."""
        return self._text(_REASON)

    @property
    def routed(self) -> bool:
        """Whether it goes through the on-ramp."""
        return self.getsockopt(SOL_LSL, _ROUTED) != 0

    def _text(self, name: int) -> str:
        return _library.get_option(self.fileno(), SOL_LSL, name, 4096).split(b"\0")[0].decode()

    def wish(self, **wishes) -> None:
        """Sets several of the options at once; None leaves one as it is."""
        for name, value in wishes.items():
            if name not in _TEXTS and name not in _NUMBERS:
                raise TypeError(f"{name} is not an option: use one of {', '.join([*_TEXTS, *_NUMBERS])}")
            if value is not None:
                setattr(self, name, value)


def _text_option(number: int):
    def get(self: Socket) -> Optional[str]:
        return self._text(number) or None

    def put(self: Socket, value: Optional[str]) -> None:
        _library.set_option(self.fileno(), SOL_LSL, number, (value or "").encode() + b"\0")

    return property(get, put)


def _number_option(number: int, form: str):
    def get(self: Socket) -> int:
        return struct.unpack(form, _library.get_option(self.fileno(), SOL_LSL, number, struct.calcsize(form)))[0]

    def put(self: Socket, value: Optional[int]) -> None:
        _library.set_option(self.fileno(), SOL_LSL, number, struct.pack(form, int(value or 0)))

    return property(get, put)


for _name, _number in _TEXTS.items():
    setattr(Socket, _name, _text_option(_number))
for _name, (_number, _form) in _NUMBERS.items():
    setattr(Socket, _name, _number_option(_number, _form))


def getaddrinfo(host: str, port: int, route: Optional[str] = None, acceptor: bool = False, closed: bool = False) -> list[Address]:
    """The addresses of a name. A name that is not known here is given without one, for the route's far end to resolve."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return [Address(host, port, route, None, acceptor, closed)]
    ips = dict.fromkeys(entry[4][0] for entry in found)
    return [Address(host, port, route, ip, acceptor, closed) for ip in ips]


def create_connection(
    address: AnyAddress, timeout: Optional[float] = None, *, route: Optional[str] = None, acceptor: bool = False, closed: bool = False, **wishes
) -> Socket:
    """Connects to a host and port by a route, by the rules if None: to each of the host's addresses until one answers."""
    host, port = address[0], address[1]
    failed: Optional[OSError] = None
    for candidate in getaddrinfo(host, port, route, acceptor, closed):
        sock = Socket()
        try:
            if timeout is not None:
                sock.settimeout(timeout)
            sock.wish(**wishes)
            sock.connect(candidate)
            return sock
        except OSError as error:
            sock.close()
            failed = error
        except BaseException:
            sock.close()
            raise
    raise failed or OSError(f"{host} has no address")


def create_server(address: Tuple[str, int], backlog: int = 128, **wishes) -> Socket:
    """Takes sessions at an address of this machine; an empty one is any."""
    sock = Socket()
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.wish(**wishes)
        sock.bind(address)
        sock.listen(backlog)
        return sock
    except BaseException:
        sock.close()
        raise
