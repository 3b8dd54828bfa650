"""A distance: a TCP proxy that delivers each byte half a round trip later, in both directions, and counts requests of HTTP.

Run as a program it is that proxy, a process of its own, so that whoever measures does not share a processor's turn with it:

    distance.py --to PORT --round-trip MILLISECONDS [--http]

It prints the port it listens on, and for each line that it reads a JSON object of what it has counted since it began. A new
connection costs a round trip, too. Bandwidth is not limited, but for what may be under way: 16 MiB in each direction.
"""
import argparse
import asyncio
import collections
import json
import os
import re
import subprocess
import sys

if __package__:
    from .system import UNTIL_OUR_DEATH, Problem

UNDER_WAY_BYTES = 16 << 20
CHUNK_BYTES = 256 << 10


class Requests:
    """Counts requests in what a client sends on one connection. `counts` has a number and the bytes of bodies for each kind."""

    def __init__(self, counts):
        self.counts = counts
        self.head, self.body_left = b"", 0

    def feed(self, data):
        """The next bytes, cut anywhere."""
        while data:
            if self.body_left:
                taken = min(self.body_left, len(data))
                self.body_left -= taken
                data = data[taken:]
                continue
            # The end of the head may lie across two pieces.
            looked_at = max(0, len(self.head) - 3)
            self.head += data
            end = self.head.find(b"\r\n\r\n", looked_at)
            if end < 0:
                return
            data = self.head[end + 4:]
            self.take(self.head[:end].decode("latin-1"))
            self.head = b""

    def take(self, head):
        """A request line with its headers."""
        line, *headers = head.split("\r\n")
        values = {name.strip().lower(): value.strip() for name, _, value in (header.partition(":") for header in headers)}
        if "chunked" in values.get("transfer-encoding", "").lower():
            # Its end is not known, and what follows would be counted wrongly.
            self.counts["unknown"] = [self.counts.get("unknown", [0, 0])[0] + 1, 0]
        self.body_left = int(values.get("content-length", 0))
        counted = self.counts.setdefault(kind(line), [0, 0])
        counted[0] += 1
        counted[1] += self.body_left


def kind(line):
    """Of a request line of S3: its verb, LIST among them, and the folder of the object: `PUT data`."""
    verb, target, *_ = line.split(" ")
    path, _, query = target.partition("?")
    if verb == "GET" and re.search(r"(^|&)(list-type|prefix|delimiter)=", query):
        return "LIST"
    parts = [part for part in path.split("/") if part]
    return f"{verb} {parts[-2]}" if len(parts) > 2 else verb


class Pipe:
    """One direction of a connection."""

    def __init__(self, reader, writer, delay_s, look):
        self.reader, self.writer, self.delay_s, self.look = reader, writer, delay_s, look
        self.queue = collections.deque()
        self.bytes = 0
        self.news, self.room = asyncio.Event(), asyncio.Event()

    async def run(self):
        """Until its end has come through."""
        await asyncio.gather(self.take(), self.deliver())

    async def take(self):
        while True:
            try:
                data = await self.reader.read(CHUNK_BYTES)
            except OSError:
                data = b""
            if data and self.look:
                self.look(data)
            self.queue.append((asyncio.get_running_loop().time() + self.delay_s, data))
            self.bytes += len(data)
            self.news.set()
            if not data:
                return
            while self.bytes > UNDER_WAY_BYTES:
                self.room.clear()
                await self.room.wait()

    async def deliver(self):
        loop = asyncio.get_running_loop()
        while True:
            while not self.queue:
                self.news.clear()
                await self.news.wait()
            due, data = self.queue.popleft()
            await asyncio.sleep(due - loop.time())
            self.bytes -= len(data)
            self.room.set()
            if not data:
                break
            try:
                self.writer.write(data)
                await self.writer.drain()
            except OSError:
                # What else comes is for nobody; its end is read all the same.
                continue
        try:
            self.writer.write_eof()
        except OSError:
            return


async def serve(port, round_trip_s, counts):
    """The proxy. `counts`: of HTTP, or None."""
    async def connection(reader, writer):
        # The handshake.
        await asyncio.sleep(round_trip_s)
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.close()
            return
        look = Requests(counts).feed if counts is not None else None
        try:
            await asyncio.gather(Pipe(reader, far_writer, round_trip_s / 2, look).run(),
                                 Pipe(far_reader, writer, round_trip_s / 2, None).run())
        finally:
            far_writer.close()
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0, limit=CHUNK_BYTES)
    print(server.sockets[0].getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    while await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(counts or {}), flush=True)


class Distance:
    """The proxy as a process, for as long as the block runs."""

    def __init__(self, port, round_trip_ms, http=False):
        self.words = ["--to", str(port), "--round-trip", str(round_trip_ms), *(["--http"] if http else [])]

    def __enter__(self):
        line = [*UNTIL_OUR_DEATH, sys.executable, os.path.abspath(__file__), *self.words]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        if not said:
            raise Problem("the proxy does not start")
        self.port = int(said)
        return self

    def __exit__(self, *reason):
        self.process.kill()
        self.process.communicate()

    def counts(self):
        """Requests and bytes of their bodies since the beginning: {kind: (number, bytes)}."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        counts = {kind: tuple(values) for kind, values in json.loads(self.process.stdout.readline()).items()}
        if "unknown" in counts:
            raise Problem("a client sends bodies of unknown length, which the proxy does not count")
        return counts


def between(before, after):
    """What was counted meanwhile."""
    found = {kind: (number - before.get(kind, (0, 0))[0], size - before.get(kind, (0, 0))[1]) for kind, (number, size) in after.items()}
    return {kind: values for kind, values in found.items() if values[0]}


def of_verb(counts, verb):
    """How many requests of a verb that is, whatever they are for."""
    return sum(number for kind, (number, _) in counts.items() if kind.split(" ")[0] == verb)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=int, required=True, metavar="PORT", help="of this machine")
    parser.add_argument("--round-trip", type=float, required=True, metavar="MILLISECONDS")
    parser.add_argument("--http", action="store_true", help="count requests")
    settings = parser.parse_args()
    asyncio.run(serve(settings.to, settings.round_trip / 1000, {} if settings.http else None))


if __name__ == "__main__":
    main()
