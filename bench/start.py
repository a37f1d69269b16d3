#!/usr/bin/env python3
"""The demo's starts on both flat media: against the limit, a sorted squashfs, an independent packing.

Runs `headstart demo` for each medium; it makes the inputs that the other scripts use.
"""

import json

from harness import FLAT, arguments, figure, finish, headstart, progress, scratch, spread, wait_until_quiet
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
        words = ["demo", "--json", "--medium", medium, "--repeats", args.repeats, "--out", out, "--cache", cache()]
        demo = json.loads(headstart(*words))
        detail = {
            "limit": demo["limit"],
            "packing_bytes": demo["packing_bytes"],
            "ready_s": {run["contender"]: spread(run["all_ready_s"]) for run in demo["runs"]},
            "store_requests": {run["contender"]: run["store_requests"] for run in demo["runs"]},
            "store_bytes": {run["contender"]: run["store_bytes"] for run in demo["runs"]},
            "image_bytes": {run["contender"]: run["image_bytes"] for run in demo["runs"]},
            "hot_compressed_bytes": {run["contender"]: run["hot_compressed_bytes"] for run in demo["runs"]},
        }
        for key, (name, limit) in LIMITS.items():
            # The size does not depend on the medium.
            if key != "hot_bytes_to_packing" or medium == FLAT[0]:
                title = name if key == "hot_bytes_to_packing" else f"{name}, {medium}"
                figures.append(figure(title, demo["ratios"][key]["ratio"], at_most=limit, detail=detail))
                detail = {}
        tables[medium] = (out / "table.txt").read_text().splitlines()
    finish("start", figures, args.repeats, tables=tables)


if __name__ == "__main__":
    main()
