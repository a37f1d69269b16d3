#!/usr/bin/env python3
"""How long building takes by level, and how large the image is, against squashfs at zstd 15.

Judged by processor time, user and system, of the whole process tree: beside other work on the machine it is what a
quiet one would spend. Two cores share it, so half of it is the time there.
"""

import os
import time

from harness import benchmark, headstart, scratch
from inputs import demo, squashfs

# The default, a fast one, the next that is much smaller; the demo's own, and that of releases.
LEVELS = ["default", "zstd:3", "zstd:13", "zstd:15", "zstd:19"]
CORES = 2

@benchmark(repeats=3)
def measure(bench):
    root, image = demo()["root"], scratch() / "image.hsi"

    def build(level):
        image.unlink(missing_ok=True)
        before, began = os.times(), time.monotonic()
        headstart("build", root, "-o", image, *([] if level == "default" else ["--codec", level]))
        took, after = time.monotonic() - began, os.times()
        spent = sum(getattr(after, key) - getattr(before, key) for key in ("children_user", "children_system"))
        return {"processor_s": spent, "wall_s": took, "image_bytes": image.stat().st_size}

    cases = {level: lambda level=level: build(level) for level in LEVELS}
    runs = bench.turns(bench.chosen(cases), say="{processor_s:.1f} s")
    bench.figure("processor time of a build ÷ 2 cores, default level", runs.median("default", "processor_s") / CORES,
                 unit="s", at_most=30, detail=runs.detail())
    files = sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(root) for name in names)
    bench.figure("files of the tree ÷ processor time of a default build × 2 cores",
                 files / 1e6 * CORES / runs.median("default", "processor_s"), unit="MB/s", at_least=45)
    theirs = squashfs(root, "demo").stat().st_size
    bench.figure("image of the default level ÷ squashfs at zstd 15", runs.median("default", "image_bytes") / theirs,
                 at_most=1.10, detail={"squashfs_bytes": theirs})
