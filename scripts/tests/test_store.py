"""What `make bench-store` counts, and how far its distance is: `scripts/test-scripts.sh`."""
import os
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from bench_common import report  # noqa: E402
from bench_common.distance import Distance, Requests, between, kind, of_verb  # noqa: E402
from bench_common.system import Problem  # noqa: E402
from bench_store.loads import LINE, scattered  # noqa: E402
from bench_store.nbd import Client  # noqa: E402

PUT = b"PUT /bucket/vol/data/00000001-000000000001 HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nGET /a HTT"
GET = b"GET /bucket/vol/map/manifest/1.m?x=1 HTTP/1.1\r\nHost: h\r\n\r\n"


class Counting(unittest.TestCase):
    """Requests on a connection that stays."""

    def test_requests_are_counted_however_they_are_cut(self):
        """Their bodies are not, though they look like requests."""
        for step in range(1, 40):
            counts = {}
            requests = Requests(counts)
            text = PUT + GET + PUT
            for start in range(0, len(text), step):
                requests.feed(text[start:start + step])
            self.assertEqual(counts, {"PUT data": [2, 20], "GET manifest": [1, 0]}, step)

    def test_kinds(self):
        """A list is a GET by its query."""
        self.assertEqual(kind("GET /bucket?list-type=2&prefix=vol%2Fdata HTTP/1.1"), "LIST")
        self.assertEqual(kind("GET /bucket/?prefix=a HTTP/1.1"), "LIST")
        self.assertEqual(kind("GET /bucket/prefix=a HTTP/1.1"), "GET")
        self.assertEqual(kind("PUT /bucket/vol/volume HTTP/1.1"), "PUT vol")
        self.assertEqual(kind("DELETE /bucket/s3backer-00000001 HTTP/1.1"), "DELETE")

    def test_what_was_counted_meanwhile(self):
        """By kinds, and by verbs."""
        found = between({"PUT data": (1, 5), "LIST": (2, 0)}, {"PUT data": (4, 25), "LIST": (2, 0), "PUT wal": (1, 1)})
        self.assertEqual(found, {"PUT data": (3, 20), "PUT wal": (1, 1)})
        self.assertEqual(of_verb(found, "PUT"), 4)
        self.assertEqual(of_verb(found, "GET"), 0)


class Echo:
    """A server that sends back what comes, `count` connections long."""

    def __init__(self):
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                connection, _ = self.server.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(1 << 20):
                    connection.sendall(data)


def talk(connection, data):
    """Sends it, and takes as much."""
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    found = b""
    while len(found) < len(data):
        found += connection.recv(1 << 20)
    sender.join()
    return found


class TheDistance(unittest.TestCase):
    """The proxy as a process."""

    def test_it_takes_a_round_trip_and_no_bandwidth(self):
        """Each answer is late by it; many bytes are not late for each piece of them."""
        echo = Echo()
        with Distance(echo.port, 500) as far, socket.create_connection(("127.0.0.1", far.port)) as connection:
            talk(connection, b"the first one takes a handshake as well")
            for data in (b"x", os.urandom(8 << 20)):
                begin = time.monotonic()
                self.assertEqual(talk(connection, data), data)
                took = time.monotonic() - begin
                self.assertGreaterEqual(took, 0.5)
                # 8 MiB in pieces of at most 256 KiB would take 8 s if each was held back, on a machine at rest.
                self.assertLess(took, 7)
        echo.server.close()

    def test_it_counts(self):
        """Also the end of a connection goes through."""
        echo = Echo()
        with Distance(echo.port, 1, http=True) as far:
            with socket.create_connection(("127.0.0.1", far.port)) as connection:
                talk(connection, PUT)
                connection.shutdown(socket.SHUT_WR)
                self.assertEqual(connection.recv(1), b"")
            self.assertEqual(far.counts(), {"PUT data": (1, 10)})
            with socket.create_connection(("127.0.0.1", far.port)) as connection:
                talk(connection, b"PUT /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n")
            with self.assertRaises(Problem):
                far.counts()
        echo.server.close()


class Loads(unittest.TestCase):
    """What is written where."""

    def test_scattered_lines_are_no_neighbours(self):
        """The same for the same seed."""
        offsets = scattered(2000, 1024, 1)
        self.assertEqual(offsets, scattered(2000, 1024, 1))
        lines = sorted(offset // LINE for offset in offsets)
        self.assertTrue(all(two - one > 1 for one, two in zip(lines, lines[1:], strict=False)))
        self.assertLess(lines[-1] * LINE, 1024 << 20)

    def test_who_is_no_server_of_nbd_is_told(self):
        """Not waited for."""
        here, there = socket.socketpair()
        there.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        with self.assertRaises(OSError):
            Client.__new__(Client).begin(here)
        here.close()
        there.close()


class Bars(unittest.TestCase):
    """What is met."""

    def test_bars(self):
        """At least, at most."""
        self.assertTrue(report.bar("a", 50, least=50)["met"])
        self.assertFalse(report.bar("a", 49, least=50)["met"])
        self.assertFalse(report.bar("a", 301, most=300)["met"])
        self.assertIn("**missed**", report.bars([report.bar("a", 301, most=300)]))


if __name__ == "__main__":
    unittest.main()
