"""Peers without the key: refused, harmless, and none the wiser. And what crosses the network is unreadable."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from pathlib import Path

import pytest

from lab import Capture, Host, Lab
from lab.cluster import KEY, PORT, Cluster, daemon, tell
from support.waiting import wait_until

MARK = b"this argument must never be seen "

SEND = """
mark = b"this argument must never be seen "

@pl.remote
def size(data):
    return len(data)

assert size(mark * 100_000) == len(mark) * 100_000
print("sent", flush=True)
wait_for("enough")
assert size(mark * 100_000) == len(mark) * 100_000
"""


def test_no_plaintext_of_an_argument_crosses_the_network(lab: Lab) -> None:
    cluster = Cluster(lab, lab.host("head"), "--cpus", "0")
    cluster.join(lab.host("node1"))
    alice = lab.host("alice")
    cluster.give_key(alice)
    with Capture(alice) as seen:
        script = cluster.client(alice, SEND)
        script.said("sent")
        cluster.assert_encrypted("alice", "node1")
        tell(alice, "enough")
        script.wait(40).ok()
    assert seen.missed == 0
    assert seen.size >= 2 * len(MARK) * 100_000  # the argument did cross, and twice
    assert MARK not in seen
    assert b"must never be seen" not in seen


def test_a_capture_would_have_seen_it(lab: Lab) -> None:
    """The same argument by a plain connection: the test above can fail."""
    a, b = lab.host("a"), lab.host("b")
    serve = "import socket\ns = socket.create_server(('', 5000))\nprint('up', flush=True)\nc, _ = s.accept()\n"
    b.script(serve + "while c.recv(65536): pass").said("up")
    send = (
        "import socket; socket.create_connection(('b', 5000)).sendall(b'this argument must never be seen ' * 100_000)"
    )
    with Capture(a) as seen:
        a.python(send).ok()
    assert MARK in seen


@pytest.mark.parametrize("case", ["wrong key", "no key", "wrong token"])
def test_without_the_key_nobody_gets_in(cluster: Cluster, lab: Lab, case: str) -> None:
    alice, stranger = lab.hosts["alice"], lab.host("stranger")
    other = lab.host("other")
    if case == "wrong token":
        done = stranger.run("paceline", "join", f"head:{PORT}", "--token", "pl1-" + "5a" * 24, "--cpus", "2")
        assert done.returncode != 0
        assert "token" in done.stderr
        assert f"head:{PORT}" in done.stderr
    else:
        if case == "wrong key":
            other.run("paceline", "start", "--cpus", "0").ok()
            key = next((other.files / "root").rglob("clusters/*/key"))
            (stranger.files / KEY[1:]).write_bytes(key.read_bytes())
            (stranger.files / KEY[1:]).chmod(0o600)
            connect = 'pl.connect("head:7077", key_file="/srv/key")'
        else:
            connect = 'pl.connect("head:7077")'
        done = stranger.python(f"import paceline as pl\n{connect}", timeout=15)
        assert done.returncode != 0
        assert f"head:{PORT}" in done.stderr
        assert "key" in done.stderr
    # And the others do not notice.
    work = "assert pl.map(abs, range(100), engine='cluster') == list(range(100))"
    cluster.client(alice, work).wait(40).ok()
    assert not [node for node in cluster.status()["nodes"] if node["name"] == "stranger"]


FLOOD = """
import os, socket, struct, sys, time
port = int(sys.argv[1])
held = []
for number in range(1000):
    try:
        connection = socket.create_connection(("head", port), timeout=2)
    except OSError:
        continue
    kind = number % 4
    try:
        if kind == 1:
            connection.sendall(os.urandom(512))
        elif kind == 2:
            connection.sendall(struct.pack("<I", 0xFFFFFFFF) * 64)
        elif kind == 3:
            connection.sendall(b"PO" + os.urandom(30) + b"\\x16\\x03\\x01\\xff\\xff" + os.urandom(100))
    except OSError:
        pass
    held.append(connection)
