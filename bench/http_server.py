#!/usr/bin/env python3
"""What `headstart serve --http` costs: processor time for plain ranges at 1 Gbit/s, memory with 250 idle connections, and what a
client gains by ten connections.

Server and clients live in network namespaces of their own; `tc tbf` shapes what the server sends.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from harness import alternate, arguments, figure, finish, spread
from inputs import demo
from network import PORT, SERVER, link, many_links, serving, shape

# Of one core, at 1 Gbit/s of plain ranges.
MOST_OF_A_CORE = 0.25
# As many as one address may have, but for a few.
IDLE_CONNECTIONS = 250
# For each idle connection: a task, hyper's buffer and the socket's structures in the server.
MOST_IDLE_BYTES = 48 << 10
MOST_SHARES = 1.1
RANGE_BYTES = 16 << 20


def cpu_s(pid):
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10


CLIENT = r"""
import socket, sys, time
host, port, path, connections, seconds, size, length = sys.argv[1], int(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:8])
import threading
total = [0] * connections
began = time.monotonic()
end = began + seconds
buffer_of = [bytearray(1 << 20) for _ in range(connections)]
def fetch(number):
    stream = socket.create_connection((host, port))
    at = number * size
    while time.monotonic() < end:
        at = at % (length - size)
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nRange: bytes={at}-{at + size - 1}\r\n\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            head += stream.recv(4096)
        head, _, rest = head.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 206"), head
        left = size - len(rest)
        while left and time.monotonic() < end:
            got = stream.recv_into(buffer_of[number], min(left, 1 << 20))
            left -= got
            total[number] += got
        at += size
threads = [threading.Thread(target=fetch, args=(number,)) for number in range(connections)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(sum(total))
"""


def fetching(client, address, connections, seconds, size, length):
    """A process that fetches ranges for so long, and then says how many bytes came."""
    path = "/" + address.rpartition("/")[2]
    words = [SERVER, PORT, path, connections, seconds, size, length]
    return subprocess.Popen(["ip", "netns", "exec", client, sys.executable, "-c", CLIENT, *map(str, words)],
                            stdout=subprocess.PIPE, text=True)


def plain_ranges(server, client, image):
    """Processor time of the server while one client takes ranges at 1 Gbit/s, as a share of one core, for each byte that came."""
    about = {}
    shape(server, 1000)
    with serving(server, image, about=about) as url:
        fetching(client, url, 1, 1, RANGE_BYTES, image.stat().st_size).wait()
        before, seconds = cpu_s(about["pid"]), 4
        bytes_came = int(fetching(client, url, 1, seconds, RANGE_BYTES, image.stat().st_size).communicate()[0])
        used = cpu_s(about["pid"]) - before
        return {"of_a_core": used / seconds, "bytes_per_s": bytes_came / seconds, "cpu_s_per_gb": used / (bytes_came / 1e9)}


def shares(flags, image):
    """What a client with ten connections gets, for each byte that one with a single connection gets."""
    with many_links(2, 1000) as (server, clients):
        shape(server, 100)
        with serving(server, image, *flags) as url:
            length, size = image.stat().st_size, 4 << 20
            both = [fetching(client, url, connections, 5, size, length) for client, connections in zip(clients, [10, 1])]
            ten, one = (int(process.communicate()[0]) for process in both)
            return ten / one


def idle(server, client, image):
    """Memory of the server with idle connections, and before, for each of them."""
    about = {}
    with serving(server, image, about=about) as url:
        fetching(client, url, 1, 1, RANGE_BYTES, image.stat().st_size).wait()
        before = rss_bytes(about["pid"])
        held = subprocess.Popen(["ip", "netns", "exec", client, sys.executable, "-c", IDLE, SERVER, str(PORT), str(IDLE_CONNECTIONS)],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        held.stdout.readline()
        more = rss_bytes(about["pid"]) - before
        held.communicate("")
        return {"each_bytes": more / IDLE_CONNECTIONS, "rss_bytes": before + more}


# Opens connections, asks for one byte on each, says so, and waits for its standard input to end.
IDLE = r"""
import socket, sys
streams = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(int(sys.argv[3]))]
for stream in streams:
    stream.sendall(b"HEAD /fast.hsi HTTP/1.1\r\nHost: x\r\n\r\n")
for stream in streams:
    assert stream.recv(4096).startswith(b"HTTP/1.1 200")
print("held", flush=True)
sys.stdin.read()
"""


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = demo()["optimized"]
    with link() as (server, client):
        cases = {"ranges": lambda: plain_ranges(server, client, image), "idle": lambda: idle(server, client, image)}
        found = alternate(cases, args.repeats)
    cases = {"told its rate": lambda: shares(["--http-rate", "11M"], image), "as it is": lambda: shares([], image)}
    ratios = alternate(cases, args.repeats)
    each = lambda case, key: spread(run[key] for run in found[case])
    told, untold = (spread(ratios[case]) for case in cases)
    finish("http_server", [
        figure("processor time of plain ranges at 1 Gbit/s, of one core", each("ranges", "of_a_core")["median"], at_most=MOST_OF_A_CORE,
               detail={key: each("ranges", key) for key in found["ranges"][0]}),
        figure("memory of an idle connection", each("idle", "each_bytes")["median"], at_most=MOST_IDLE_BYTES, unit="bytes",
               detail={"rss_bytes": each("idle", "rss_bytes")}),
        figure("share of ten connections ÷ share of one, told the link's rate", told["median"], at_most=MOST_SHARES, detail=told),
        figure("share of ten connections ÷ share of one, not told", untold["median"], detail=untold),
    ], args.repeats)


if __name__ == "__main__":
    main()
