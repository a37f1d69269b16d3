#!/usr/bin/env python3
"""The prefetch pipeline on a fast medium, of what all cores could do at one core's cost of each stage.

Runs the example `pipeline` of hs-fuse on an image whose hot region holds all files of the demo's root.
"""

import json

from harness import ROOT, alternate, arguments, figure, finish, headstart, run, spread_of
from inputs import demo, kept, profile, program

LIMIT = 0.85
EVERYTHING = ["sh", "-c", "find /usr -xdev -type f -exec cat {} + >/dev/null"]
# High enough to decompress like the default level, and made in a fraction of its time.
LEVEL = 9
EXAMPLE = [ROOT / "scripts/cargo", "run", "--manifest-path", ROOT / "Cargo.toml", "-q", "--release", "-p", "hs-fuse", "--example", "pipeline", "--"]


def large_hot_image():
    """The demo's image with everything in its hot region."""
    plain = demo()["image"]
    everything = profile(plain, "everything", EVERYTHING)

    def make(draft):
        headstart("optimize", plain, "--profile", everything, "--codec", f"zstd:{LEVEL}", "-o", draft)

    return kept("everything.hsi", [everything, program()], make)


def main():
    args = arguments(__doc__, repeats=5).parse_args()
    image = large_hot_image()
    run(*EXAMPLE, image, 1, patience_s=1800)  # Compiles it.
    results = alternate({"pipeline": lambda: json.loads(run(*EXAMPLE, image, 1))}, args.repeats)["pipeline"]
    detail = {key: spread_of(results, key) for key in results[0] if key not in ("cores", "bytes")}
    detail.update({key: results[0][key] for key in ("cores", "bytes")})
    ratio = detail["ratio"]
    noise = [ratio["min"], ratio["max"]]
    name = "prefetch pipeline ÷ what the cores could do"
    finish("pipeline", [figure(name, ratio["median"], at_least=LIMIT, noise=noise, detail=detail)], args.repeats)


if __name__ == "__main__":
    main()
