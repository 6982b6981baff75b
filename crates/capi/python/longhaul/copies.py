"""Copies, by ``longhaul cp``."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from ._program import AnyPath, Program, flags, paths
from .errors import CopyError, Failure

_T = TypeVar("_T")


@dataclasses.dataclass(frozen=True)
class Progress:
    """State of a running copy. ``docs/json.md`` describes the fields."""

    #: Seconds since the start.
    seconds: float = 0.0
    #: Bytes in place.
    bytes: int = 0
    #: Bytes of the sources, as far as they are known.
    bytes_found: int = 0
    #: True once ``bytes_found`` and ``entries_found`` are final.
    walk_complete: bool = False
    files: int = 0
    entries_found: int = 0
    #: Bits per second at present.
    bps: float = 0.0
    #: Bits per second of each route.
    routes_bps: Mapping[str, float] = dataclasses.field(default_factory=dict)
    #: Seconds for which nothing has arrived; None while that is short.
    waiting_seconds: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Report:
    """Result of a copy. ``docs/json.md`` describes the fields."""

    ok: bool = False
    exit_code: int = 0
    error: Optional[str] = None
    worth_retrying: bool = False
    kept: bool = False
    bytes: int = 0
    resumed_bytes: int = 0
    unchanged_files: int = 0
    unchanged_bytes: int = 0
    linked_files: int = 0
    linked_bytes: int = 0
    files: int = 0
    entries: int = 0
    seconds: float = 0.0
    goodput_bps: float = 0.0
    failed: int = 0
    #: The whole report, with the fields that depend on the kind of copy.
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)


def copy(
    sources: Union[AnyPath, Iterable[AnyPath]],
    target: AnyPath,
    *,
    recursive: bool = False,
    progress: Optional[Callable[[Progress], Any]] = None,
    on_event: Optional[Callable[[Mapping[str, Any]], Any]] = None,
    **options: Any,
) -> Report:
    """Copies files or directories, as ``longhaul cp SOURCES... TARGET`` does.

    Paths are local, ``user@host:path`` or ``lh://host/path``. Options are those of ``longhaul cp``:
    ``overwrite=True``, ``route="depot.example"``, ``exclude=["*.tmp", "cache"]``. ``progress`` is
    called four times a second, and ``on_event`` with each event of ``docs/json.md``.

    If the copy fails, or a part of it does, :class:`CopyError` is raised. If a callback raises, or
    the user interrupts it, the copy ends; the same call resumes it.
    """
    if isinstance(sources, (str, bytes, os.PathLike)):
        sources = [sources]
    arguments: List[Union[str, bytes]] = ["cp", "--json", f"--parent={os.getpid()}"]
    if recursive:
        arguments.append("--recursive")
    arguments += flags(options)
    arguments += paths([*sources, target])
    report: Optional[Report] = None
    failures: List[Failure] = []
    with Program(arguments) as program:
        for line in program.output:
            event = json.loads(line)
            kind = event.get("event")
            if on_event is not None:
                on_event(event)
            if kind == "progress" and progress is not None:
                progress(_read(Progress, event))
            elif kind == "begun_again":
                # Failures are reported again.
                failures.clear()
            elif kind == "failed":
                failures.append(Failure(event["path"], event["kind"], event["message"]))
            elif kind == "report":
                report = dataclasses.replace(_read(Report, event), details=event)
        exit_code = program.wait()
        if exit_code == 0 and report is not None:
            return report
        message = _reason(report, failures) or program.last_message()
    if not message:
        message = f"longhaul ended with exit code {exit_code}"
    raise CopyError(message, exit_code, tuple(failures), report)


def _reason(report: Optional[Report], failures: List[Failure]) -> Optional[str]:
    if report is not None and report.error:
        return report.error
    if not failures:
        return None
    first = failures[0]
    others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return f"{first.path}: {first.message}{others}"


def _read(kind: Type[_T], event: Mapping[str, Any]) -> _T:
    """Reads the fields that this release knows. Later ones may add fields."""
    names: Tuple[str, ...] = tuple(field.name for field in dataclasses.fields(kind))  # type: ignore
    return kind(**{name: event[name] for name in names if name in event})
