#!/usr/bin/env python3
"""The chunk cache: time of an operation at a million entries, and hits on synthetic requests and recorded starts.

Runs the example `chunk_cache` of hs-build on the profiles of the demo, which makes them.
"""

import json

from harness import benchmark, example, wait_until_quiet
from inputs import cache, demo

@benchmark(repeats=1)
def measure(bench):
    recorded = [path for name in ("start.hsp", "boot.hsp") if (path := cache() / name).exists()]
    wait_until_quiet()
    results = json.loads(example("hs-build", "chunk_cache", *(recorded or [demo()["profile"]])))
    for each in results:
        bench.figure(f"hits, {each['requests']}", each["hit_ratio"], detail=each)
    # An operation that waited longer would be noticed: as long as the read of a block from a fast disk.
    longest = max(each["longest_us"] for each in results if each["longest_us"] is not None)
    bench.figure("longest operation at a million entries", longest, at_most=100, unit="µs")
