#!/usr/bin/env python3
"""The demo's program, started from `headstart serve --http` over links of 1 Gbit, 100 and 10 Mbit a second.

Each start has an empty cache on disk, and is then made again with that cache.
"""

from functools import partial

from harness import benchmark, start
from inputs import COMMAND, READY, demo, named, packed_bytes
from network import empty_cache, inside, link, serving, shape

RATES_MBIT = [1000, 100, 10]

@benchmark(repeats=3)
def measure(bench):
    image = demo()["optimized"]
    hot = packed_bytes(image)
    with link() as (server, client), serving(server, image) as (url, _):
        address = named(url, image)

        def first_and_second(mbit):
            shape(server, mbit)
            with empty_cache() as flags:
                both = [start(address, COMMAND, ready=READY, flags=flags, within=inside(client)) for _ in range(2)]
                return {**both[0], **{f"second_{key}": value for key, value in both[1].items()}}

        runs = bench.turns({mbit: partial(first_and_second, mbit) for mbit in RATES_MBIT},
                           say="{ready_s:.2f} s, {store_requests} requests")
    # Of what bounds a start: the program itself, or the transfer of what it needs.
    bounds = {mbit: max(runs.median(RATES_MBIT[0]), hot * 8 / (mbit * 1e6)) for mbit in RATES_MBIT}
    bench.figure("start over a link ÷ the larger of start at 1 Gbit/s and hot bytes ÷ rate",
                 max(runs.median(mbit) / bounds[mbit] for mbit in RATES_MBIT), at_most=1.15, detail=runs.detail())
    bench.figure("requests over HTTP up to ready", max(max(runs.values(mbit, "store_requests")) for mbit in RATES_MBIT),
                 at_most=10, detail={"hot_compressed_bytes": hot})
