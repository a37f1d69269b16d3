#!/usr/bin/env python3
"""What an honest client of `headstart serve` keeps of its rate while others attack the server, and what memory the
server then needs.

The honest client reads at a limited rate, from another address than the attackers. It is measured alone and during each
attack, in turns; what counts is the ratio of the two. Each server is started anew. All of it is on loopback, so
attackers, client and server share this machine's cores.
"""

import itertools
import os
import re
import socket
import struct
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial

from harness import MIB, benchmark, headstart, headstart_path, run, scratch
from mounts import memory_bytes, program

RATE = 8 << 20
PIECE = 256 << 10
SECONDS = 4
DISK_BYTES = 64 << 20
HONEST, ATTACKERS = "127.0.0.9", ["127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4"]

@contextmanager
def serving(image):
    """A server of one image over HTTP and NBD and with metrics: the process, and its ports."""
    words = ["serve", f"a={image}", "--unsupervised", "--cache", "16M", "--http", "0.0.0.0:0", "--nbd", "0.0.0.0:0",
             "--metrics", "127.0.0.1:0"]
    with program(headstart_path(), *words, stderr=subprocess.PIPE, text=True) as process:
        said = ""
        while "Ctrl-C" not in said:
            said += process.stderr.readline()
        # What it says later is not for us, and must not fill the pipe.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        schemes = {"nbd": "nbd", "http": "served at http", "metrics": "metrics at http"}
        yield process, {name: int(re.search(rf"{scheme}://[\d.]+:(\d+)", said)[1]) for name, scheme in schemes.items()}

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

def connect_nbd(source, port, receive_bytes=None):
    """A connection that has chosen the export, with simple replies."""
    stream = connect(source, port, receive_bytes)
    hear(stream, 18)
    stream.sendall(b"\0\0\0\3IHAVEOPT" + struct.pack(">II", 1, 1) + b"a")
    hear(stream, 10)
    return stream

def ask_nbd(stream, offset, count):
    stream.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 0, 7, offset, count))

# --- the honest client: reads a piece, by a connection of its own or one that it keeps ------------

def read_http(stream, offset):
    ask = f"GET /a.hsi HTTP/1.1\r\nHost: x\r\nRange: bytes={offset}-{offset + PIECE - 1}\r\n\r\n"
    stream.sendall(ask.encode())
    head = bytearray()
    while b"\r\n\r\n" not in head:
        head += hear(stream, 1)
    if not head.startswith(b"HTTP/1.1 206"):
        raise ConnectionError(head.decode())
    hear(stream, PIECE)

def read_nbd(stream, offset):
    ask_nbd(stream, offset, PIECE)
    hear(stream, 16 + PIECE)

def read_metrics(stream, _offset):
    """Reads less, as often."""
    stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    heard = b"".join(iter(lambda: stream.recv(1 << 16), b""))
    if not heard.endswith(b"# EOF\n"):
        raise ConnectionError("half of the figures")

HONEST_CLIENTS = {"http": (connect, read_http), "nbd": (connect_nbd, read_nbd), "metrics": (connect, read_metrics)}

def honest_rate(kind, port):
    """Bytes a second of a client that takes a piece at a time at a limited rate, for so long. A connection that fails is
    made again."""
    opens, read = HONEST_CLIENTS[kind]
    began, taken, offset, stream = time.monotonic(), 0, 0, None
    while (now := time.monotonic()) < began + SECONDS:
        due = began + taken / RATE
        if due > now:
            time.sleep(min(due - now, began + SECONDS - now))
            continue
        try:
            stream = stream or opens(HONEST, port)
            read(stream, offset)
            taken += PIECE
            offset = (offset + PIECE) % (DISK_BYTES - PIECE)
            if kind == "metrics":
                stream = stream.close()
        except OSError:
            stream = None
            time.sleep(0.05)
    return taken / (time.monotonic() - began)

# --- attacks: each opens connections and leaves them ----------------------------------------------

