#!/usr/bin/env python3
"""A Debian boots under User-mode Linux from a CD drive and a hard disk: the demo's second story on both.

Contenders take turns: raw, cloop-like, unoptimized, optimized, and with everything in memory.
"""

import json

from harness import DRIVES, benchmark, headstart, progress, scratch, wait_until_quiet
from inputs import cache

# What docs/DEMO.md calls them, and whether more is better.
NAMES = {
    "wait_to_unoptimized": ("storage wait ÷ the unoptimized boot's", "at_most"),
    "wait_to_cloop_like": ("storage wait ÷ the cloop-like boot's", "at_most"),
    "ready_to_limit": ("optimized ready ÷ max(warm, delivery of the hot region)", "at_most"),
    "seeks_to_unoptimized": ("seeks ÷ the unoptimized boot's", "at_most"),
    "prefetch_rate_to_medium": ("rate while prefetching ÷ the drive's where the hot region lies", "at_least"),
}
# What readers waited for the medium as the server saw it does not drown in what else makes boots vary.
SEEN_GOALS = {"cd-24x-cav": 0.10, "hdd-7200": 0.15}

def figures_of(bench, medium, demo):
    """The figures of one demo's boots."""
    boot, runs = demo["boot"], demo["runs"]
    detail = {"boots": boot["contenders"], "delivery": boot["delivery"],
              **{key: {name: run[key] for name, run in runs.items()}
                 for key in ("demand_wait_s", "seeks", "store_requests")}}
    for key, ratio in boot["ratios"].items():
        if ratio is None:
            continue
        name, goal = NAMES[key]
        noise = ratio.get("range")
        # A ratio of waits that boots vary by more than is stated, not judged.
        target = {} if None in (noise or [None]) else {goal: ratio["goal"]}
        noise = [noise["least"], noise["most"]] if isinstance(noise, dict) else noise
        bench.figure(f"{name}, {medium}", ratio["ratio"], noise=noise, detail=detail, **target)
        detail = {}
    for key, name in (("unoptimized", "unoptimized"), ("cloop_like", "cloop-like")):
        ratio = runs["optimized"]["demand_wait_s"] / runs[key]["demand_wait_s"]
        bench.figure(f"waits seen by the server ÷ the {name} boot's, {medium}", ratio, at_most=SEEN_GOALS[medium])

@benchmark(repeats=3, media=DRIVES)
def measure(bench):
    bench.more["tables"] = {}
    for medium in bench.media:
        progress(f"headstart demo --story boot on {medium}")
        wait_until_quiet()
        out = scratch() / medium
        headstart("demo", "--story", "boot", "--boot-medium", medium, "--repeats", bench.repeats, "--out", out,
                  "--cache", cache(), patience_s=3600)
        figures_of(bench, medium, json.loads((out / "demo.json").read_text()))
        bench.more["tables"][medium] = (out / "table.txt").read_text().splitlines()
