"""Errors of copies and of commands about files."""

from __future__ import annotations

import errno
from typing import Any, Mapping, NamedTuple, Optional, Tuple


class ProgramNotFound(FileNotFoundError):
    """The program ``longhaul`` is not where it is looked for: install it, or name its file in
    LONGHAUL_PROGRAM."""


class Failure(NamedTuple):
    """A path that was not copied, or about which a command failed."""

    path: str
    #: Reason for programs, such as ``not_found``, ``exists`` or ``permission_denied``.
    kind: str
    #: Reason for people, in one line.
    message: str


class CopyError(OSError):
    """A copy or a command failed, or did so in part."""

    def __init__(
        self,
        message: str,
        exit_code: int,
        failures: Tuple[Failure, ...] = (),
        report: Optional[Any] = None,
    ):
        super().__init__(message)
        #: Reason in one line.
        self.message = message
        #: Exit code of the program; negative for a signal.
        self.exit_code = exit_code
        #: Paths that failed.
        self.failures = failures
        #: The :class:`longhaul.Report` of a copy that ended in order, otherwise None.
        self.report = report

    @property
    def kind(self) -> Optional[str]:
        """Kind of the first failure."""
        return self.failures[0].kind if self.failures else None

    def __reduce__(self):
        return type(self), (self.message, self.exit_code, self.failures, self.report)


#: Error numbers of kinds of failures. Python has a class for most of them.
_ERRNO: Mapping[str, int] = {
    "not_found": errno.ENOENT,
    "exists": errno.EEXIST,
    "permission_denied": errno.EACCES,
    "not_granted": errno.EACCES,
    "not_a_directory": errno.ENOTDIR,
    "is_directory": errno.EISDIR,
    "not_empty": errno.ENOTEMPTY,
    "disk_full": errno.ENOSPC,
    "other_file_system": errno.EXDEV,
}


def error_of(failure: Failure, exit_code: int) -> OSError:
    """The exception for a failure: FileNotFoundError and the like, or CopyError."""
    number = _ERRNO.get(failure.kind)
    if number is None:
        return CopyError(failure.message, exit_code, (failure,))
    return OSError(number, failure.message)
