"""Files at hosts and servers, by ``longhaul ls``, ``stat``, ``find``, ``cat``, ``mkdir``, ``mv``
and ``rm``.

Options are those of the commands, such as ``route="depot.example"`` or ``accept_new=True``. A path
that fails raises FileNotFoundError, FileExistsError, PermissionError and the like, or
:class:`longhaul.CopyError`, which are all kinds of OSError.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from typing import Any, Iterable, List, Mapping, Optional, Union

from ._program import AnyPath, Program, flags, paths
from .errors import CopyError, Failure, error_of


@dataclasses.dataclass(frozen=True)
class Entry:
    """An entry of a directory."""

    #: Name in its directory; for :func:`stat` the path as it was named, for :func:`find` the path
    #: below the directory. Bytes that are not UTF-8, and characters that control a terminal, are
    #: escaped.
    name: str
    #: ``file``, ``directory``, ``symlink`` or ``other``.
    kind: str
    #: Size in bytes.
    bytes: int
    #: Permission bits.
    mode: int
    #: Modification time.
    modified: Optional[datetime.datetime]
    #: Target of a symbolic link.
    target: Optional[str] = None

    @classmethod
    def _read(cls, event: Mapping[str, Any]) -> "Entry":
        modified = event.get("modified")
        if modified is not None:
            # Python 3.9 does not know Z.
            modified = datetime.datetime.fromisoformat(modified.replace("Z", "+00:00"))
        return cls(
            event["name"], event["kind"], event["bytes"], int(event["mode"], 8), modified,
            event.get("target"),
        )


def ls(path: AnyPath, *, all: bool = False, **options: Any) -> List[Entry]:
    """Lists a directory in the order of names; anything else is listed itself. With ``all``, also
    what copies have not finished."""
    events = _run("ls", [path], {"all": all, **options})
    return [Entry._read(event) for event in events]


def stat(path: AnyPath, **options: Any) -> Entry:
    """Describes an entry. A symbolic link is not followed."""
    return Entry._read(_run("stat", [path], options)[0])


def find(
    path: AnyPath, *, type: Union[None, str, Iterable[str]] = None, **options: Any
) -> List[Entry]:
    """Lists everything below a directory but directories, as ``longhaul find`` does.

    ``type`` selects kinds: ``f``, ``d``, ``l`` or several of them. Other options are filters, such
    as ``newer="7d"`` or ``exclude=["*.tmp"]``.
    """
    kinds = [type] if isinstance(type, str) else list(type or [])
    events = _run("find", [path], {"type": kinds, **options})
    return [Entry._read(event) for event in events]


def mkdir(path: AnyPath, *, parents: bool = False, **options: Any) -> None:
    """Makes a directory. With ``parents``, also those above it, and it may exist."""
    _run("mkdir", [path], {"parents": parents, **options})


def mv(source: AnyPath, target: AnyPath, *, overwrite: bool = False, **options: Any) -> None:
    """Renames an entry, or moves it into another directory of the same host."""
    _run("mv", [source, target], {"overwrite": overwrite, **options})


def rm(*path: AnyPath, recursive: bool = False, **options: Any) -> None:
    """Removes entries, which are all on one host. The first failure is raised after the others are
    removed."""
    if path:
        _run("rm", path, {"recursive": recursive, **options})


def cat(
    path: AnyPath, *, offset: int = 0, length: Optional[int] = None, **options: Any
) -> bytes:
    """Returns the content of a file, or ``length`` bytes of it from ``offset``. A whole file is
    verified."""
    if length == 0:
        return b""
    part = {"offset": offset or None, "length": length}
    with Program(["cat", *flags({**part, **options}), *paths([path])]) as program:
        content = program.output.read()
        exit_code = program.wait()
        if exit_code != 0:
            raise CopyError(program.last_message(), exit_code)
    return content


def _run(
    command: str, arguments: Iterable[AnyPath], options: Mapping[str, Any]
) -> List[Mapping[str, Any]]:
    """Runs a command, and returns its events."""
    events: List[Mapping[str, Any]] = []
    failures: List[Failure] = []
    with Program([command, "--json", *flags(options), *paths(arguments)]) as program:
        for line in program.output:
            event = json.loads(line)
            if event.get("event") == "failed":
                failures.append(Failure(event["path"], event["kind"], event["message"]))
            else:
                events.append(event)
        exit_code = program.wait()
        if failures:
            raise error_of(failures[0], exit_code)
        if exit_code != 0:
            raise CopyError(program.last_message(), exit_code)
    return events
