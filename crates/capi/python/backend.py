"""Builds the wheel: the modules, and the files that these variables name. Needs only Python.

    python3 backend.py FOLDER

LONGHAUL_LIBRARY is the C library, LONGHAUL_PROGRAM a statically linked longhaul, and
LONGHAUL_PRELOAD_OBJECT what `longhaul run` loads into programs. LONGHAUL_PLATFORM is the wheel's
platform (default: this one). pip uses the file by pyproject.toml (PEP 517).
"""

import base64
import hashlib
import os
import pathlib
import re
import stat
import sys
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).parent
# "longhaul" is a different project on PyPI. The module's name is longhaul all the same.
NAME = "longhaul_transfer"
SUMMARY = "Bulk data transfer over long-haul networks: the program, copies, and sockets that take routes"
# As in pyproject.toml.
ENTRY_POINTS = """\
[fsspec.specs]
lh = longhaul.fsspec:LonghaulFileSystem
longhaul = longhaul.fsspec:LonghaulFileSystem
"""
# The least time that a zip file can have, so that the same files make the same wheel.
TIME = (1980, 1, 1, 0, 0, 0)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = re.search(r'__version__ = "(.*)"', (HERE / "longhaul/__init__.py").read_text()).group(1)
    # Variables, and where their files go. `scripts` becomes bin; `data` is the prefix itself.
    binaries = {
        "LONGHAUL_LIBRARY": "longhaul/liblonghaul.so.0",
        "LONGHAUL_PROGRAM": f"{NAME}-{version}.data/scripts/longhaul",
        "LONGHAUL_PRELOAD_OBJECT": f"{NAME}-{version}.data/data/lib/longhaul/liblonghaul-preload.so",
    }
    binaries = {name: os.environ[variable] for variable, name in binaries.items() if variable in os.environ}
    platform = "any"
    if binaries:
        platform = os.environ.get("LONGHAUL_PLATFORM") or re.sub("[-.]", "_", sysconfig.get_platform())
    files = {f"longhaul/{file.name}": file.read_bytes() for file in sorted((HERE / "longhaul").glob("*.py"))}
    for name, path in binaries.items():
        files[name] = pathlib.Path(path).read_bytes()
    info = f"{NAME}-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {version}\nSummary: {SUMMARY}\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n"
        "Provides-Extra: fsspec\nRequires-Dist: fsspec; extra == 'fsspec'\n"
    ).encode()
    files[f"{info}/entry_points.txt"] = ENTRY_POINTS.encode()
    pure = "false" if binaries else "true"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: longhaul\nRoot-Is-Purelib: {pure}\nTag: py3-none-{platform}\n".encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"{NAME}-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            # pip makes nothing executable that is not marked as a regular file.
            entry.external_attr = (stat.S_IFREG | (0o755 if name in binaries else 0o644)) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
