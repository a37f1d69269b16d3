#!/usr/bin/env python3
"""Cold random 4 KiB reads of files: an unoptimised image against squashfs, on the flat media.

Both are mounted afresh, each on a medium of its own, and asked in turn for the same pages of the
same files. Opening a file, which reads metadata, is timed apart from reading the page.
"""

import os
import random
import statistics
import time

from harness import FLAT, arguments, figure, finish, progress, wait_until_quiet
from inputs import demo, image, minbase_root, squashfs
from mounts import image_fs, plain_fs

LIMIT = 1.2
PAGE = 4096
SEED = 20


def random_pages(root, count):
    """Pages of regular files, drawn evenly from all pages of the root: (path below the root, offset)."""
    files = {}
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path) and os.path.isfile(path):
                status = os.stat(path)
                if status.st_size:
                    files.setdefault(status.st_ino, (os.path.relpath(path, root), -(-status.st_size // PAGE)))
    paths, pages = zip(*files.values())
    prng = random.Random(SEED)
    return [(path, prng.randrange(pages) * PAGE)
            for path, pages in prng.choices(list(zip(paths, pages)), weights=pages, k=count)]


def timed_read(mount_point, path, offset):
    """Seconds to open the file, and to read one page of it."""
    began = time.perf_counter()
    descriptor = os.open(mount_point / path, os.O_RDONLY)
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
            # Who comes first changes, so that neither has the quieter half of the machine.
            order = [("headstart", ours), ("squashfs", theirs)]
            for name, mount_point in order if number % 2 else reversed(order):
                times[name].append(timed_read(mount_point, path, offset))
    return times


def latency(times, part):
    """Median and mean milliseconds of a part (0 open, 1 read) or, with None, of both together."""
    values = [sum(pair) if part is None else pair[part] for pair in times]
    return {"median_ms": round(statistics.median(values) * 1e3, 3), "mean_ms": round(statistics.mean(values) * 1e3, 3)}


def main():
    args = arguments(__doc__, repeats=300).parse_args()
    files, minbase = demo(), minbase_root()
    systems = {
        "demo root": (files["root"], files["image"], files["squashfs"]),
        "minbase": (minbase, image(minbase, "minbase"), squashfs(minbase, "minbase")),
        "minbase, 256K windows": (minbase, image(minbase, "minbase", window="256K"), squashfs(minbase, "minbase")),
    }
    figures = []
    for name, (root, image_path, squashfs_path) in systems.items():
        pages = random_pages(root, args.repeats)
        for medium in FLAT:
            wait_until_quiet()
            times = compare(image_path, squashfs_path, pages, medium)
            detail = {
                system: {"read": latency(of, 1), "open": latency(of, 0), "open and read": latency(of, None)}
                for system, of in times.items()
            }
            ours, theirs = detail["headstart"], detail["squashfs"]
            detail["ratios"] = {
                part: {key: round(ours[part][key] / theirs[part][key], 3) for key in ours[part]}
                for part in ours
            }
            progress(f"{name}, {medium}: {detail['ratios']}")
            ratio = detail["ratios"]["read"]["mean_ms"]
            limit = LIMIT if "256K" not in name else None
            figures.append(figure(f"random 4 KiB read ÷ squashfs, mean, {name}, {medium}", ratio, at_most=limit, detail=detail))
    finish("random_reads", figures, args.repeats)


if __name__ == "__main__":
    main()
