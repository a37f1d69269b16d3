#!/usr/bin/env python3
"""A Debian boots under User-mode Linux from a CD drive and a hard disk: the demo's second story on both.

Contenders take turns: raw, cloop-like, unoptimised, optimised, and with everything in memory.
"""

import json

from harness import DRIVES, arguments, figure, finish, headstart, progress, scratch, wait_until_quiet
from inputs import cache

# What docs/DEMO.md calls them, and whether more is better.
NAMES = {
    "wait_to_unoptimised": ("storage wait ÷ the unoptimised boot's", False),
    "wait_to_cloop_like": ("storage wait ÷ the cloop-like boot's", False),
    "ready_to_limit": ("optimised ready ÷ max(warm, delivery of the hot region)", False),
    "seeks_to_unoptimised": ("seeks ÷ the unoptimised boot's", False),
    "prefetch_rate_to_medium": ("rate while prefetching ÷ the drive's where the hot region lies", True),
}


def figures_of(demo):
    """The figures of one demo's boots."""
    boot = demo["boot"]
    detail = {
        "boots": boot["contenders"],
        "delivery": boot["delivery"],
        "demand_wait_s": {name: run["demand_wait_s"] for name, run in demo["runs"].items()},
        "seeks": {name: run["seeks"] for name, run in demo["runs"].items()},
        "store_requests": {name: run["store_requests"] for name, run in demo["runs"].items()},
    }
    for key, ratio in boot["ratios"].items():
        if ratio is None:
            continue
        name, more = NAMES[key]
        # A ratio of waits that boots vary by more than is stated, not judged.
        drowns = None in (ratio.get("range") or [None])
        target = {} if drowns else {"at_least" if more else "at_most": ratio["goal"]}
        noise = ratio.get("range")
        noise = [noise["least"], noise["most"]] if isinstance(noise, dict) else noise
        yield figure(f"{name}, {boot['medium']}", ratio["ratio"], noise=noise, detail=detail, **target)
        detail = {}


    yield from observed(demo["runs"], boot["medium"])


def observed(runs, medium):
    """What readers waited for the medium as the server saw it, all waits added up, in the median boots: it does not drown
    in what else makes boots vary."""
    ours = runs["optimised"]["demand_wait_s"]
    for key, name in (("unoptimised", "unoptimised"), ("cloop_like", "cloop-like")):
        goal = {"cd-24x-cav": 0.10, "hdd-7200": 0.15}[medium]
        yield figure(f"waits seen by the server ÷ the {name} boot's, {medium}", ours / runs[key]["demand_wait_s"], at_most=goal)


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    figures, tables = [], {}
    for medium in DRIVES:
        progress(f"headstart demo --story boot on {medium}")
        wait_until_quiet()
        out = scratch() / medium
        headstart("demo", "--story", "boot", "--boot-medium", medium, "--repeats", args.repeats, "--out", out,
                  "--cache", cache(), patience_s=3600)
        figures += figures_of(json.loads((out / "demo.json").read_text()))
        tables[medium] = (out / "table.txt").read_text().splitlines()
    finish("boot", figures, args.repeats, tables=tables)


if __name__ == "__main__":
    main()
