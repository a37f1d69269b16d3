#!/usr/bin/env python3
"""The demo's program, started from `headstart serve --http` over links of 1 Gbit, 100 and 10 Mbit a second.

Server and client live in network namespaces of their own; `tc tbf` shapes what the server sends. Links have no latency of
their own (netem is not in every kernel). Each start has an empty cache on disk, and is then made again with that cache.
"""

import json
import subprocess
import tempfile
import time
from contextlib import ExitStack, contextmanager

from harness import alternate, arguments, figure, finish, headstart_json, headstart_path, run, scratch, spread
from inputs import COMMAND, READY, demo

RATES_MBIT = [1000, 100, 10]
# Of what bounds a start: the program itself, or the transfer of what it needs.
LIMIT = 1.15
MOST_REQUESTS = 10
SERVER = "10.77.0.1"
PORT = 8080


@contextmanager
def namespace(name):
    run("ip", "netns", "add", name)
    try:
        run("ip", "-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        run("ip", "netns", "delete", name)


@contextmanager
def link():
    """Two namespaces and a link between them."""
    with ExitStack() as stack:
        suffix = f"{time.monotonic_ns() % 100000}"
        server = stack.enter_context(namespace(f"hs-server-{suffix}"))
        client = stack.enter_context(namespace(f"hs-client-{suffix}"))
        run("ip", "link", "add", "server0", "netns", server, "type", "veth", "peer", "client0", "netns", client)
        for name, device, address in [(server, "server0", SERVER), (client, "client0", "10.77.0.2")]:
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
        yield server, client


def shape(server, mbit):
    """Lets the server send so much a second. The burst is 2 ms of it, and never less than two full packets of the card."""
    burst = max(int(mbit * 1e6 / 8 * 0.002), 128 << 10)
    run("tc", "-n", server, "qdisc", "replace", "dev", "server0", "root", "tbf",
        "rate", f"{mbit}mbit", "burst", f"{burst}b", "latency", "100ms")
    # What TCP has learnt of the link was learnt at another rate.
    run("ip", "-n", server, "tcp_metrics", "flush")


@contextmanager
def serving(server, image):
    process = subprocess.Popen(
        ["ip", "netns", "exec", server, headstart_path(), "serve", image, "--http", f"{SERVER}:{PORT}", "--unsupervised"],
        stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        yield line.split()[-1]
    finally:
        process.terminate()
        process.wait(timeout=20)


def start(client, address, cache):
    summary = scratch() / "summary.json"
    run("ip", "netns", "exec", client, headstart_path(), "-q", "run", address, "--disk-cache", cache, "--json", summary,
        "--ready", READY, "--", *COMMAND, patience_s=200)
    return json.loads(summary.read_text())


def first_and_second(server, client, address, mbit):
    shape(server, mbit)
    with tempfile.TemporaryDirectory(prefix="headstart-bench-") as cache:
        return {"first": start(client, address, cache), "second": start(client, address, cache)}


def sums(runs):
    of = lambda which, key: spread(run[which][key] for run in runs)
    return {which: {key: of(which, key) for key in ["ready_s", "store_requests", "store_bytes", "store_retries"]}
            for which in ["first", "second"]}


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = demo()["optimized"]
    name = headstart_json("inspect", image, "--json")["image_digest"]
    hot = headstart_json("inspect", image, "--json")["hot_segments"][0]["hot_compressed_bytes"]
    with link() as (server, client), serving(server, image) as url:
        address = f"{url}#{name}"
        cases = {f"{mbit} Mbit/s": lambda mbit=mbit: first_and_second(server, client, address, mbit) for mbit in RATES_MBIT}
        say = lambda result: f"{result['first']['ready_s']:.2f} s, {result['first']['store_requests']} requests"
        found = {case: sums(runs) for case, runs in alternate(cases, args.repeats, say).items()}
    ready = {mbit: found[f"{mbit} Mbit/s"]["first"]["ready_s"]["median"] for mbit in RATES_MBIT}
    ratio = max(ready[mbit] / max(ready[RATES_MBIT[0]], hot * 8 / (mbit * 1e6)) for mbit in RATES_MBIT)
    requests = max(case["first"]["store_requests"]["max"] for case in found.values())
    finish("http", [
        figure("start over a link ÷ the larger of start at 1 Gbit/s and hot bytes ÷ rate", ratio, at_most=LIMIT, detail=found),
        figure("requests over HTTP up to ready", requests, at_most=MOST_REQUESTS, detail={"hot_compressed_bytes": hot}),
    ], args.repeats)


if __name__ == "__main__":
    main()
