"""Bulk data transfer over long-haul networks.

:func:`copy` runs ``longhaul cp``, and :func:`ls`, :func:`stat`, :func:`find`, :func:`cat`,
:func:`mkdir`, :func:`mv` and :func:`rm` their namesakes. They need the program alone.

:class:`Socket`, :func:`create_connection` and :func:`create_server` are sockets whose connections
take routes. They need the C library, which is loaded when the first of them is used.
:mod:`longhaul.aio` has the same for asyncio.

:mod:`longhaul.fsspec` offers servers to programs that read and write files by fsspec.

>>> report = longhaul.copy("results", "lh://store.example/runs/", recursive=True)
>>> report.files, report.bytes
"""

from __future__ import annotations

from .copies import Progress, Report, copy
from .errors import CopyError, Failure, ProgramNotFound
from .files import Entry, cat, find, ls, mkdir, mv, rm, stat

__version__ = "0.1.0"

_SOCKETS = (
    "Address", "AF_LSL", "LibraryNotFound", "SOL_LSL", "Socket", "create_connection",
    "create_server", "getaddrinfo", "library_version",
)
__all__ = [
    "CopyError", "Entry", "Failure", "ProgramNotFound", "Progress", "Report", "cat", "copy", "find",
    "ls", "mkdir", "mv", "rm", "stat", *_SOCKETS,
]


def __getattr__(name: str):
    if name not in _SOCKETS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import sockets

    return getattr(sockets, name)


def __dir__():
    return sorted([*globals(), *_SOCKETS])
