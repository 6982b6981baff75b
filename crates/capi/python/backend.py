"""Builds the wheel: the modules, and the C library where LONGHAUL_LIBRARY names its file. Needs nothing beyond Python.

    python3 backend.py FOLDER

pip uses it by pyproject.toml (PEP 517).
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).parent
# The least time that a zip file can have, so that the same files make the same wheel.
TIME = (1980, 1, 1, 0, 0, 0)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    version = re.search(r'__version__ = "(.*)"', (HERE / "longhaul/__init__.py").read_text()).group(1)
    library = os.environ.get("LONGHAUL_LIBRARY")
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_") if library else "any"
    files = {f"longhaul/{file.name}": file.read_bytes() for file in sorted((HERE / "longhaul").glob("*.py"))}
    if library:
        files["longhaul/liblonghaul.so.0"] = pathlib.Path(library).read_bytes()
    info = f"longhaul-{version}.dist-info"
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: longhaul\nVersion: {version}\nSummary: Sockets whose connections take routes\n"
        "License: Apache-2.0\nRequires-Python: >=3.9\n"
    ).encode()
    pure = "false" if library else "true"
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: longhaul\nRoot-Is-Purelib: {pure}\nTag: py3-none-{platform}\n".encode()
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    wheel = f"longhaul-{version}-py3-none-{platform}.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return wheel


if __name__ == "__main__":
    print(build_wheel(sys.argv[1]))
