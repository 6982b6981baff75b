"""Servers as file systems of fsspec, with the protocols ``lh`` and ``longhaul``.

>>> import fsspec
>>> with fsspec.open("lh://store.example/runs/42/notes.txt", accept_new=True) as file:
...     file.read()

Each operation runs the program once, and opens a session with the server. Whole trees are therefore
best copied with :func:`longhaul.copy`.
"""

from __future__ import annotations

import errno
import os
import posixpath
import tempfile
from glob import has_magic
from typing import Any, Dict, Optional

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile
from fsspec.utils import isfilelike, stringify_path

from . import copies, files
from .errors import CopyError, error_of

__all__ = ["LonghaulFileSystem"]

#: Port of a server.
_PORT = 7511
#: Kinds of entries by their names in fsspec.
_TYPES = {"symlink": "link"}
#: Kinds of failures of copies by those of commands about files.
_SAME_KINDS = {"vanished": "not_found", "wrong_kind": "is_directory"}


class LonghaulFileSystem(AbstractFileSystem):
    """The files that a server (``longhaul serve``) lets this key read and write.

    :param host: the server; in URLs it is before the first slash
    :param port: its port
    :param options: ``route``, ``host_key``, ``accept_new`` and ``identity``, as for the commands
    """

    protocol = ("lh", "longhaul")
    root_marker = "/"

    def __init__(
        self,
        host: str,
        port: int = _PORT,
        *,
        route: Any = None,
        host_key: Optional[str] = None,
        accept_new: bool = False,
        identity: Any = None,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.host = host
        self.port = int(port)
        self._options = {
            "route": route,
            "host_key": host_key,
            "accept_new": accept_new,
            "identity": identity,
        }

    # Paths. One without a protocol begins at the root of the server.

    @classmethod
    def _strip_protocol(cls, path):
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = stringify_path(path)
        for protocol in cls.protocol:
            if path.startswith(f"{protocol}://"):
                path = path[len(protocol) + 3 :].partition("/")[2]
                break
        return "/" + path.strip("/")

    @staticmethod
    def _get_kwargs_from_urls(path):
        server = stringify_path(path).partition("://")[2].partition("/")[0]
        host, colon, port = server.rpartition(":")
        if not colon or "]" in port:
            return {"host": server} if server else {}
        return {"host": host, "port": int(port)}

    def unstrip_protocol(self, name):
        return f"lh://{self.host}:{self.port}{self._strip_protocol(name)}"

    def _url(self, path: str) -> str:
        return self.unstrip_protocol(path)

    # Looking.

    def info(self, path, **kwargs):
        path = self._strip_protocol(path)
        return _details(path, files.stat(self._url(path), **self._options))

    def ls(self, path, detail=True, **kwargs):
        path = self._strip_protocol(path)
        entries = files.ls(self._url(path), **self._options)
        named = path.lstrip("/")
        # A file is listed itself, by its path. A directory may hold one of the same name.
        is_file = (
            len(entries) == 1
            and entries[0].name == named
            and ("/" in named or self.info(path)["type"] != "directory")
        )
        found = [_details(path if is_file else _join(path, one.name), one) for one in entries]
        return found if detail else [one["name"] for one in found]

    def find(self, path, maxdepth=None, withdirs=False, detail=False, **kwargs):
        path = self._strip_protocol(path)
        if maxdepth is not None:
            return super().find(path, maxdepth, withdirs, detail, **kwargs)
        found: Dict[str, Dict[str, Any]] = {}
        try:
            entries = files.find(
                self._url(path), type=["f", "d", "l"], no_ignore_files=True, **self._options
            )
        except FileNotFoundError:
            entries = []
        except NotADirectoryError:
            entries = []
            found[path] = self.info(path)
        else:
            if withdirs:
                found[path] = self.info(path)
        for one in entries:
            if withdirs or one.kind != "directory":
                details = _details(_join(path, one.name), one)
                found[details["name"]] = details
        names = sorted(found)
        return {name: found[name] for name in names} if detail else names

    def modified(self, path):
        return self.info(path)["mtime"]

    # Directories and names.

    def mkdir(self, path, create_parents=True, **kwargs):
        url = self._url(path)
        try:
            files.mkdir(url, **self._options)
        except FileNotFoundError:
            if not create_parents:
                raise
            files.mkdir(url, parents=True, **self._options)

    def makedirs(self, path, exist_ok=False):
        if exist_ok:
            files.mkdir(self._url(path), parents=True, **self._options)
        else:
            self.mkdir(path)

    def rmdir(self, path):
        if self.info(path)["type"] != "directory":
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        if self.ls(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
        files.rm(self._url(path), recursive=True, **self._options)

    def _rm(self, path):
        files.rm(self._url(path), **self._options)

    def rm(self, path, recursive=False, maxdepth=None):
        if maxdepth is not None:
            return super().rm(path, recursive=recursive, maxdepth=maxdepth)
        found = self.expand_path(path)
        files.rm(*map(self._url, found), recursive=recursive, **self._options)

    def mv(self, path1, path2, recursive=False, maxdepth=None, **kwargs):
        is_plain = isinstance(path1, (str, os.PathLike)) and not has_magic(stringify_path(path1))
        if maxdepth is not None or not is_plain:
            return super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)
        if self._strip_protocol(path1) != self._strip_protocol(path2):
            files.mv(self._url(path1), self._url(path2), overwrite=True, **self._options)

    # Content.

    def cat_file(self, path, start=None, end=None, **kwargs):
        path = self._strip_protocol(path)
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.info(path)["size"]
            start = max(0, size + start) if (start or 0) < 0 else start
            end = max(0, size + end) if (end or 0) < 0 else end
        offset = start or 0
        length = None if end is None else max(0, end - offset)
        try:
            return files.cat(self._url(path), offset=offset, length=length, **self._options)
        except CopyError:
            # Its message has no kind; this raises FileNotFoundError if that is the reason.
            if self.info(path)["type"] == "directory":
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path) from None
            raise

    def pipe_file(self, path, value, mode="overwrite", **kwargs):
        path = self._strip_protocol(path)
        if mode == "create":
            self._require_absent(path)
        with tempfile.TemporaryDirectory(prefix="longhaul-") as folder:
            local = os.path.join(folder, posixpath.basename(path) or "content")
            with open(local, "wb") as file:
                file.write(value)
            self._upload(local, path)

    def put_file(self, lpath, rpath, callback=DEFAULT_CALLBACK, mode="overwrite", **kwargs):
        path = self._strip_protocol(rpath)
        if mode == "create":
            self._require_absent(path)
        if os.path.isdir(lpath):
            self.makedirs(path, exist_ok=True)
            return
        # The name of a link is that of the target, and a link that is named is followed.
        with tempfile.TemporaryDirectory(prefix="longhaul-") as folder:
            link = os.path.join(folder, posixpath.basename(path) or "content")
            os.symlink(os.path.abspath(lpath), link)
            self._upload(link, path, callback)

    def get_file(self, rpath, lpath=None, callback=DEFAULT_CALLBACK, outfile=None, **kwargs):
        path = self._strip_protocol(rpath)
        if outfile is not None or isfilelike(lpath):
            (outfile or lpath).write(self.cat_file(path))
            return
        if os.path.isdir(lpath):
            if self.isdir(path):
                return
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), lpath)
        local = os.path.abspath(lpath)
        os.makedirs(os.path.dirname(local), exist_ok=True)
        try:
            self._copy(self._url(path), local, callback)
        except IsADirectoryError:
            os.makedirs(local, exist_ok=True)

    def cp_file(self, path1, path2, **kwargs):
        # A server copies nothing by itself, so the content comes here and goes back.
        path = self._strip_protocol(path2)
        with tempfile.TemporaryDirectory(prefix="longhaul-") as folder:
            local = os.path.join(folder, posixpath.basename(path) or "content")
            self.get_file(path1, local)
            if os.path.isdir(local):
                self.makedirs(path, exist_ok=True)
            else:
                self._upload(local, path)

    def _open(
        self, path, mode="rb", block_size=None, autocommit=True, cache_options=None, **kwargs
    ):
        path = self._strip_protocol(path)
        if mode == "rb":
            return super()._open(path, mode, block_size, autocommit, cache_options, **kwargs)
        if mode == "xb":
            self._require_absent(path)
        return LonghaulUpload(self, path, mode, block_size, autocommit, **kwargs)

    def _require_absent(self, path: str) -> None:
        if self.exists(path):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)

    def _upload(self, local: str, path: str, callback=DEFAULT_CALLBACK) -> None:
        """Copies a local file that has the name of the target, whose directory is made if it is
        missing."""
        parent = self._parent(path)
        # With the slash, the target is never taken for a directory that the file goes into.
        url = self._url(parent).rstrip("/") + "/"
        try:
            self._copy(local, url, callback)
        except OSError:
            # A copy makes the last directory itself, and fails as a whole if others are missing.
            if self.exists(parent):
                raise
            files.mkdir(self._url(parent), parents=True, **self._options)
            self._copy(local, url, callback)

    def _copy(self, source: str, target: str, callback) -> None:
        def show(progress):
            if progress.walk_complete:
                callback.set_size(progress.bytes_found)
            callback.absolute_update(progress.bytes)

        try:
            # Equal size and time are not enough: programs write files in quick succession.
            report = copies.copy(
                source, target, overwrite=True, checksum=True, progress=show, **self._options
            )
        except CopyError as error:
            if not error.failures:
                raise
            first = error.failures[0]
            first = first._replace(kind=_SAME_KINDS.get(first.kind, first.kind))
            raise error_of(first, error.exit_code) from error
        callback.set_size(report.bytes)
        callback.absolute_update(report.bytes)


