#!/usr/bin/env python3
"""What an honest client of `headstart serve` keeps of its rate while others attack the server, and what memory the server then needs.

The honest client reads at a limited rate, from another address than the attackers. It is measured alone and during each attack, in
turns; what counts is the ratio of the two. Each server is started anew. All of it is on loopback, so attackers, client and server
share this machine's cores.
"""

import os
import re
import socket
import struct
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

from harness import alternate, arguments, figure, finish, headstart, headstart_path, run, spread

RATE = 8 << 20
PIECE = 256 << 10
SECONDS = 4
LEAST_RATIO = 0.9
MOST_MIB = 256
MOST_METRICS_MIB = 16
DISK_BYTES = 64 << 20
HONEST, ATTACKERS = "127.0.0.9", ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]


def rss_mib(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


class Server:
    """A server of one image over HTTP and NBD and with metrics."""

    def __init__(self, image):
        words = [headstart_path(), "serve", f"a={image}", "--unsupervised", "--cache", "16M", "--http", "0.0.0.0:0", "--nbd", "0.0.0.0:0",
                 "--metrics", "127.0.0.1:0"]
        self.process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        said = ""
        while "Ctrl-C" not in said:
            said += self.process.stderr.readline()
        port = lambda scheme: int(re.search(rf"{scheme}://[\d.]+:(\d+)", said)[1])
        self.nbd = port("nbd")
        self.http, self.metrics = port(r"served at http"), port(r"metrics at http")
        # What it says later is not for us, and must not fill the pipe.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def end(self):
        self.process.terminate()
        self.process.wait()


def connect(source, port, receive_bytes=None):
    stream = socket.socket()
    if receive_bytes:
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    stream.settimeout(20)
    stream.bind((source, 0))
    stream.connect(("127.0.0.1", port))
    return stream


def hear(stream, count):
    heard = bytearray()
    while len(heard) < count:
        piece = stream.recv(count - len(heard))
        if not piece:
            raise ConnectionError("the server hung up")
        heard += piece
    return heard


def nbd(source, port, receive_bytes=None):
    """A connection that has chosen the export, with simple replies."""
    stream = connect(source, port, receive_bytes)
    hear(stream, 18)
    stream.sendall(b"\0\0\0\3IHAVEOPT" + struct.pack(">II", 1, 1) + b"a")
    hear(stream, 10)
    return stream


def ask_nbd(stream, offset, count):
    stream.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 7, offset, count))


# --- the honest client ----------------------------------------------------------------------------


class Http:
    def __init__(self, server):
        self.port, self.stream = server.http, None

    def read(self, offset, count):
        self.stream = self.stream or connect(HONEST, self.port)
        self.stream.sendall(f"GET /a.hsi HTTP/1.1\r\nHost: x\r\nRange: bytes={offset}-{offset + count - 1}\r\n\r\n".encode())
        head = bytearray()
        while b"\r\n\r\n" not in head:
            head += hear(self.stream, 1)
        if not head.startswith(b"HTTP/1.1 206"):
            raise ConnectionError(head.decode())
        hear(self.stream, count)


class Nbd:
    def __init__(self, server):
        self.port, self.stream = server.nbd, None

    def read(self, offset, count):
        self.stream = self.stream or nbd(HONEST, self.port)
        ask_nbd(self.stream, offset, count)
        hear(self.stream, 16 + count)


class Metrics:
    """It reads less, as often."""

    def __init__(self, server):
        self.port = server.metrics

    def read(self, offset, count):
        with connect(HONEST, self.port) as stream:
            stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            heard = b""
            while piece := stream.recv(1 << 16):
                heard += piece
            if not heard.endswith(b"# EOF\n"):
                raise ConnectionError("half of the figures")


def honest_rate(client, size):
    """Bytes a second of one that takes a piece at a time at a limited rate, for so long. A connection that fails is made again."""
    began, taken, offset = time.monotonic(), 0, 0
    while (now := time.monotonic()) < began + SECONDS:
        due = began + taken / RATE
        if due > now:
            time.sleep(min(due - now, began + SECONDS - now))
            continue
        try:
            client.read(offset, PIECE)
            taken += PIECE
            offset = (offset + PIECE) % (size - PIECE)
        except OSError:
            client.stream = None
            time.sleep(0.05)
    return taken / (time.monotonic() - began)


# --- attacks: each holds connections while it is entered ------------------------------------------


