"""The file system of fsspec, with fsspec's own tests, and a server on loopback."""

import posixpath

import fsspec
import fsspec.tests.abstract as abstract
import pytest

from longhaul.fsspec import LonghaulFileSystem
from server import Server


@pytest.fixture(scope="session")
def server():
    server = Server()
    yield server
    server.end()


@pytest.fixture
def options(server):
    return {"host_key": server.key, "skip_instance_cache": True}


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, server, options):
        host, port = server.address.rsplit(":", 1)
        return LonghaulFileSystem(host, int(port), **options)

    @pytest.fixture
    def fs_join(self):
        return posixpath.join

    @pytest.fixture
    def fs_path(self, server, tmpdir):
        path = f"/{tmpdir.basename}"
        (server.root / tmpdir.basename).mkdir()
        return path


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestLonghaul(Fixtures):
    """What the abstract tests leave out."""

    def test_urls_name_server_and_path(self):
        strip = LonghaulFileSystem._strip_protocol
        for url in ("lh://h:1/a/b", "longhaul://h/a/b/", "/a/b", "a/b"):
            assert strip(url) == "/a/b"
        assert strip("lh://h") == strip("lh://h/") == "/"
        named = LonghaulFileSystem._get_kwargs_from_urls
        assert named("lh://h:1/a:b") == {"host": "h", "port": 1}
        assert named("lh://[::1]/a") == {"host": "[::1]"}
        assert named("lh://[::1]:7/a") == {"host": "[::1]", "port": 7}
        assert named("/a") == {}

    def test_open_by_url(self, server, options):
        with fsspec.open(server.url("by-url/f"), "w", **options) as file:
            file.write("text\n")
        assert (server.root / "by-url/f").read_text() == "text\n"
        with fsspec.open(server.url("by-url/f"), **options) as file:
            assert file.read() == b"text\n"

    def test_entries_are_described(self, server, fs, fs_path):
        folder = server.root / fs_path.strip("/")
        (folder / "same").mkdir()
        (folder / "same/same").write_text("12345")
        info = fs.info(f"{fs_path}/same/same")
        assert (info["type"], info["size"]) == ("file", 5)
        assert info["mtime"] == fs.modified(f"{fs_path}/same/same")
        assert fs.ls(f"{fs_path}/same", detail=False) == [f"{fs_path}/same/same"]
        assert fs.ls(f"{fs_path}/same/same", detail=False) == [f"{fs_path}/same/same"]
        assert fs.find(fs_path) == [f"{fs_path}/same/same"]
        assert fs.find(f"{fs_path}/same/same") == [f"{fs_path}/same/same"]
        assert fs.find(f"{fs_path}/none") == []
        found = fs.find(fs_path, withdirs=True)
        assert found == [fs_path, f"{fs_path}/same", f"{fs_path}/same/same"]
        assert fs.glob(f"{fs_path}/**/s*") == found[1:]
        assert fs.du(fs_path) == 5
        assert not fs.exists(f"{fs_path}/none")
        with pytest.raises(FileNotFoundError):
            fs.info(f"{fs_path}/none")

    def test_a_file_at_the_root_is_listed_by_itself(self, server, fs):
        (server.root / "top").write_text("x")
        (server.root / "same").mkdir(exist_ok=True)
        (server.root / "same/same").write_text("y")
        assert fs.ls("/top", detail=False) == ["/top"]
        assert fs.ls("/same", detail=False) == ["/same/same"]
        assert "/top" in fs.ls("/", detail=False)

    def test_ranges_are_read(self, server, fs, fs_path):
        path = f"{fs_path}/f"
        fs.pipe(path, b"0123456789")
        assert fs.cat_file(path, 2, 5) == b"234"
        assert fs.cat_file(path, -3) == b"789"
        assert fs.cat_file(path, 1, -1) == b"12345678"
        assert fs.cat_file(path, 3, 3) == b""
        with fs.open(path) as file:
            file.seek(4)
            assert file.read(3) == b"456"
            assert (file.tell(), file.size) == (7, 10)
        with pytest.raises(FileNotFoundError):
            fs.cat_file(f"{fs_path}/none")
        with pytest.raises(IsADirectoryError):
            fs.cat_file(fs_path)

    def test_files_are_written_and_appended_to(self, server, fs, fs_path):
        path = f"{fs_path}/new/f"
        with fs.open(path, "wb", block_size=4) as file:
            file.write(b"012345")
            file.write(b"6789")
            assert not fs.exists(path)
        assert fs.cat_file(path) == b"0123456789"
        with fs.open(path, "ab") as file:
            file.write(b"!")
        assert fs.cat_file(path) == b"0123456789!"
        # The same size at the same time is no reason to keep the old content.
        fs.pipe(path, b"abcdefghij?")
        fs.pipe(path, b"ABCDEFGHIJ!")
        assert fs.cat_file(path) == b"ABCDEFGHIJ!"

    def test_transactions_commit_all_or_nothing(self, fs, fs_path):
        with fs.transaction:
            with fs.open(f"{fs_path}/kept", "wb") as file:
                file.write(b"x")
            assert not fs.exists(f"{fs_path}/kept")
        assert fs.cat_file(f"{fs_path}/kept") == b"x"
        with pytest.raises(ValueError):
            with fs.transaction:
                with fs.open(f"{fs_path}/lost", "wb") as file:
                    file.write(b"x")
                raise ValueError
        assert not fs.exists(f"{fs_path}/lost")

    def test_a_directory_is_never_written_as_a_file(self, server, fs, fs_path, tmp_path):
        fs.mkdir(f"{fs_path}/dir")
        (tmp_path / "f").write_text("f")
        with pytest.raises(OSError):
            fs.pipe_file(f"{fs_path}/dir", b"x")
        with pytest.raises(OSError):
            fs.put_file(str(tmp_path / "f"), f"{fs_path}/dir")
        assert fs.ls(f"{fs_path}/dir") == []
        fs.pipe(f"{fs_path}/f", b"x")
        (tmp_path / "here").mkdir()
        with pytest.raises(IsADirectoryError):
            fs.get_file(f"{fs_path}/f", str(tmp_path / "here"))

    def test_names_are_changed(self, fs, fs_path):
        fs.pipe(f"{fs_path}/a/f", b"x")
        fs.mv(f"{fs_path}/a/f", f"{fs_path}/g")
        assert fs.cat_file(f"{fs_path}/g") == b"x"
        fs.cp_file(f"{fs_path}/g", f"{fs_path}/h")
        assert fs.cat_file(f"{fs_path}/h") == b"x"
        fs.rmdir(f"{fs_path}/a")
        assert not fs.exists(f"{fs_path}/a")
        with pytest.raises(OSError):
            fs.rmdir(fs_path)
        fs.mkdir(f"{fs_path}/x/y")
        with pytest.raises(FileExistsError):
            fs.mkdir(f"{fs_path}/x")
        with pytest.raises(FileNotFoundError):
            fs.mkdir(f"{fs_path}/p/q", create_parents=False)
        with pytest.raises(FileNotFoundError):
            fs.rm(f"{fs_path}/none")

    def test_callbacks_learn_the_size(self, fs, fs_path, tmp_path):
        callback = fsspec.callbacks.Callback()
        (tmp_path / "f").write_bytes(bytes(70_000))
        fs.put_file(str(tmp_path / "f"), f"{fs_path}/f", callback=callback)
        assert (callback.size, callback.value) == (70_000, 70_000)
        callback = fsspec.callbacks.Callback()
        fs.get_file(f"{fs_path}/f", str(tmp_path / "g"), callback=callback)
        assert (callback.size, callback.value) == (70_000, 70_000)

    def test_the_wheel_registers_the_protocols(self):
        assert fsspec.get_filesystem_class("lh") is LonghaulFileSystem
        assert fsspec.get_filesystem_class("longhaul") is LonghaulFileSystem
