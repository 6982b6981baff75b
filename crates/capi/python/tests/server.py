"""A server on loopback, for the tests."""

import json
import os
import pathlib
import subprocess
import tempfile

from longhaul._program import find_program


class Server:
    """``longhaul serve`` with an empty root, and a key that may read and write there."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.root = self.folder / "root"
        self.root.mkdir()
        # For this process and the programs that it starts.
        os.environ["LONGHAUL_HOME"] = str(self.folder / "home")
        os.environ["LONGHAUL_STATE"] = str(self.folder / "state")
        made = subprocess.run(
            [find_program(), "keys", "new"], check=True, stdout=subprocess.PIPE, text=True
        )
        client = made.stdout.split()[0]
        self._process = subprocess.Popen(
            [find_program(), "serve", "--json", "--listen", "127.0.0.1:0", "--root", self.root,
             "--read", client, "--write", client],
            env={**os.environ, "LONGHAUL_HOME": str(self.folder / "server"), "RUST_LOG": "error"},
            stdout=subprocess.PIPE,
        )
        ready = json.loads(self._process.stdout.readline())
        self.address, self.key = ready["address"], ready["key"]

    def url(self, path=""):
        """The URL of a path below the root."""
        return f"lh://{self.address}/{path}"

    def end(self):
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()
