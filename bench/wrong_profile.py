#!/usr/bin/env python3
"""A start from an image that was optimized for another program, or not at all, against squashfs.

Three images: optimized for `dpkg --verify` of packages that the start does not touch; optimized for another Python
program; not optimized. Each starts the demo's program on every medium, as does a squashfs (zstd, 128 KiB) of the
same root on the same medium.
"""

from harness import MEDIA, benchmark, start
from inputs import COMMAND, READY, demo, optimized, profile, wrong_image

# Shares the interpreter with the demo's program, and little else.
NEAR_COMMAND = ["python3", "-c",
                "import numpy.testing, unittest, asyncio, xml.dom.minidom, sqlite3, email.mime.multipart"]

@benchmark(repeats=3, media=MEDIA)
def measure(bench):
    files = demo()
    near = profile(files["image"], "near", NEAR_COMMAND)
    images = {"squashfs": files["squashfs"], "other program": wrong_image(),
              "other Python program": optimized(files["image"], "near-optimized", near), "no profile": files["image"]}
    for medium in bench.media:
        runs = bench.turns({name: lambda path=path: start(path, COMMAND, medium=medium, ready=READY,
                                                          foreign=path == files["squashfs"])
                            for name, path in images.items()}, say=f"{medium} {{ready_s:.2f}} s")
        for name in [*images][1:]:
            bench.figure(f"{name} ÷ squashfs, {medium}", runs.ratio(name, "squashfs"), at_most=1.1)
