#!/usr/bin/env python3
"""Cold random 4 KiB reads of files: an unoptimized image against squashfs, on the flat media.

Both are mounted afresh, each on a medium of its own, and asked in turn for the same pages of the same files. Opening
a file, which reads metadata, is timed apart from reading the page.
"""

import os
import random
import statistics
import time

from harness import FLAT, benchmark, progress, wait_until_quiet
from inputs import demo, image, minbase_root, squashfs
from mounts import image_fs, plain_fs

PAGE = 4096
SEED = 20

def random_pages(root, count):
    """Pages of regular files, drawn evenly from all pages of the root: (path below the root, offset)."""
    files = {}
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and os.path.isfile(path) and (status := os.stat(path)).st_size:
                files.setdefault(status.st_ino, (os.path.relpath(path, root), -(-status.st_size // PAGE)))
    prng, files = random.Random(SEED), [*files.values()]
    return [(path, prng.randrange(pages) * PAGE)
            for path, pages in prng.choices(files, weights=[pages for _, pages in files], k=count)]

def timed_read(path, offset):
    """Seconds to open the file, and to read one page of it."""
    began = time.perf_counter()
    descriptor = os.open(path, os.O_RDONLY)
    opened = time.perf_counter()
    os.pread(descriptor, PAGE, offset)
    read = time.perf_counter()
    os.close(descriptor)
    return opened - began, read - opened

def compare(image_path, squashfs_path, pages, medium):
    """Seconds of each open and read: {"headstart": [(open, read), …], "squashfs": […]}."""
    times = {"headstart": [], "squashfs": []}
    with image_fs(image_path, medium, "--prefetch", "off") as (_, _, ours), plain_fs(squashfs_path, medium) as theirs:
        for number, (path, offset) in enumerate(pages):
            # Which comes first changes, so that neither has the quieter half of the machine.
            order = [("headstart", ours), ("squashfs", theirs)]
            for name, mount_point in order if number % 2 else reversed(order):
                times[name].append(timed_read(mount_point / path, offset))
    return times

@benchmark(repeats=300, media=FLAT)
def measure(bench):
    files, minbase = demo(), minbase_root()
    theirs = squashfs(minbase, "minbase")
    systems = {"demo root": (files["root"], files["image"], files["squashfs"]),
               "minbase": (minbase, image(minbase, "minbase"), theirs),
               "minbase, 256K windows": (minbase, image(minbase, "minbase", window="256K"), theirs)}
    for name, (root, image_path, squashfs_path) in systems.items():
        pages = random_pages(root, bench.repeats)
        for medium in bench.media:
            wait_until_quiet()
            times = compare(image_path, squashfs_path, pages, medium)
            parts = {"open": lambda pair: pair[0], "read": lambda pair: pair[1], "open and read": sum}
            detail = {system: {part: {f"{what.__name__}_ms": round(what(map(of, pairs)) * 1e3, 3)
                                      for what in (statistics.median, statistics.mean)}
                               for part, of in parts.items()} for system, pairs in times.items()}
            ratio = detail["headstart"]["read"]["mean_ms"] / detail["squashfs"]["read"]["mean_ms"]
            progress(f"{name}, {medium}: {ratio:.2f}")
            bench.figure(f"random 4 KiB read ÷ squashfs, mean, {name}, {medium}", ratio, detail=detail,
                         at_most=1.2 if "256K" not in name else None)