print("held", len(held), flush=True)
time.sleep(600)
"""


@pytest.mark.slow
def test_a_thousand_idle_and_babbling_connections(cluster: Cluster, lab: Lab) -> None:
    alice, stranger = lab.hosts["alice"], lab.host("stranger")
    memory = {name: resident(lab, name) for name in ("head", "node1")}
    flood = stranger.script(FLOOD, str(PORT))
    flood.said("held", 60)
    work = """
print("connected", flush=True)
for _ in range(20):
    assert pl.map(abs, range(1000), engine="cluster", chunksize=1) == list(range(1000))
print("done", flush=True)
"""
    script = cluster.client(alice, work)
    cluster.assert_encrypted("alice", "node1") if not script.ended() else None
    script.wait(40).ok()
    flood.end()
    cluster.wait_for_nodes("head", "node1", "node2")
    for name, before in memory.items():
        assert resident(lab, name) < before + 40_000, "kilobytes"


def resident(lab: Lab, name: str) -> int:
    for line in Path(f"/proc/{daemon(lab.hosts[name]).pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError(name)


REPLAY = """
import socket, sys
data = open("/srv/recorded", "rb").read()
connection = socket.create_connection(("head", 7077), timeout=5)
connection.settimeout(15)
connection.sendall(data)
answer = b""
try:
    while more := connection.recv(65536):
        answer += more
except OSError as error:
    pass
print("closed after", len(answer), flush=True)
"""


@pytest.mark.slow
def test_a_recorded_handshake_is_worth_nothing(cluster: Cluster, lab: Lab) -> None:
    alice, stranger = lab.hosts["alice"], lab.host("stranger")
    with Capture(alice) as seen:
        cluster.client(alice, "print(pl.map(abs, [-1], engine='cluster'))").wait(40).ok()
    sent = b"".join(tcp_payloads(seen.frames, alice.address, cluster.head.address, PORT))
    assert len(sent) > 500
    (stranger.files / "srv/recorded").write_bytes(sent)
    before = len(cluster.status()["clients"])
    done = stranger.python(REPLAY, timeout=30).ok()
    assert "closed after" in done.stdout
    assert len(cluster.status()["clients"]) == before == 0


def tcp_payloads(frames: list[bytes], source: str, target: str, port: int) -> list[bytes]:
    """What went from one address to a port of another, in order; packets sent twice only once."""
    found: dict[int, bytes] = {}
    for frame in frames:
        if frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        header = 14 + (frame[14] & 15) * 4
        ends = tuple(".".join(map(str, frame[at : at + 4])) for at in (26, 30))
        if ends != (source, target) or int.from_bytes(frame[header + 2 : header + 4], "big") != port:
            continue
        length = int.from_bytes(frame[16:18], "big") + 14
        payload = frame[header + (frame[header + 12] >> 4) * 4 : length]
        if payload:
            found.setdefault(int.from_bytes(frame[header + 4 : header + 8], "big"), payload)
    return [found[number] for number in sorted(found)]


DUMP = """
import base64, re

@pl.remote
def dump(x):
    '''Everything this slot can read of itself: memory, environment, descriptors.'''
    parts = [open("/proc/self/environ", "rb").read(), repr(dict(os.environ)).encode()]
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in open("/proc/self/maps"):
            begin, end = (int(part, 16) for part in line.split()[0].split("-"))
            if "r" not in line.split()[1] or "[v" in line:
                continue
            try:
                memory.seek(begin)
                parts.append(memory.read(min(end - begin, 1 << 28)))
            except (OSError, OverflowError):
                pass
    for entry in os.listdir("/proc/self/fd"):
        try:
            path = f"/proc/self/fd/{entry}"
            if os.path.isfile(path):
                parts.append(open(path, "rb").read(1 << 20))
        except OSError:
            pass
    import hashlib
    wanted = set(bytes.fromhex(digest) for digest in x["digests"])
    sizes = x["sizes"]
    found = []
    everything = b"\\0".join(parts)
    for size, first in zip(sizes, x["firsts"]):
        # Looks for windows that begin with two known bytes and hash to a form of the key.
        at = everything.find(bytes(first))
        while at >= 0:
            if hashlib.sha256(everything[at:at + size]).digest() in wanted:
                found.append(size)
            at = everything.find(bytes(first), at + 1)
    return len(everything), found, socket.gethostname()

