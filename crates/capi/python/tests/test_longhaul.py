"""The Python module over a running on-ramp: the blocking socket and asyncio."""

import asyncio
import errno
import hashlib
import os
import signal
import socket
import threading
import unittest

import longhaul
from longhaul import aio

BYTES = bytes(range(256)) * 8000


class Blocking(unittest.TestCase):
    def pair(self):
        with longhaul.create_server(("127.0.0.1", 0)) as listening:
            near = longhaul.create_connection(listening.getsockname(), acceptor=True)
            far, peer = listening.accept()
        self.addCleanup(near.close)
        self.addCleanup(far.close)
        return near, far, peer

    def test_bytes_both_ways_and_half_close(self):
        near, far, _ = self.pair()
        answers = []

        def echo():
            digest = hashlib.sha256()
            while data := far.recv(65536):
                digest.update(data)
            far.sendall(digest.digest())
            far.close()

        thread = threading.Thread(target=echo)
        thread.start()
        near.sendall(BYTES)
        near.shutdown(socket.SHUT_WR)
        while data := near.recv(100):
            answers.append(data)
        thread.join()
        self.assertEqual(b"".join(answers), hashlib.sha256(BYTES).digest())

    def test_who_and_where(self):
        with longhaul.create_server(("127.0.0.1", 0)) as listening:
            at = listening.getsockname()
            near = longhaul.create_connection(at, purpose="nightly", size=12345, acceptor=True)
            far, peer = listening.accept()
        self.assertEqual(near.getpeername(), at)
        self.assertEqual(peer[0], "127.0.0.1")
        self.assertTrue(far.peer_key.startswith("lhk1:"))
        self.assertIsNone(near.peer_key)
        self.assertTrue(near.routed)
        self.assertTrue(near.reason)
        self.assertEqual((near.purpose, near.size), ("nightly", 12345))
        self.assertEqual(near.type, socket.SOCK_STREAM)
        near.close()
        far.close()

    def test_inherited_methods(self):
        near, far, _ = self.pair()
        with near.makefile("rwb") as stream:
            stream.write(b"line\n")
            stream.flush()
            self.assertEqual(far.makefile("rb").readline(), b"line\n")
        copy = near.dup()
        self.assertIsInstance(copy, longhaul.Socket)
        self.assertEqual(copy.getpeername(), near.getpeername())
        copy.close()
        near.settimeout(0.05)
        with self.assertRaises(TimeoutError):
            near.recv(1)
        near.setblocking(False)
        with self.assertRaises(BlockingIOError):
            near.recv(1)

    def test_refused(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            nobody = held.getsockname()
            with self.assertRaises(ConnectionRefusedError):
                longhaul.create_connection(nobody, acceptor=True)
            with longhaul.Socket() as sock:
                sock.acceptor = True
                sock.settimeout(10)
                self.assertEqual(sock.connect_ex(nobody), errno.ECONNREFUSED)
                self.assertEqual(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)

    def test_nonblocking_and_timeouts(self):
        silent = longhaul.Address(None, 4711, ip=os.environ["SUITE_SILENT"], acceptor=True)
        with longhaul.Socket() as sock:
            sock.setblocking(False)
            with self.assertRaises(BlockingIOError):
                sock.connect(silent)
        with longhaul.Socket() as sock:
            sock.settimeout(0.05)
            with self.assertRaises(TimeoutError):
                sock.connect(silent)
        with longhaul.create_server(("127.0.0.1", 0)) as listening:
            listening.settimeout(0.05)
            with self.assertRaises(TimeoutError):
                listening.accept()
            listening.setblocking(False)
            with self.assertRaises(BlockingIOError):
                listening.accept()

    def test_a_signal_interrupts_and_its_handler_may_raise(self):
        class Rung(Exception):
            pass

        def handler(number, frame):
            # Once: by now, the timer may have expired again.
            if signal.setitimer(signal.ITIMER_REAL, 0) != (0.0, 0.0):
                raise Rung

        before = signal.signal(signal.SIGALRM, handler)
        try:
            with longhaul.Socket() as sock:
                with self.assertRaises(Rung):
                    signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
                    sock.connect(longhaul.Address(None, 4711, ip=os.environ["SUITE_SILENT"], acceptor=True))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def test_mistakes(self):
        with longhaul.Socket() as sock:
            with self.assertRaises(TypeError):
                sock.wish(colour="red")
            with self.assertRaises(OSError) as raised:
                sock.connect(longhaul.Address("h.example", 9, route="a,,b"))
            self.assertEqual(raised.exception.errno, errno.EINVAL)
            with self.assertRaises(ValueError):
                sock.connect(("h" * 300, 9))
            with self.assertRaises(OSError):
                sock.purpose = "x" * 100

    def test_a_name_that_is_not_known_here(self):
        (address,) = longhaul.getaddrinfo("only.known.there.invalid", 9)
        self.assertEqual((address.host, address.ip), ("only.known.there.invalid", None))


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_streams(self):
        async def serve(reader, writer):
            writer.write(hashlib.sha256(await reader.read()).digest())
            writer.write_eof()
            await writer.drain()
            writer.close()

        server = await aio.start_server(serve, "127.0.0.1", 0)
        async with server:
            host, port = server.sockets[0].getsockname()[:2]

            async def ask():
                reader, writer = await aio.open_connection(host, port, acceptor=True, purpose="test")
                writer.write(BYTES)
                writer.write_eof()
                answer = await reader.read()
                self.assertEqual(writer.get_extra_info("peername"), (host, port))
                writer.close()
                await writer.wait_closed()
                return answer

            answers = await asyncio.gather(*(ask() for _ in range(8)))
        self.assertEqual(set(answers), {hashlib.sha256(BYTES).digest()})

    async def test_refused(self):
        with socket.socket() as held:
            held.bind(("127.0.0.1", 0))
            with self.assertRaises(ConnectionRefusedError):
                await aio.open_connection(*held.getsockname(), acceptor=True)

    async def test_cancelled_while_connecting(self):
        task = asyncio.ensure_future(aio.open_connection(os.environ["SUITE_SILENT"], 4711, acceptor=True))
        with self.assertRaises(TimeoutError if hasattr(asyncio, "timeout") else asyncio.TimeoutError):
            await asyncio.wait_for(task, 0.1)


if __name__ == "__main__":
    unittest.main()
