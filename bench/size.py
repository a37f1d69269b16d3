#!/usr/bin/env python3
"""Sizes of unoptimized images against squashfs at the same level, and what optimizing costs.

Sizes do not vary, so nothing is repeated but the timing of optimizing.
"""

import struct
import time

from harness import benchmark, headstart_json, run, scratch
from inputs import LEVEL, demo, image, inspect, known_inputs, minbase_root, profile, squashfs
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
    built = headstart_json("build", only_metadata, "-o", stored, "--codec", f"zstd:{LEVEL}", "--window", window)
    only_metadata.unlink()
    stored.unlink()
    return built["image_bytes"]

def compare(bench, name, image_path, squashfs_path, window, limit):
    """The figure of one image."""
    ours, theirs = image_path.stat().st_size, squashfs_path.stat().st_size
    of_ours, of_theirs = ext4_metadata_bytes(image_path, window), squashfs_metadata_bytes(squashfs_path)
    bench.figure(f"unoptimized image ÷ squashfs, {name}, {window} windows", ours / theirs, at_most=limit, detail={
        "image_bytes": ours, "squashfs_bytes": theirs, "image_metadata_bytes": of_ours,
        "squashfs_metadata_bytes": of_theirs,
        "ratio_without_metadata": round((ours - of_ours) / (theirs - of_theirs), 4)})

def optimizing(bench):
    """Building against optimizing, by time and by what is in the cold region."""
    plain = image(minbase_root(), "minbase")
    recorded = profile(plain, "minbase-small", SMALL_COMMAND)
    optimized = scratch() / "optimized.hsi"

    def optimize():
        optimized.unlink(missing_ok=True)
        began = time.monotonic()
        report = headstart_json("optimize", plain, "--profile", recorded, "-o", optimized)
        return {"seconds": time.monotonic() - began, "hot_bytes": report["hot_bytes"]}

    seconds = bench.turns({"optimize": optimize}).median("optimize", "seconds")
    before, after = (inspect(path)["cold_digest"] for path in (plain, optimized))
    build_s = known_inputs()[plain.name]["seconds"]
    bench.figure("cold digests that differ after optimizing", int(before != after), at_most=0,
                 detail={"cold_digest_before": before, "cold_digest_after": after})
    bench.figure("time to optimize ÷ time to build, minbase", seconds / build_s,
                 detail={"build_s": build_s, **seconds.runs.detail()})

@benchmark(repeats=3)
def measure(bench):
    files = demo()

    def minbase(window, limit):
        root = minbase_root()
        compare(bench, "minbase", image(root, "minbase", window=window), squashfs(root, "minbase"), window, limit)

    cases = {"minbase, 128K windows": lambda: minbase("128K", LIMIT),
             "minbase, 256K windows": lambda: minbase("256K", None),
             "demo root": lambda: compare(bench, "demo root", files["image"], files["squashfs"], "128K", LIMIT),
             "optimizing": lambda: optimizing(bench)}
    for case in bench.chosen(cases).values():
        case()
