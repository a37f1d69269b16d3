#!/usr/bin/env python3
"""Sizes of unoptimised images against squashfs at the same level, and what optimising costs.

Sizes do not vary, so nothing is repeated but the timing of optimising.
"""

import struct
import time

from harness import alternate, arguments, figure, finish, headstart_json, run, scratch, spread
from inputs import LEVEL, demo, image, made_in_s, minbase_root, profile, squashfs
from mounts import image as mounted_image

LIMIT = 1.03
# Small, so that the time is that of copying the image and not of compressing a large hot region.
SMALL_COMMAND = ["apt-get", "--version"]


def squashfs_metadata_bytes(path):
    """Compressed tables of a squashfs: all that follows its data (superblock of squashfs 4.0)."""
    with open(path, "rb") as file:
        superblock = struct.unpack("<5I6H8Q", file.read(96))
    bytes_used, inode_table = superblock[12], superblock[15]
    return bytes_used - inode_table


def ext4_metadata_bytes(image_path, window):
    """Stored bytes of the image of the same disk with nothing but ext4's metadata on it."""
    only_metadata, stored = scratch() / "metadata.raw", scratch() / "metadata.hsi"
    with mounted_image(image_path, "none", "--prefetch", "off") as (_, disk):
        run("e2image", "-r", "-p", disk, only_metadata)
    built = headstart_json("build", only_metadata, "-o", stored, "--codec", f"zstd:{LEVEL}", "--window", window, "--json")
    only_metadata.unlink()
    stored.unlink()
    return built["image_bytes"]


def compare(name, image_path, squashfs_path, window, limit):
    """The figure of one image."""
    ours, theirs = image_path.stat().st_size, squashfs_path.stat().st_size
    detail = {
        "image_bytes": ours,
        "squashfs_bytes": theirs,
        "image_metadata_bytes": ext4_metadata_bytes(image_path, window),
        "squashfs_metadata_bytes": squashfs_metadata_bytes(squashfs_path),
    }
    detail["ratio_without_metadata"] = round(
        (ours - detail["image_metadata_bytes"]) / (theirs - detail["squashfs_metadata_bytes"]), 4
    )
    return figure(f"unoptimised image ÷ squashfs, {name}, {window} windows", ours / theirs, at_most=limit, detail=detail)


def optimizing(repeats):
    """Building against optimising, by time and by what is in the cold region."""
    plain = image(minbase_root(), "minbase")
    start = profile(plain, "minbase-small", SMALL_COMMAND)
    optimized = scratch() / "optimized.hsi"

    def optimize():
        began = time.monotonic()
        report = headstart_json("optimize", plain, "--profile", start, "-o", optimized, "--json")
        return {"seconds": time.monotonic() - began, "hot_bytes": report["hot_bytes"]}

    results = alternate({"optimize": optimize}, repeats)["optimize"]
    before, after = (headstart_json("inspect", path, "--json") for path in (plain, optimized))
    seconds = spread(result["seconds"] for result in results)
    detail = {
        "optimize_s": seconds,
        "build_s": made_in_s(plain.name),
        "hot_bytes": results[0]["hot_bytes"],
        "cold_digest_before": before["cold_digest"],
        "cold_digest_after": after["cold_digest"],
        "image_bytes": after["image_bytes"],
    }
    same = before["cold_digest"] == after["cold_digest"]
    return [
        figure("cold digests that differ after optimising", 0 if same else 1, at_most=0, detail=detail),
        figure("time to optimise ÷ time to build, minbase", seconds["median"] / detail["build_s"], detail=detail),
    ]


def main():
    args = arguments(__doc__, repeats=3).parse_args()
    files, minbase = demo(), minbase_root()
    minbase_squashfs = squashfs(minbase, "minbase")
    figures = [
        compare("minbase", image(minbase, "minbase"), minbase_squashfs, "128K", LIMIT),
        compare("minbase", image(minbase, "minbase", window="256K"), minbase_squashfs, "256K", None),
        compare("demo root", files["image"], files["squashfs"], "128K", LIMIT),
        *optimizing(args.repeats),
    ]
    finish("size", figures, args.repeats)


if __name__ == "__main__":
    main()
