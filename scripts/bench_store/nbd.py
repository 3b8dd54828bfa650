"""A small client of NBD on a unix socket: one request at a time."""
import socket
import struct

MAGIC, OPTION = b"NBDMAGIC", b"IHAVEOPT"
GO, READ, WRITE, FLUSH = 7, 0, 1, 3


class Client:
    """One connection."""

    def __init__(self, path):
        connected = socket.socket(socket.AF_UNIX)
        connected.connect(path)
        self.begin(connected)

    def begin(self, connected):
        """The handshake."""
        self.socket = connected
        if self.take(18)[:16] != MAGIC + OPTION:
            raise OSError("no server of NBD")
        # Fixed newstyle, no zeroes; then the export without a name.
        self.socket.sendall(struct.pack(">I", 3) + OPTION + struct.pack(">II", GO, 6) + bytes(6))
        while True:
            _, _, reply, length = struct.unpack(">QIII", self.take(20))
            self.take(length)
            if reply == 1:
                return
            if reply >> 31:
                raise OSError(f"refused: {reply:#x}")

    def take(self, count):
        """So many bytes of it."""
        found = b""
        while len(found) < count:
            more = self.socket.recv(count - len(found))
            if not more:
                raise OSError("the server has gone")
            found += more
        return found

    def ask(self, command, offset=0, length=0, content=b""):
        """One request; what it reads."""
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, command, 0, offset, length) + content)
        _, error, _ = struct.unpack(">IIQ", self.take(16))
        if error:
            raise OSError(error, "NBD")
        return self.take(length) if command == READ else b""

    def read(self, offset, length):
        """Bytes."""
        return self.ask(READ, offset, length)

    def write(self, offset, content):
        """Bytes."""
        self.ask(WRITE, offset, len(content), content)

    def flush(self):
        """All of them are durable."""
        self.ask(FLUSH)

    def close(self):
        """Without a word."""
        self.socket.close()