import json
query = json.load(open("/srv/query"))
print("warm", flush=True)
for result in [dump.submit(query) for _ in range(6)]:
    size, found, host = result.result()
    print(size, found, host, flush=True)
"""


def forms_of(key: bytes) -> list[bytes]:
    """A key as its file has it, as bytes, and as either is commonly written."""
    forms = {key}
    if len(key) == 64:
        forms.add(bytes.fromhex(key.decode()))
    elif len(key) in (43, 44):
        forms.add(base64.urlsafe_b64decode(key.ljust(44, b"=")))
    for raw in [form for form in forms if len(form) == 32]:
        forms |= {raw.hex().encode(), base64.b64encode(raw), base64.urlsafe_b64encode(raw)}
    return sorted(forms)


def look_for(host: Host, forms: list[bytes]) -> None:
    """The key goes to the task only as hashes and first bytes, so that the search cannot find itself."""
    query = {
        "digests": [hashlib.sha256(form).hexdigest() for form in forms],
        "sizes": [len(form) for form in forms],
        "firsts": [list(form[:2]) for form in forms],
    }
    (host.files / "srv/query").write_text(json.dumps(query))


@pytest.mark.slow
def test_a_task_does_not_find_the_key_in_its_own_process(cluster: Cluster, lab: Lab) -> None:
    alice = lab.hosts["alice"]
    look_for(alice, forms_of((alice.files / KEY[1:]).read_bytes().strip()))
    done = cluster.client(alice, DUMP).wait(50).ok()
    lines = [line for line in done.stdout.splitlines() if line and line[0].isdigit()]
    assert len(lines) == 6
    for line in lines:
        size, found = line.split(maxsplit=1)
        assert int(size) > 5_000_000
        assert found.startswith("[]"), line


def test_the_search_for_the_key_finds_what_is_there(lab: Lab) -> None:
    """The same search in a process that does hold the key: the test above can fail."""
    alice = lab.host("alice")
    key = os.urandom(32)
    look_for(alice, [key])
    (alice.files / "srv/held").write_bytes(key)
    body = DUMP.replace("@pl.remote\n", "").split("import json")[0]
    script = "import os, socket, json\nheld = open('/srv/held', 'rb').read()\n" + body
    done = alice.python(script + "print(dump(json.load(open('/srv/query')))[1])", timeout=30).ok()
    assert "32" in done.stdout


def test_a_stranger_does_not_reach_a_slot_or_a_nodes_port(cluster: Cluster, lab: Lab) -> None:
    stranger = lab.host("stranger")
    knock = """
import os, socket, sys
connection = socket.create_connection((sys.argv[1], 7078), timeout=5)
connection.settimeout(10)
connection.sendall(b"PO" + os.urandom(200))
try:
    while connection.recv(4096):
        pass
except ConnectionError:
    pass
print("closed", flush=True)
"""
    assert stranger.python(knock, lab.hosts["node1"].address, timeout=20).ok().stdout == "closed\n"
    cluster.wait_for_nodes("head", "node1", "node2")
    wait_until(lambda: not cluster.status()["clients"], "no client")


SQUAT = """
import os, socket, sys, time
os.setuid(65534)
names = sys.argv[1:]
held = [socket.socket(socket.AF_UNIX) for _ in names]
for one, name in zip(held, names):
    one.bind("\\0" + name)
    one.listen()
print("up", flush=True)
time.sleep(600)
"""


def test_socket_name_that_another_user_holds_does_not_hide_the_port(lab: Lab) -> None:
    """Whoever knows the name of a node's unix socket can have one of that name on another machine."""
    cluster = Cluster(lab, lab.host("head"), "--cpus", "0")
    node1, alice = lab.host("node1"), lab.host("alice")
    cluster.join(node1)
    cluster.give_key(alice)
    names = [json.loads(path.read_text())["unix"] for path in (node1.files / "root").rglob("nodes/*.json")]
    assert names
    alice.script(SQUAT, *names).said("up")
    work = "assert pl.map(abs, [-1] * 50, engine='cluster') == [1] * 50"
    cluster.client(alice, work).wait(20).ok()
