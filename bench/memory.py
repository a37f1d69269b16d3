#!/usr/bin/env python3
"""Memory of the server beyond its budget, and how often a hot block lies in memory after a start.

Copies are counted with mincore in the caches of the mounted file system (pages of files, and of the
loop device for metadata), in the cache of disk.img below it, and bounded in the server by the
anonymous memory that it has more than a server that prefetches nothing.
"""

import csv
import ctypes
import io
import json
import mmap
import os
from collections import defaultdict

from harness import FLAT, MIB, arguments, figure, finish, headstart, progress, run, start
from inputs import COMMAND, READY, demo
from mounts import image as mounted_image, image_fs, loop_of

LIMIT_MIB = 64
# Not more than the start needs: a budget that is never used is never exceeded.
BUDGETS = ["16M", "64M"]
PAGE = 4096
# The cache has a fixed size here: one that grows into free memory has no peak to compare.
CACHE = ["--cache", "40M"]


def budget_bytes(text):
    return int(text[:-1]) * MIB


def status_bytes(process, key):
    """A size that the kernel tells of a process, such as VmHWM."""
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith(key + ":"))
    return int(line.split()[1]) * 1024


def peaks(files, budget, modes):
    """The server's peak under a budget: {situation: bytes}."""
    flags = ["--budget", budget, *CACHE]
    found = {}
    for medium in ["none", FLAT[0]]:
        summary = start(files["optimized"], COMMAND, medium=medium, ready=READY, flags=flags)
        found[f"start, warm, {medium}"] = summary["peak_rss_bytes"]
    for mode in modes:
        with mounted_image(files["optimized"], "none", "--prefetch", mode, *flags) as (server, disk):
            run("dd", f"if={disk}", "of=/dev/null", "bs=1M", "status=none", patience_s=60)
            found[f"whole disk read, {mode}"] = status_bytes(server, "VmHWM")
    return found


def resident_pages(path, bytes_=None):
    """One byte a page of a file or device, odd for those in its page cache."""
    size = bytes_ or os.path.getsize(path)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    descriptor = os.open(path, os.O_RDONLY)
    address = libc.mmap(None, ctypes.c_size_t(size), mmap.PROT_READ, mmap.MAP_SHARED, descriptor, ctypes.c_long(0))
    os.close(descriptor)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"cannot map {path}")
    pages = (ctypes.c_ubyte * -(-size // PAGE))()
    libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(size), pages)
    libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return bytes(pages)


def hot_blocks(profile):
    """Where the recorded blocks lie: {block: (file, page)}, the file empty for metadata."""
    blocks = {}
    for row in csv.DictReader(io.StringIO(headstart("inspect", profile, "--csv"))):
        first = int(row["offset"]) // PAGE
        for number in range(-(-int(row["bytes"]) // PAGE)):
            page = int(row["page"]) + number if row["file"] else first + number
            blocks.setdefault(first + number, (row["file"], page))
    return blocks


def copies(files, blocks, mode):
    """Pages in memory, after a start from a mount, of the recorded blocks."""
    by_file = defaultdict(list)
    for block, (name, page) in blocks.items():
        by_file[name].append(page if name else block)
    with image_fs(files["image"], "none", "--prefetch", "off", *CACHE) as (idle, _, _):
        idle_bytes = status_bytes(idle, "RssAnon")
    with image_fs(files["optimized"], FLAT[0], "--prefetch", mode, *CACHE) as (server, disk, target):
        run("chroot", target, *COMMAND)
        disk_bytes = os.path.getsize(disk)
        upper = 0
        for name, pages in by_file.items():
            resident = resident_pages(target / name.lstrip("/")) if name else resident_pages(loop_of(target), disk_bytes)
            upper += sum(resident[page] & 1 for page in pages if page < len(resident))
        lower = resident_pages(disk)
        server_bytes = max(status_bytes(server, "RssAnon") - idle_bytes, 0)
        mounts = json.loads(headstart("status", target, "--json"))["mounts"]
        return {
            "hot_bytes": len(blocks) * PAGE,
            "in the mounted file system's caches": round(upper / len(blocks), 3),
            "in the cache of disk.img": round(sum(lower[block] & 1 for block in blocks) / len(blocks), 3),
            "in the server, at most": round(server_bytes / PAGE / len(blocks), 3),
            "handed to the kernel and still in the server": round(mounts[0]["cache"]["handed_over_bytes"] / PAGE / len(blocks), 3),
            "cache": mounts[0]["cache"],
        }


def main():
    parser = arguments(__doc__, repeats=1)
    parser.add_argument("--modes", nargs="*", default=["hold", "push"], help="modes in which the whole disk is read")
    args = parser.parse_args()
    files = demo()
    found = {budget: {} for budget in BUDGETS}
    for budget in BUDGETS:
        for _ in range(args.repeats):
            for situation, peak in peaks(files, budget, args.modes).items():
                found[budget][situation] = max(peak, found[budget].get(situation, 0))
        progress(f"budget {budget}: {found[budget]}")
    figures = []
    for budget, situations in found.items():
        beyond = (max(situations.values()) - budget_bytes(budget)) / MIB
        detail = {"peak_mib": {name: round(peak / MIB, 1) for name, peak in situations.items()}}
        title = f"server's peak beyond a budget of {budget}"
        figures.append(figure(title, beyond, at_most=LIMIT_MIB, unit="MiB", detail=detail))
    blocks = hot_blocks(files["profile"])
    for mode in ["warm", "hold", "push"]:
        counted = copies(files, blocks, mode)
        total = sum(value for key, value in counted.items() if key.startswith("in "))
        figures.append(figure(f"copies of a hot block in memory after the start, {mode}", total, detail=counted))
        again = counted["handed to the kernel and still in the server"]
        figures.append(figure(f"bytes that the kernel was given and the server holds again ÷ hot bytes, {mode}", again))
    finish("memory", figures, args.repeats)


if __name__ == "__main__":
    main()
