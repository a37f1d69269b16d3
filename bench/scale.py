#!/usr/bin/env python3
"""A disk of 100 GB with 110,000 distinct chunks and 20,000 hot extents: opening it, and random reads.

Runs the example `scale` of hs-disk, which keeps its image in the inputs' folder.
"""

import json

from harness import MIB, benchmark, example
from inputs import folder

@benchmark(repeats=3)
def measure(bench):
    place = folder() / "scale"
    place.mkdir(exist_ok=True)
    scale = lambda: json.loads(example("hs-disk", "scale", place))
    scale()  # Compiles it, and makes the image if it is not there.
    runs = bench.turns({"scale": scale})
    most = lambda key: max(runs.values("scale", key)) / MIB
    bench.figure("open a disk of 100 GB", runs.median("scale", "open_s") * 1e3, at_most=50, unit="ms",
                 detail=runs.detail())
    bench.figure("memory to open it", most("open_rss_bytes"), at_most=32, unit="MiB")
    bench.figure("memory after 10,000 random reads", most("reads_rss_bytes"), at_most=32, unit="MiB")
