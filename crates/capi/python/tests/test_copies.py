"""Copies and commands about files, with a server on loopback. They need the program alone."""

import json
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import longhaul
from longhaul import _program
from server import Server

server = None


def setUpModule():
    global server
    server = Server()


def tearDownModule():
    server.end()


class Here(unittest.TestCase):
    """A test with a directory of its own, which is also at the server."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.there = self.here.name
        self.root = server.root / self.there
        self.root.mkdir()
        self.trust = {"host_key": server.key}

    def url(self, path=""):
        return server.url(f"{self.there}/{path}")

    def program(self, script):
        """Has the module run this script instead of the program."""
        file = self.here / "program"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        patched = mock.patch.dict(os.environ, {"LONGHAUL_PROGRAM": str(file)})
        patched.start()
        self.addCleanup(patched.stop)


class Copies(Here):
    def test_trees_go_to_a_server_and_back(self):
        (self.here / "tree/sub").mkdir(parents=True)
        (self.here / "tree/a").write_bytes(b"x" * 100_000)
        (self.here / "tree/sub/b.tmp").write_bytes(b"left out")
        (self.here / "tree/sub/c").write_bytes(b"c")
        events = []
        report = longhaul.copy(
            self.here / "tree", self.url(), recursive=True, exclude=["*.tmp"],
            on_event=events.append, **self.trust,
        )
        self.assertTrue(report.ok)
        self.assertEqual((report.files, report.bytes, report.failed), (2, 100_001, 0))
        self.assertEqual(report.details["direction"], "push")
        self.assertEqual(events[-1]["event"], "report")
        done = {event["path"] for event in events if event["event"] == "done"}
        self.assertIn(str(self.here / "tree/a"), done)
        self.assertFalse((self.root / "tree/sub/b.tmp").exists())
        longhaul.copy(
            [self.url("tree/a"), self.url("tree/sub/c")], self.here, quiet=True, **self.trust
        )
        self.assertEqual((self.here / "a").stat().st_size, 100_000)

    def test_a_failed_copy_raises_its_reason(self):
        (self.here / "f").write_text("new")
        (self.root / "f").write_text("older content")
        with self.assertRaises(longhaul.CopyError) as raised:
            longhaul.copy(self.here / "f", self.url("f"), **self.trust)
        error = raised.exception
        self.assertEqual((error.exit_code, error.kind), (1, "exists"))
        self.assertFalse(error.report.ok)
        self.assertIn("already exists", error.message)
        self.assertEqual(pickle.loads(pickle.dumps(error)).failures, error.failures)
        longhaul.copy(self.here / "f", self.url("f"), overwrite=True, **self.trust)
        self.assertEqual((self.root / "f").read_text(), "new")

    def test_a_wrong_option_is_an_error(self):
        with self.assertRaises(longhaul.CopyError) as raised:
            longhaul.copy("a", "b", faster=True)
        self.assertEqual(raised.exception.exit_code, 2)
        with self.assertRaises(longhaul.CopyError) as raised:
            longhaul.copy(self.here / "none", self.here / "to")
        self.assertIn("none", str(raised.exception))

    def test_a_server_that_is_not_known_is_refused(self):
        with self.assertRaises(longhaul.CopyError) as raised:
            longhaul.copy(self.url("f"), self.here)
        self.assertEqual(raised.exception.exit_code, 4)

    def test_progress_and_report_are_typed(self):
        progress = {
            "event": "progress", "seconds": 0.5, "bytes": 1, "bytes_found": 2, "files": 3,
            "walk_complete": True, "entries_found": 4, "bps": 5.0, "routes_bps": {"direct": 5.0},
            "waiting_seconds": None, "later": 1,
        }
        report = {"event": "report", "ok": True, "bytes": 1, "later": {"more": []}}
        lines = "\n".join(map(json.dumps, [progress, report]))
        self.program(f"cat <<'END'\n{lines}\nEND")
        seen = []
        result = longhaul.copy("a", "b", progress=seen.append)
        self.assertEqual([(one.bytes, one.bytes_found) for one in seen], [(1, 2)])
        self.assertEqual(seen[0].routes_bps, {"direct": 5.0})
        self.assertEqual((result.ok, result.details["later"]), (True, {"more": []}))

    def test_an_interrupt_ends_the_program(self):
        pid = self.here / "pid"
        self.program(f'echo $$ >{pid}\necho \'{{"event": "notice"}}\'\nexec sleep 1000')

        for error in (KeyboardInterrupt, ValueError):
            def interrupt(_):
                raise error

            with self.assertRaises(error):
                longhaul.copy("a", "b", on_event=interrupt)
            with self.assertRaises(ProcessLookupError):
                os.kill(int(pid.read_text()), 0)

    def test_a_killed_program_is_an_error(self):
        self.program("kill -KILL $$")
        with self.assertRaises(longhaul.CopyError) as raised:
            longhaul.copy("a", "b")
        self.assertEqual(raised.exception.exit_code, -9)
        self.assertIn("-9", raised.exception.message)


class Files(Here):
    def test_entries_are_listed_and_described(self):
        (self.root / "f").write_text("12345")
        (self.root / "f").chmod(0o640)
        os.symlink("f", self.root / "link")
        (self.root / "dir").mkdir()
        listed = longhaul.ls(self.url(), **self.trust)
        self.assertEqual([entry.name for entry in listed], ["dir", "f", "link"])
        file, link = listed[1], listed[2]
        self.assertEqual((file.kind, file.bytes, file.mode), ("file", 5, 0o640))
        self.assertEqual((link.kind, link.target), ("symlink", "f"))
        modified = int((self.root / "f").stat().st_mtime)
        self.assertEqual(int(file.modified.timestamp()), modified)
        self.assertEqual(longhaul.stat(self.url("dir"), **self.trust).kind, "directory")

    def test_found_paths_are_filtered(self):
        (self.root / "sub").mkdir()
        (self.root / "sub/large").write_bytes(bytes(5000))
        (self.root / "small").write_bytes(b"x")
        names = lambda **options: [
            entry.name for entry in longhaul.find(self.url(), **options, **self.trust)
        ]
        self.assertEqual(names(), ["small", "sub/large"])
        self.assertEqual(names(min_size="1K"), ["sub/large"])
        self.assertEqual(names(type="d"), ["sub"])
        self.assertEqual(names(type=["d", "f"], exclude=["small"]), ["sub", "sub/large"])

    def test_content_is_read_whole_and_in_part(self):
        content = bytes(range(256)) * 5000
        (self.root / "f").write_bytes(content)
        self.assertEqual(longhaul.cat(self.url("f"), **self.trust), content)
        part = longhaul.cat(self.url("f"), offset=1000, length=7, **self.trust)
        self.assertEqual(part, content[1000:1007])
        self.assertEqual(longhaul.cat(self.url("f"), length=0, **self.trust), b"")
        with self.assertRaises(longhaul.CopyError) as raised:
            longhaul.cat(self.url("none"), **self.trust)
        self.assertEqual(raised.exception.exit_code, 1)

    def test_names_are_changed(self):
        longhaul.mkdir(self.url("a/b"), parents=True, **self.trust)
        (self.root / "a/f").write_text("f")
        longhaul.mv(self.url("a/f"), self.url("a/b/g"), **self.trust)
        self.assertEqual((self.root / "a/b/g").read_text(), "f")
        longhaul.rm(self.url("a"), recursive=True, **self.trust)
        self.assertFalse((self.root / "a").exists())
        longhaul.rm(**self.trust)

    def test_failures_are_the_exceptions_of_python(self):
        (self.root / "dir/sub").mkdir(parents=True)
        (self.root / "f").write_text("f")
        for error, call in [
            (FileNotFoundError, lambda: longhaul.stat(self.url("none"), **self.trust)),
            (FileNotFoundError, lambda: longhaul.rm(self.url("none"), **self.trust)),
            (FileExistsError, lambda: longhaul.mkdir(self.url("dir"), **self.trust)),
            (IsADirectoryError, lambda: longhaul.rm(self.url("dir"), **self.trust)),
            (NotADirectoryError, lambda: longhaul.ls(self.url("f/x"), **self.trust)),
            (longhaul.CopyError, lambda: longhaul.rm(server.url(), **self.trust)),
        ]:
            with self.assertRaises(error) as raised:
                call()
            self.assertIsInstance(raised.exception, OSError)


class Programs(Here):
    def test_options_become_flags(self):
        given = {
            "overwrite": True, "checksum": False, "route": None, "min_size": 10,
            "exclude": ["*.tmp", "--x"], "identity": pathlib.Path("key"), "ssh_port": 22,
            "ssh_options": ["A=b", "=c"],
        }
        self.assertEqual(
            list(_program.flags(given)),
            ["--overwrite", "--min-size=10", "--exclude=*.tmp", "--exclude=--x", "--identity=key",
             "-P22", "-oA=b", "-o==c"],
        )

    def test_the_program_is_found_in_the_path(self):
        program = self.here / "longhaul"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        with mock.patch.dict(os.environ, {"PATH": str(self.here)}):
            del os.environ["LONGHAUL_PROGRAM"]
            self.assertEqual(_program.find_program(), str(program))
            os.environ["PATH"] = str(self.here / "none")
            with self.assertRaises(longhaul.ProgramNotFound):
                longhaul.copy("a", "b")

    def test_sockets_alone_need_the_library(self):
        script = (
            "import longhaul\n"
            "longhaul.copy\n"
            "assert 'Socket' in dir(longhaul) and not hasattr(longhaul, 'none')\n"
            "try:\n    longhaul.Socket\n"
            "except ImportError as error:\n    assert '/none' in str(error), error\n"
            "else:\n    raise SystemExit('it was loaded')\n"
        )
        environment = {**os.environ, "LONGHAUL_LIBRARY": "/none"}
        subprocess.run([sys.executable, "-c", script], check=True, env=environment)


if __name__ == "__main__":
    unittest.main()
