#!/usr/bin/env python3
"""A start from an image that was optimised for another program, or not at all, against squashfs.

Three images: optimised for `dpkg --verify` of packages that the start does not touch; optimised for
another Python program; not optimised. Each starts the demo's program on every medium, as does a
squashfs (zstd, 128 KiB) of the same root on the same medium.
"""

from harness import MEDIA, alternate, arguments, figure, finish, ratio_range, spread_of, start
from inputs import COMMAND, NEAR_COMMAND, OTHER_COMMAND, READY, demo, optimized, profile

LIMIT = 1.1


def images(files):
    """The image for each kind of profile."""
    other = profile(files["image"], "other", OTHER_COMMAND)
    near = profile(files["image"], "near", NEAR_COMMAND)
    return {
        "other program": optimized(files["image"], "other-optimized", other),
        "other Python program": optimized(files["image"], "near-optimized", near),
        "no profile": files["image"],
    }


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    files = demo()
    wrong = images(files)
    figures = []
    for medium in MEDIA:
        def run(path, foreign=False, medium=medium):
            return lambda: start(path, COMMAND, medium=medium, ready=READY, foreign=foreign)

        cases = {"squashfs": run(files["squashfs"], True), **{name: run(path) for name, path in wrong.items()}}
        results = alternate(cases, args.repeats, lambda summary: f"{medium} {summary['ready_s']:.2f} s")
        ready = {name: spread_of(runs, "ready_s") for name, runs in results.items()}
        for name in wrong:
            detail = {
                "ready_s": ready[name],
                "squashfs_ready_s": ready["squashfs"],
                "hot_bytes": results[name][0]["hot_bytes"],
                "store_requests": spread_of(results[name], "store_requests", 0),
                "store_bytes": spread_of(results[name], "store_bytes", 0),
                "squashfs_store_requests": spread_of(results["squashfs"], "store_requests", 0),
                "squashfs_store_bytes": spread_of(results["squashfs"], "store_bytes", 0),
            }
            ratio = ready[name]["median"] / ready["squashfs"]["median"]
            noise = ratio_range(*([run["ready_s"] for run in results[who]] for who in (name, "squashfs")))
            figures.append(figure(f"{name} ÷ squashfs, {medium}", ratio, at_most=LIMIT, noise=noise, detail=detail))
    finish("wrong_profile", figures, args.repeats)


if __name__ == "__main__":
    main()