def silent(kind, port, said=b"", count=4200):
    """As many connections as the server has, and some more, that say so much and wait."""
    opens = connect_nbd if kind == "chosen" else connect
    for source, _ in zip(itertools.cycle(ATTACKERS), range(count)):
        stream = opens(source, port)
        stream.sendall(said)
        yield stream

def not_reading(opens, ask, count, port):
    """Connections with small buffers that ask for much and read nothing."""
    for source, _ in zip(itertools.cycle(ATTACKERS), range(count)):
        stream = opens(source, port, 4096)
        with suppress(OSError):
            ask(stream)
        yield stream

def heads(port):
    for stream in silent("http", port, count=200):
        stream.setblocking(False)
        with suppress(OSError):
            stream.sendall(b"GET /a.hsi HTTP/1.1\r\nX: " + b"x" * (390 << 10))
        yield stream

def endless_head(port):
    yield from silent("metrics", port, b"G", 500)
    stream = connect(ATTACKERS[0], port)
    with suppress(OSError):
        stream.sendall(b"GET /metrics HTTP/1.1\r\nX: ")
        for _ in range(300):
            stream.sendall(b"x" * (1 << 20))
    yield stream

HTTP_2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r"
WHOLE = b"GET /a.hsi HTTP/1.1\r\nHost: x\r\n\r\n"
# Each: what it attacks, how, and how much memory it may cost.
ATTACKS = {
    "HTTP, silent": ("http", partial(silent, "http"), None),
    "HTTP, half a preface of HTTP/2": ("http", partial(silent, "http", said=HTTP_2), None),
    "HTTP, heads of 390 KB": ("http", heads, None),
    "HTTP, unread answers": ("http", partial(not_reading, connect, lambda stream: stream.sendall(WHOLE), 400), None),
    "NBD, silent": ("nbd", partial(silent, "nbd", count=300), None),
    "NBD, idle": ("nbd", partial(silent, "chosen", count=300), None),
    "NBD, unread reads of 32 MiB": (
        "nbd", partial(not_reading, connect_nbd, lambda stream: ask_nbd(stream, 0, 32 << 20), 250), 256),
    "metrics, a head without end": ("metrics", endless_head, 16),
}

def both(kind, attack, image):
    """The client's rate alone and during the attack, and the server's memory before and at most during it."""
    with serving(image) as (process, ports):
        alone = honest_rate(kind, ports[kind])
        before = most = memory_bytes(process.pid, "VmRSS") / MIB
        done = threading.Event()

        def watch():
            nonlocal most
            while not done.wait(0.05):
                most = max(most, memory_bytes(process.pid, "VmRSS") / MIB)

        watching = threading.Thread(target=watch)
        watching.start()
        held = [*attack(port=ports[kind])]
        attacked = honest_rate(kind, ports[kind])
        for stream in held:
            stream.close()
        done.set()
        watching.join()
        return {"alone": alone, "attacked": attacked, "ratio": attacked / alone, "before_mib": before,
                "more_mib": most - before}

@benchmark(repeats=3)
def measure(bench):
    run("prlimit", f"--pid={os.getpid()}", "--nofile=20000:20000")
    raw, image = scratch() / "disk.raw", scratch() / "a.hsi"
    raw.write_bytes(os.urandom(DISK_BYTES))
    headstart("build", "--raw", raw, "-o", image, "--codec", "zstd:1")
    attacks = bench.chosen(ATTACKS)
    runs = bench.turns({name: partial(both, kind, attack, image) for name, (kind, attack, _) in attacks.items()},
                       say="{ratio:.3f} of its rate, {more_mib:.0f} MiB more")
    for name, (_, _, most_mib) in attacks.items():
        bench.figure(f"{name}: an honest client's rate ÷ its rate alone", runs.median(name, "ratio"), at_least=0.9)
        bench.figure(f"{name}: memory of the server, beyond what it had", max(runs.values(name, "more_mib")),
                     at_most=most_mib, unit="MiB")
