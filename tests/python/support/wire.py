"""Peers that say what no client of ours would: the first bytes of a connection and of a control link, made by hand."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from pathlib import Path
from types import TracebackType

ROOT = Path(__file__).resolve().parents[3]
# Kinds of connections, of frames, of what a slot says to its node, and of proofs.
CLIENT = 1
CLIENT_TO_HEAD, SLOT_TO_NODE = 64, 69
NEST = 3
PASSWORD = 3
# Sizes of what the head says to one that tries a password.
VERDICT, CREDENTIAL = 40, 320
# The generator of Ristretto255: a valid element, which is all that the head can see of a blinded password.
ELEMENT = bytes.fromhex("e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76")


def protocol() -> int:
    """Returns the version that both sides of a connection must have."""
    found = re.search(r"PROTOCOL: u8 = (\d+)", (ROOT / "crates/proto/src/version.rs").read_text())
    assert found
    return int(found[1])


def opening(kind: int = CLIENT) -> bytes:
    """Returns the header that opens a connection."""
    return b"PO" + bytes([protocol(), kind]) + bytes(16)


def integer(value: int) -> bytes:
    """Encodes a number as messages have it: seven bits a byte, the lowest first."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


def frame(kind: int, body: bytes) -> bytes:
    return struct.pack("<2sBBIHHI", b"PL", protocol(), kind, len(body), 0, 0, 0) + body


def hello(client: int) -> bytes:
    """Encodes the first message of a client with this id: no name, leases, earlier head, own lease or heartbeats."""
    return frame(CLIENT_TO_HEAD, integer(0) + integer(client) + bytes(5))


def ask(number: int, question: bytes) -> bytes:
    """Encodes a question to the head, whose answer has the same number."""
    return frame(CLIENT_TO_HEAD, integer(9) + integer(number) + question)


def want_cpu(count: int) -> bytes:
    """Encodes the wish for so many leases of one CPU, none of them for something that must exist once."""
    return frame(CLIENT_TO_HEAD, integer(2) + integer(10_000) + bytes(5) + integer(count) + b"\0")


def bye() -> bytes:
    """Encodes that the client goes, and needs nothing any more."""
    return frame(CLIENT_TO_HEAD, integer(4))


def heartbeat(beat: int) -> bytes:
    """Encodes a sign of life, which the head sends back."""
    return frame(CLIENT_TO_HEAD, integer(8) + integer(beat))


class Client:
    """A control link to a head on this machine, by its unix socket; the kernel's word lets us in."""

    def __init__(self, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(10)
        self.socket.connect("\0" + name)
        self.socket.sendall(opening())
        assert self.receive(8)[3] == 0, "the head says to go on"
        introduction = b"\x81\xa4role\xa6client"
        self.socket.sendall(struct.pack("<I", len(introduction)) + introduction)
        self.receive(*struct.unpack("<I", self.receive(4)))

    def receive(self, length: int) -> bytes:
        return receive(self.socket, length)

    def wait_for(self, word: bytes) -> None:
        """Reads until the head has said these bytes."""
        heard = b""
        while word not in heard:
            more = self.socket.recv(1 << 16)
            if not more:
                raise EOFError("the head has closed the link")
            heard = heard[-len(word) :] + more

    def is_dropped(self) -> bool:
        """Waits for the head's next word, and returns whether it has closed the link instead."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()


def receive(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        more = connection.recv(length - len(received))
        if not more:
            raise EOFError(f"closed after {len(received)} of {length} bytes")
        received += more
    return bytes(received)


def begin_guess(port: int, source: str) -> ssl.SSLSocket:
    """Opens a connection from this address of the loopback network, and says the first word of a password exchange."""
    plain = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))
    plain.sendall(opening())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    sealed = context.wrap_socket(plain)
    sealed.sendall(bytes([PASSWORD]) + bytes(47) + ELEMENT + bytes(32) + ELEMENT)
    return sealed


def is_answered(guessing: ssl.SSLSocket) -> bool:
    """Waits for what the head says of a guess. Its answer is all that a guesser needs, so the exchange ends there."""
    try:
        with guessing:
            if receive(guessing, VERDICT)[0] != 0:
                return False
            return len(receive(guessing, CREDENTIAL)) == CREDENTIAL
    except (OSError, EOFError):
        return False
