#!/usr/bin/env python3
"""A disk of 100 GB with 110,000 distinct chunks and 20,000 hot extents: opening it, and random reads.

Runs the example `scale` of hs-disk, which keeps its image in the inputs' folder.
"""

import json

from harness import MIB, ROOT, alternate, arguments, figure, finish, run, spread_of
from inputs import folder

EXAMPLE = [ROOT / "scripts/cargo", "run", "--manifest-path", ROOT / "Cargo.toml", "-q", "--release", "-p", "hs-disk", "--example", "scale", "--"]


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    place = folder() / "scale"
    place.mkdir(exist_ok=True)
    run(*EXAMPLE, place, patience_s=1800)  # Compiles it, and makes the image if it is not there.
    results = alternate({"scale": lambda: json.loads(run(*EXAMPLE, place))}, args.repeats)["scale"]
    open_s, last = spread_of(results, "open_s", 6), results[-1]
    worst = {key: max(result[key] for result in results) for key in ["open_rss_bytes", "reads_rss_bytes"]}
    figures = [
        figure("open a disk of 100 GB", open_s["median"] * 1e3, at_most=50, unit="ms",
               noise=[open_s["min"] * 1e3, open_s["max"] * 1e3], detail=last),
        figure("memory to open it", worst["open_rss_bytes"] / MIB, at_most=32, unit="MiB"),
        figure("memory after 10,000 random reads", worst["reads_rss_bytes"] / MIB, at_most=32, unit="MiB",
               detail={"reader_cache_bytes": last["reader_cache_bytes"], "reads_s": spread_of(results, "reads_s")}),
    ]
    finish("scale", figures, args.repeats)


if __name__ == "__main__":
    main()
