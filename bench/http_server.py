#!/usr/bin/env python3
"""What `headstart serve --http` costs: processor time for plain ranges at 1 Gbit/s, memory with 250 idle connections,
and what a client gains by ten connections."""

import subprocess
import sys
from functools import partial

from harness import HERE, benchmark
from inputs import demo
from mounts import cpu_s, memory_bytes
from network import PORT, SERVER, inside, link, many_links, serving, shape

# As many as one address may have, but for a few.
IDLE_CONNECTIONS = 250
RANGE_BYTES = 16 << 20

def client_of(client, url, mode, connections, *more):
    """A process with so many connections (inside/fetch.py)."""
    words = [mode, SERVER, PORT, "/" + url.rpartition("/")[2], connections, *more]
    return subprocess.Popen([*inside(client), sys.executable, HERE / "inside/fetch.py", *map(str, words)],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def came(process):
    """How many bytes came to one that fetches."""
    return int(process.communicate()[0])

def plain_ranges(server, client, image):
    """Processor time of the server while one client takes ranges at 1 Gbit/s, as a share of one core."""
    shape(server, 1000)
    with serving(server, image) as (url, process):
        fetch = lambda seconds: came(client_of(client, url, "fetch", 1, seconds, RANGE_BYTES, image.stat().st_size))
        fetch(1)
        before, seconds = cpu_s(process.pid), 4
        moved = fetch(seconds)
        used = cpu_s(process.pid) - before
        return {"of_a_core": used / seconds, "bytes_per_s": moved / seconds, "cpu_s_per_gb": used / (moved / 1e9)}

def idle(server, client, image):
    """Memory of the server with idle connections, and for each of them what it had not before."""
    with serving(server, image) as (url, process):
        came(client_of(client, url, "fetch", 1, 1, RANGE_BYTES, image.stat().st_size))
        before = memory_bytes(process.pid, "VmRSS")
        held = client_of(client, url, "hold", IDLE_CONNECTIONS)
        held.stdout.readline()
        more = memory_bytes(process.pid, "VmRSS") - before
        held.communicate("")
        return {"each_bytes": more / IDLE_CONNECTIONS, "rss_bytes": before + more}

def shares(image, *flags):
    """What a client with ten connections gets, for each byte that one with a single connection gets."""
    with many_links(2, 1000) as (server, clients):
        shape(server, 100)
        with serving(server, image, flags=flags) as (url, _):
            both = [client_of(client, url, "fetch", connections, 5, 4 << 20, image.stat().st_size)
                    for client, connections in zip(clients, [10, 1])]
            ten, one = map(came, both)
            return ten / one

@benchmark(repeats=3)
def measure(bench):
    image = demo()["optimized"]
    with link() as (server, client):
        runs = bench.turns({"ranges": partial(plain_ranges, server, client, image),
                            "idle": partial(idle, server, client, image)})
    bench.figure("processor time of plain ranges at 1 Gbit/s, of one core", runs.median("ranges", "of_a_core"),
                 at_most=0.25)
    # A task, hyper's buffer and the socket's structures in the server.
    bench.figure("memory of an idle connection", runs.median("idle", "each_bytes"), at_most=48 << 10, unit="bytes")
    runs = bench.turns({"told": partial(shares, image, "--http-rate", "11M"), "untold": partial(shares, image)})
    bench.figure("share of ten connections ÷ share of one, told the link's rate", runs.median("told", "value"),
                 at_most=1.1)
    bench.figure("share of ten connections ÷ share of one, not told", runs.median("untold", "value"))
