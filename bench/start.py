#!/usr/bin/env python3
"""The demo's starts on both flat media: against the limit, a sorted squashfs, an independent packing.

Runs `headstart demo` for each medium; it makes the inputs that the other scripts use.
"""

import json

from harness import FLAT, Runs, benchmark, headstart, progress, scratch, wait_until_quiet
from inputs import cache

# The ratios of the demo, by their names there: the figure, its limit, and the contender that is the other side.
LIMITS = {
    "optimized_to_limit": ("optimized start ÷ max(warm native, hot bytes ÷ 25 MB/s)", 1.15, "limit"),
    "optimized_to_squashfs_sorted": ("optimized start ÷ sorted squashfs", 0.50, "squashfs-sorted"),
    "hot_bytes_to_packing": ("hot region ÷ independent zstd-19/128 KiB packing", 1.05, None),
}

@benchmark(repeats=5)
def measure(bench):
    bench.more["tables"] = {}
    for medium in FLAT:
        progress(f"headstart demo on {medium}")
        wait_until_quiet()
        out = scratch() / medium
        words = ["demo", "--story", "start", "--json", "--medium", medium, "--repeats", bench.repeats]
        demo = json.loads(headstart(*words, "--out", out, "--cache", cache(), patience_s=3600))["start"]
        runs = Runs({run["contender"]: [{"ready_s": s} for s in run["all_ready_s"]] for run in demo["runs"]})
        runs["limit"] = [{"ready_s": max(demo["limit"]["medium_s"], s)} for s in runs.values("native-warm")]
        keys = ("store_requests", "store_bytes", "image_bytes", "hot_compressed_bytes")
        detail = {key: {run["contender"]: run[key] for run in demo["runs"]} for key in keys}
        detail |= {key: demo[key] for key in ("limit", "packing_bytes")} | {"ready": runs.detail()}
        for key, (name, limit, other) in LIMITS.items():
            # A size does not depend on the medium.
            if other or medium == FLAT[0]:
                noise = runs.ratio("headstart-optimized", other).noise if other else None
                title, ratio = f"{name}, {medium}" if other else name, demo["ratios"][key]["ratio"]
                bench.figure(title, ratio, at_most=limit, noise=noise, detail=detail)
                detail = {}
        bench.more["tables"][medium] = (out / "table.txt").read_text().splitlines()