class LonghaulUpload(AbstractBufferedFile):
    """A file that is written here first, and copied to the server when it is closed."""

    _folder: Optional[tempfile.TemporaryDirectory] = None

    def _initiate_upload(self):
        self._folder = tempfile.TemporaryDirectory(prefix="longhaul-")
        self._local = os.path.join(self._folder.name, posixpath.basename(self.path) or "content")
        if self.mode == "ab" and self.fs.exists(self.path):
            self.fs.get_file(self.path, self._local)
        self._file = open(self._local, "ab")

    def _upload_chunk(self, final=False):
        self._file.write(self.buffer.getvalue())
        if final:
            self._file.close()
            if self.autocommit:
                self.commit()
        return True

    def commit(self):
        try:
            self.fs._upload(self._local, self.path)
        finally:
            self.discard()

    def discard(self):
        if self._folder is not None:
            self._file.close()
            self._folder.cleanup()
            self._folder = None


def _join(directory: str, name: str) -> str:
    return f"{directory.rstrip('/')}/{name}"


def _details(path: str, entry: files.Entry) -> Dict[str, Any]:
    details: Dict[str, Any] = {
        "name": path,
        "size": entry.bytes if entry.kind == "file" else 0,
        "type": _TYPES.get(entry.kind, entry.kind),
        "mode": entry.mode,
        "mtime": entry.modified,
    }
    if entry.target is not None:
        details["destination"] = entry.target
    return details
