"""Finds and runs the program ``longhaul``."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import shutil
import subprocess
import tempfile
from typing import Any, IO, Iterable, Iterator, List, Mapping, Optional, Union

from .errors import ProgramNotFound

AnyPath = Union[str, bytes, "os.PathLike[Any]"]

#: Seconds in which an ended program finishes: a copy makes durable what it keeps.
_END_SECONDS = 20
#: Bytes of the program's last messages that are read.
_MAX_MESSAGE_BYTES = 1 << 16
#: Options that have only a short flag, by their names in jobs.
_SHORT_FLAGS = {
    "ssh_port": "-P",
    "ssh_key": "-i",
    "ssh_config": "-F",
    "ssh_jump": "-J",
    "ssh_options": "-o",
    "batch": "-B",
    "ipv4": "-4",
    "ipv6": "-6",
}


def find_program() -> str:
    """Returns the program: ``$LONGHAUL_PROGRAM``, the one that the wheel installed, or the one in
    the path."""
    named = os.environ.get("LONGHAUL_PROGRAM")
    if named:
        return named
    found = _installed_program() or shutil.which("longhaul")
    if found is None:
        raise ProgramNotFound(
            "longhaul: not in the path: install the program, or name its file in LONGHAUL_PROGRAM"
        )
    return found


def _installed_program() -> Optional[str]:
    try:
        files = importlib.metadata.files("longhaul-transfer") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        if file.name == "longhaul":
            located = pathlib.Path(file.locate()).resolve()
            if os.access(located, os.X_OK) and located.is_file():
                return str(located)
    return None


def flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Converts keyword arguments to flags: ``min_size="1G"`` becomes ``--min-size=1G``.

    True gives the flag alone, None and False leave it out, and a list repeats it.
    """
    for name, value in options.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        flag = _SHORT_FLAGS.get(name, "--" + name.replace("_", "-"))
        for one in values:
            if one is None or one is False:
                continue
            if one is True:
                yield flag
                continue
            text = os.fsdecode(one) if isinstance(one, (bytes, os.PathLike)) else str(one)
            # After a short flag, one equals sign is not part of the value.
            joins = flag.startswith("--") or not text or text.startswith("=")
            yield f"{flag}={text}" if joins else flag + text


def paths(given: Iterable[AnyPath]) -> List[bytes]:
    """Converts paths to arguments that are not taken for flags."""
    return [b"--", *(os.fsencode(path) for path in given)]


class Program:
    """A running program. As a context manager, it ends the program if an exception is raised."""

    def __init__(self, arguments: Iterable[Union[str, bytes]]):
        # A file, because a pipe that nobody reads would fill up.
        self._messages = tempfile.TemporaryFile()
        try:
            self._process = subprocess.Popen(
                [find_program(), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=self._messages,
            )
        except BaseException:
            self._messages.close()
            raise

    @property
    def output(self) -> IO[bytes]:
        """Standard output."""
        assert self._process.stdout is not None
        return self._process.stdout

    def wait(self) -> int:
        """Waits for the end, and returns the exit code; negative for a signal."""
        return self._process.wait()

    def last_message(self) -> str:
        """The last line on standard error, without the program's name."""
        end = self._messages.seek(0, os.SEEK_END)
        self._messages.seek(max(0, end - _MAX_MESSAGE_BYTES))
        lines = self._messages.read().decode(errors="backslashreplace").splitlines()
        last = next((line for line in reversed(lines) if line.strip()), "")
        return last[len("longhaul: ") :] if last.startswith("longhaul: ") else last

    def end(self) -> None:
        """Ends the program. A copy keeps what it has for the next one."""
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except BaseException as error:
            self._process.kill()
            self._process.wait()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_) -> None:
        try:
            self.end()
        finally:
            self.output.close()
            self._messages.close()
