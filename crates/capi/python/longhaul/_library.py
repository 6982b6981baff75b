"""The C library, liblonghaul."""

from __future__ import annotations

import ctypes
import ctypes.util
import ipaddress
import os
import pathlib
import socket
from typing import Optional, Tuple

Length = ctypes.c_uint32
by_reference = ctypes.byref

_HOPS_MAX = 16
_ACCEPTOR, _CLOSED = 1, 2


class LibraryNotFound(ImportError):
    """liblonghaul is not installed where it is looked for."""


def _load() -> ctypes.CDLL:
    beside = pathlib.Path(__file__).with_name("liblonghaul.so.0")
    named = os.environ.get("LONGHAUL_LIBRARY")
    for candidate in [named] if named else [str(beside) if beside.exists() else None, "liblonghaul.so.0", ctypes.util.find_library("longhaul")]:
        if candidate:
            try:
                return ctypes.CDLL(candidate, use_errno=True)
            except OSError as error:
                why = error
    raise LibraryNotFound(f"liblonghaul.so.0: {why}: install the library, or name its file in LONGHAUL_LIBRARY")


_library = _load()
_library.lsl_version.restype = ctypes.c_char_p
_ARGUMENTS = {
    "socket": [ctypes.c_int, ctypes.c_int, ctypes.c_int],
    "connect": [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32],
    "bind": [ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32],
    "listen": [ctypes.c_int, ctypes.c_int],
    "accept4": [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int],
    "shutdown": [ctypes.c_int, ctypes.c_int],
    "getsockname": [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    "getpeername": [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    "getsockopt": [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p],
    "setsockopt": [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32],
    "set_route": [ctypes.c_void_p, ctypes.c_char_p],
}
for _name, _types in _ARGUMENTS.items():
    getattr(_library, f"lsl_{_name}").argtypes = _types


def library_version() -> str:
    """The C library's version."""
    return _library.lsl_version().decode()


def call(function: str, *arguments) -> int:
    """Calls a function of the library, without the interpreter's lock; raises what errno says."""
    result = getattr(_library, f"lsl_{function}")(*arguments)
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def get_option(fd: int, level: int, name: int, length: int) -> bytes:
    value = ctypes.create_string_buffer(length)
    room = Length(length)
    call("getsockopt", fd, level, name, value, by_reference(room))
    return value.raw[: room.value]


def set_option(fd: int, level: int, name: int, value: bytes) -> None:
    call("setsockopt", fd, level, name, value, len(value))


class _Hop(ctypes.Structure):
    _fields_ = [
        ("host", ctypes.c_char * 254),
        ("port", ctypes.c_uint16),
        ("loose", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8),
        ("key", ctypes.c_char * 60),
    ]


class SockaddrLsl(ctypes.Structure):
    """struct sockaddr_lsl."""

    _fields_ = [
        ("family", ctypes.c_uint16),
        ("port", ctypes.c_uint16),
        ("flags", ctypes.c_uint32),
        ("address", ctypes.c_uint8 * 16),
        ("scope_id", ctypes.c_uint32),
        ("hop_count", ctypes.c_uint32),
        ("name", ctypes.c_char * 256),
        ("hops", _Hop * _HOPS_MAX),
    ]

    @classmethod
    def of(
        cls, host: Optional[str], ip: Optional[str], port: int, route: Optional[str] = None, acceptor: bool = False, closed: bool = False
    ) -> "SockaddrLsl":
        raw = cls()
        raw.family = 0x4C53
        raw.port = socket.htons(port)
        raw.flags = _ACCEPTOR * acceptor | _CLOSED * closed
        if host and ip is None:
            try:
                ipaddress.ip_address(host.partition("%")[0])
                host, ip = None, host
            except ValueError:
                pass
        if host:
            encoded = host.encode("ascii") if host.isascii() else host.encode("idna")
            if len(encoded) > 253:
                raise ValueError("the name of a host has at most 253 bytes")
            raw.name = encoded
        if ip:
            bare, _, zone = ip.partition("%")
            address = ipaddress.ip_address(bare)
            packed = address.packed if address.version == 6 else b"\0" * 10 + b"\xff\xff" + address.packed
            raw.address = (ctypes.c_uint8 * 16)(*packed)
            if zone:
                raw.scope_id = int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
        if route is not None:
            call("set_route", raw.pointer(), route.encode())
        return raw

    def pointer(self):
        return ctypes.addressof(self)

    def size(self) -> int:
        return ctypes.sizeof(self)

    def told(self) -> Tuple[str, int]:
        """Address and port; the name where there is no address."""
        address = ipaddress.IPv6Address(bytes(self.address))
        if address == ipaddress.IPv6Address(0) and self.name:
            return self.name.decode(), socket.ntohs(self.port)
        return str(address.ipv4_mapped or address), socket.ntohs(self.port)