def silent(port, beginning=b"", count=4200):
    """As many connections as the server has, and some more, that say so much and wait."""
    def attack(server):
        held = []
        for number in range(count):
            stream = connect(ATTACKERS[number % len(ATTACKERS)], getattr(server, port))
            stream.sendall(beginning)
            held.append(stream)
        return held
    return attack


def heads(server):
    held = []
    for number in range(200):
        stream = connect(ATTACKERS[number % len(ATTACKERS)], server.http)
        stream.setblocking(False)
        try:
            stream.sendall(b"GET /a.hsi HTTP/1.1\r\nX: " + b"x" * (390 << 10))
        except OSError:
            pass
        held.append(stream)
    return held


def unread_answers(server):
    held = []
    for number in range(400):
        stream = connect(ATTACKERS[number % len(ATTACKERS)], server.http, 4096)
        stream.sendall(b"GET /a.hsi HTTP/1.1\r\nHost: x\r\n\r\n")
        held.append(stream)
    return held


def idle_nbd(server):
    return [nbd(ATTACKERS[number % len(ATTACKERS)], server.nbd) for number in range(300)]


def unread_nbd(server):
    held = []
    for number in range(250):
        stream = nbd(ATTACKERS[number % len(ATTACKERS)], server.nbd, 4096)
        try:
            ask_nbd(stream, 0, 32 << 20)
        except OSError:
            pass
        held.append(stream)
    return held


def endless_head(server):
    held = silent("metrics", b"G", 500)(server)
    stream = connect(ATTACKERS[0], server.metrics)
    try:
        stream.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(300):
            stream.sendall(b"x" * (1 << 20))
    except OSError:
        pass
    return held + [stream]


ATTACKS = {
    "HTTP, silent": (Http, silent("http"), None),
    "HTTP, half a preface of HTTP/2": (Http, silent("http", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"), None),
    "HTTP, heads of 390 KB": (Http, heads, None),
    "HTTP, unread answers": (Http, unread_answers, None),
    "NBD, silent": (Nbd, silent("nbd", count=300), None),
    "NBD, idle": (Nbd, idle_nbd, None),
    "NBD, unread reads of 32 MiB": (Nbd, unread_nbd, MOST_MIB),
    "metrics, a head without end": (Metrics, endless_head, MOST_METRICS_MIB),
}


@contextmanager
def held(attack, server):
    streams = attack(server)
    yield
    for stream in streams:
        stream.close()


def both(kind, attack, image, size):
    """The client's rate alone and during the attack, and the server's memory before and at most during it."""
    server = Server(image)
    try:
        alone = honest_rate(kind(server), size)
        before = most = rss_mib(server.process.pid)
        done = threading.Event()

        def watch():
            nonlocal most
            while not done.wait(0.05):
                most = max(most, rss_mib(server.process.pid))

        watching = threading.Thread(target=watch)
        watching.start()
        with held(attack, server):
            attacked = honest_rate(kind(server), size)
        done.set()
        watching.join()
        return {"alone": alone, "attacked": attacked, "ratio": attacked / alone, "before_mib": before, "more_mib": most - before}
    finally:
        server.end()


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    run("prlimit", f"--pid={os.getpid()}", "--nofile=20000:20000")
    with tempfile.TemporaryDirectory(prefix="headstart-bench-") as folder:
        raw, image = Path(folder) / "disk.raw", Path(folder) / "a.hsi"
        with open("/dev/urandom", "rb") as random:
            raw.write_bytes(random.read(DISK_BYTES))
        headstart("build", raw, "-o", image, "--codec", "zstd:1")
        cases = {name: lambda kind=kind, attack=attack: both(kind, attack, image, DISK_BYTES)
                 for name, (kind, attack, _) in ATTACKS.items()}
        found = alternate(cases, args.repeats, lambda one: f"{one['ratio']:.3f} of its rate, {one['more_mib']:.0f} MiB more")
    figures = []
    for name, (_, _, most_mib) in ATTACKS.items():
        of = lambda key: spread(one[key] for one in found[name])
        ratio, more = of("ratio"), of("more_mib")
        figures.append(figure(f"{name}: an honest client's rate ÷ its rate alone", ratio["median"], at_least=LEAST_RATIO,
                              noise=[ratio["min"], ratio["max"]], detail={"alone": of("alone"), "attacked": of("attacked")}))
        figures.append(figure(f"{name}: memory of the server, beyond what it had", more["max"], at_most=most_mib, unit="MiB", detail=more))
    commit = run("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD").strip()
    finish("attacks", figures, args.repeats, commit=commit)


if __name__ == "__main__":
    main()
