#!/usr/bin/env python3
"""The demo's Debian boots under User-mode Linux from `headstart serve --http`, over links of 1 Gbit, 100 and 10 Mbit a second, and
over one of 100 Mbit/s on which each request takes 20 ms longer.

Server and guest live in network namespaces of their own; `tc tbf` shapes what the server sends. The 20 ms are those of a relay
beside the server, which delays each direction by half, and the first request of a connection by as much again.
"""

import json
import tempfile
from contextlib import nullcontext

from harness import alternate, arguments, at_pace, figure, finish, headstart_json, headstart_path, run, spread
from inputs import boot_image, boot_profile, optimized
from network import PORT, link, relay, serving, shape

RATES_MBIT = [1000, 100, 10]
ROUND_TRIP_S = 0.020
LIMIT = 1.15
MOST_REQUESTS = 10
# Of the hot region and what was demanded besides; and of the uncompressed blocks that were read.
MOST_BYTES, MOST_OF_RAW = 1.1, 0.35


def boot(client, address):
    """One boot with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="headstart-bench-") as cache:
        return json.loads(run("ip", "netns", "exec", client, headstart_path(), "-q", "boot", address, "--disk-cache", cache, "--json",
                              patience_s=200))


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    image = boot_image()
    # Three, since boots vary in what they read, and the guest's own guesses do not cover that any more.
    profiles = [boot_profile(image, name, read_ahead="auto") for name in ("boot-http", "boot-http-2", "boot-http-3")]
    fast = optimized(image, "boot-http", *profiles)
    described = headstart_json("inspect", fast, "--json")
    hot, raw = (described["hot_segments"][0][key] for key in ("hot_compressed_bytes", "hot_bytes"))
    with link() as (server, client), serving(server, fast) as url:
        def case(mbit, delay_s=0):
            shape(server, mbit)
            with relay(server, delay_s) if delay_s else nullcontext(PORT) as port:
                return boot(client, f"{url.replace(str(PORT), str(port))}#{described['image_digest']}")

        cases = {f"{mbit} Mbit/s": lambda mbit=mbit: case(mbit) for mbit in RATES_MBIT}
        cases["100 Mbit/s, 20 ms"] = lambda: case(100, ROUND_TRIP_S / 2)
        say = lambda result: f"{result['ready_s']:.2f} s, {result['store_requests']} requests, {result['store_bytes'] / 1e6:.2f} MB"
        results = at_pace(alternate(cases, args.repeats, say))
    keys = ["ready_s", "measured_s", "guest_cpu_s", "store_requests", "store_bytes", "demand_requests", "demand_bytes", "demand_outside_bytes"]
    found = {case: {key: spread(run[key] for run in runs) for key in keys} for case, runs in results.items()}
    fast_s = found["1000 Mbit/s"]["ready_s"]["median"]
    slow, late = found["10 Mbit/s"], found["100 Mbit/s, 20 ms"]["ready_s"]["median"]
    moved = max(run["store_bytes"] for runs in results.values() for run in runs)
    besides = max(run["store_bytes"] - run["demand_outside_bytes"] for runs in results.values() for run in runs)
    finish("http_boot", [
        figure("boot at 10 Mbit/s ÷ boot at 1 Gbit/s", slow["ready_s"]["median"] / fast_s, at_most=LIMIT, detail=found),
        figure("boot with 20 ms a request ÷ its limit", late / max(fast_s, hot * 8 / 100e6 + 2 * ROUND_TRIP_S), at_most=LIMIT),
        figure("bytes moved, without those demanded outside the hot region, ÷ hot region, most of all boots", besides / hot, at_most=MOST_BYTES),
        figure("bytes moved ÷ uncompressed blocks of the start, most of all boots", moved / raw, at_most=MOST_OF_RAW),
        figure("requests over HTTP up to ready, most of all boots", max(run["store_requests"] for runs in results.values() for run in runs),
               at_most=MOST_REQUESTS),
    ], args.repeats)


if __name__ == "__main__":
    main()
