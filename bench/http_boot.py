#!/usr/bin/env python3
"""The demo's Debian boots under User-mode Linux from `headstart serve --http`, over links of 1 Gbit, 100 and 10 Mbit a
second, and over one of 100 Mbit/s on which each request takes 20 ms longer.

The 20 ms are those of a relay beside the server, which delays each direction by half, and the first request of a
connection by as much again.
"""

import json
from functools import partial

from harness import benchmark, headstart_path, run
from inputs import boot_image, boot_profile, inspect, named, optimized, packed_bytes
from network import PORT, empty_cache, inside, link, relay, serving, shape

ROUND_TRIP_S = 0.020
# Rates in Mbit/s, and what a request takes longer.
LINKS = {"1000 Mbit/s": (1000, 0), "100 Mbit/s": (100, 0), "10 Mbit/s": (10, 0), "100 Mbit/s, 20 ms": (100, ROUND_TRIP_S)}

@benchmark(repeats=3)
def measure(bench):
    plain = boot_image()
    # Three, since boots vary in what they read, and the guest's own guesses do not cover that any more.
    profiles = [boot_profile(plain, name, read_ahead="auto") for name in ("boot-http", "boot-http-2", "boot-http-3")]
    image = optimized(plain, "boot-http", *profiles)
    hot, raw = packed_bytes(image), inspect(image)["hot_segments"][0]["hot_bytes"]
    with link() as (server, client), serving(server, image) as (url, _):
        def boot(mbit, round_trip_s):
            shape(server, mbit)
            with relay(server, round_trip_s / 2) as port, empty_cache() as flags:
                address = named(url.replace(str(PORT), str(port)), image)
                words = [headstart_path(), "-q", "boot", address, *flags, "--json"]
                return json.loads(run(*inside(client), *words, patience_s=200))

        runs = bench.turns({name: partial(boot, *how) for name, how in LINKS.items()},
                           say="{ready_s:.2f} s, {store_requests} requests, {store_bytes:,} bytes").at_pace()
    fast_s, late_s = runs.median("1000 Mbit/s"), runs.median("100 Mbit/s, 20 ms")
    most = lambda of: max(of(run) for case in LINKS for run in runs[case])
    besides = most(lambda run: run["store_bytes"] - run["demand_outside_bytes"])
    bench.figure("boot at 10 Mbit/s ÷ boot at 1 Gbit/s", runs.ratio("10 Mbit/s", "1000 Mbit/s"), at_most=1.15)
    bench.figure("boot with 20 ms a request ÷ its limit", late_s / max(fast_s, hot * 8 / 100e6 + 2 * ROUND_TRIP_S),
                 at_most=1.15)
    bench.figure("bytes moved, without those demanded outside the hot region, ÷ hot region, most of all boots",
                 besides / hot, at_most=1.1)
    bench.figure("bytes moved ÷ uncompressed blocks of the start, most of all boots",
                 most(lambda run: run["store_bytes"]) / raw, at_most=0.35)
    bench.figure("requests over HTTP up to ready, most of all boots", most(lambda run: run["store_requests"]), at_most=10)
