#!/usr/bin/env python3
"""A disk of 100 GB with 110,000 distinct chunks and 20,000 hot extents: opening it, and random reads; and opening an
overlay of such a disk with a million extents.

Runs the examples `scale` of hs-disk and `extents` of hs-keep, which keep their files in the inputs' folder.
"""

import json

from harness import MIB, benchmark, example
from inputs import folder

@benchmark(repeats=3)
def measure(bench):
    place = folder() / "scale"
    place.mkdir(exist_ok=True)
    cases = {"scale": lambda: json.loads(example("hs-disk", "scale", place)),
             "overlay": lambda: json.loads(example("hs-keep", "extents", place))}
    for case in cases.values():
        case()  # Compiles it, and makes its file if that is not there.
    runs = bench.turns(cases)
    most = lambda key, case="scale": max(runs.values(case, key)) / MIB
    bench.figure("open a disk of 100 GB", runs.median("scale", "open_s") * 1e3, at_most=50, unit="ms",
                 detail=runs.detail())
    bench.figure("memory to open it", most("open_rss_bytes"), at_most=32, unit="MiB")
    bench.figure("memory after 10,000 random reads", most("reads_rss_bytes"), at_most=32, unit="MiB")
    bench.figure("open an overlay with a million extents of a disk of 100 GB", runs.median("overlay", "open_s") * 1e3,
                 at_most=50, unit="ms")
    bench.figure("memory to open it, overlay", most("open_rss_bytes", "overlay"), at_most=32e6 / MIB, unit="MiB")
