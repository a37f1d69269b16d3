#!/usr/bin/env python3
"""The demo's program, started from `headstart serve --http` over links of 1 Gbit, 100 and 10 Mbit a second.

Server and client live in network namespaces of their own; `tc tbf` shapes what the server sends. Links have no latency of
their own (netem is not in every kernel). Each start has an empty cache on disk, and is then made again with that cache.
"""

import json
import tempfile

from harness import alternate, arguments, figure, finish, headstart_json, headstart_path, run, scratch, spread
from inputs import COMMAND, READY, demo
from network import link, serving, shape

RATES_MBIT = [1000, 100, 10]
# Of what bounds a start: the program itself, or the transfer of what it needs.
LIMIT = 1.15
MOST_REQUESTS = 10


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
