#!/usr/bin/env python3
"""The prefetch pipeline on a fast medium, of what all cores could do at one core's cost of each stage.

Runs the example `pipeline` of hs-fuse on an image whose hot region holds all files of the demo's root.
"""

import json

from harness import benchmark, example
from inputs import demo, optimized, profile

EVERYTHING = ["sh", "-c", "find /usr -xdev -type f -exec cat {} + >/dev/null"]

@benchmark(repeats=5)
def measure(bench):
    plain = demo()["image"]
    # The level is high enough to decompress like the default one, and made in a fraction of its time.
    image = optimized(plain, "everything", profile(plain, "everything", EVERYTHING), flags=["--codec", "zstd:9"])
    pipeline = lambda: json.loads(example("hs-fuse", "pipeline", image, 1))
    pipeline()  # Compiles it.
    runs = bench.turns({"pipeline": pipeline})
    bench.figure("prefetch pipeline ÷ what the cores could do", runs.median("pipeline", "ratio"), at_least=0.85)
