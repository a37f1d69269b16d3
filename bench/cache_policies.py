#!/usr/bin/env python3
"""Cache policies: time of an operation at a million entries, and hits on synthetic requests and recorded starts.

Runs the example `cache_policies` of hs-build on the profiles of the demo, which makes them.
"""

import json

from harness import ROOT, arguments, figure, finish, run, wait_until_quiet
from inputs import cache, demo

EXAMPLE = [ROOT / "scripts/cargo", "run", "--manifest-path", ROOT / "Cargo.toml", "-q", "--release", "-p", "hs-build", "--example",
           "cache_policies", "--"]
# An operation that waited longer than this would be noticed: as long as the read of a block from a fast disk.
LONGEST_US = 100


def main():
    args = arguments(__doc__, repeats=1).parse_args()
    recorded = [cache() / name for name in ("start.hsp", "boot.hsp")]
    profiles = [path for path in recorded if path.exists()] or [demo()["profile"]]
    wait_until_quiet()
    results = json.loads(run(*EXAMPLE, *profiles, patience_s=1800))
    figures = []
    for name in dict.fromkeys(each["requests"] for each in results):
        of_all = {each.pop("policy"): each for each in [dict(each) for each in results if each["requests"] == name]}
        best = max(of_all, key=lambda policy: of_all[policy]["hit_ratio"])
        figures.append(figure(f"hits of the best policy ({best}), {name}", of_all[best]["hit_ratio"], detail=of_all))
    longest = max(each["longest_us"] for each in results if each["longest_us"] is not None)
    figures.append(figure("longest operation of any policy at a million entries", longest, at_most=LONGEST_US, unit="µs"))
    finish("cache_policies", figures, args.repeats)


if __name__ == "__main__":
    main()
