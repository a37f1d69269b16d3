#!/usr/bin/env python3
"""The demo's starts on both flat media: against the limit, a sorted squashfs, an independent packing.

Runs `headstart demo` for each medium; it makes the inputs that the other scripts use.
"""

import json

from harness import FLAT, arguments, figure, finish, headstart, progress, ratio_range, scratch, spread, wait_until_quiet
from inputs import cache

LIMITS = {
    "optimized_to_limit": ("optimised start ÷ max(warm native, hot bytes ÷ 25 MB/s)", 1.15),
    "optimized_to_squashfs_sorted": ("optimised start ÷ sorted squashfs", 0.50),
    "hot_bytes_to_packing": ("hot region ÷ independent zstd-19/128 KiB packing", 1.05),
}


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    figures, tables = [], {}
    for medium in FLAT:
        progress(f"headstart demo on {medium}")
        wait_until_quiet()
        out = scratch() / medium
        words = ["demo", "--story", "start", "--json", "--medium", medium, "--repeats", args.repeats]
        demo = json.loads(headstart(*words, "--out", out, "--cache", cache(), patience_s=3600))["start"]
        detail = {
            "limit": demo["limit"],
            "packing_bytes": demo["packing_bytes"],
            "ready_s": {run["contender"]: spread(run["all_ready_s"]) for run in demo["runs"]},
            "store_requests": {run["contender"]: run["store_requests"] for run in demo["runs"]},
            "store_bytes": {run["contender"]: run["store_bytes"] for run in demo["runs"]},
            "image_bytes": {run["contender"]: run["image_bytes"] for run in demo["runs"]},
            "hot_compressed_bytes": {run["contender"]: run["hot_compressed_bytes"] for run in demo["runs"]},
        }
        ready = {run["contender"]: run["all_ready_s"] for run in demo["runs"]}
        ours, native, theirs = (ready[name] for name in ("headstart-optimized", "native-warm", "squashfs-sorted"))
        limit_s = [max(demo["limit"]["medium_s"], one) for one in native]
        noise = {
            "optimized_to_limit": ratio_range(ours, limit_s),
            "optimized_to_squashfs_sorted": ratio_range(ours, theirs),
        }
        for key, (name, limit) in LIMITS.items():
            size = key == "hot_bytes_to_packing"
            # A size does not depend on the medium.
            if not size or medium == FLAT[0]:
                title, ratio = name if size else f"{name}, {medium}", demo["ratios"][key]["ratio"]
                figures.append(figure(title, ratio, at_most=limit, noise=noise.get(key), detail=detail))
                detail = {}
        tables[medium] = (out / "table.txt").read_text().splitlines()
    finish("start", figures, args.repeats, tables=tables)


if __name__ == "__main__":
    main()
