#!/usr/bin/env python3
"""Memory of the server beyond its budget, and how often a hot block lies in memory after a start.

Copies are counted with mincore in the caches of the mounted file system (pages of files, and of the loop device for
metadata), in the cache of disk.img below it, and bounded in the server by the anonymous memory that it has more than
a server that prefetches nothing.
"""

import csv
import ctypes
import io
import mmap
import os
from collections import defaultdict

from harness import FLAT, MIB, benchmark, headstart, headstart_json, progress, run, start
from inputs import COMMAND, READY, demo
from mounts import image as mounted_image, image_fs, memory_bytes

# Not more than the start needs: a budget that is never used is never exceeded.
BUDGETS_MIB = [16, 64]
PAGE = 4096
# The cache has a fixed size here: one that grows into free memory has no peak to compare.
CACHE = ["--cache", "40M"]

def peaks(files, budget_mib):
    """The server's peak under a budget: {situation: bytes}."""
    flags = ["--budget", f"{budget_mib}M", *CACHE]
    found = {}
    for medium in ["none", FLAT[0]]:
        summary = start(files["optimized"], COMMAND, medium=medium, ready=READY, flags=flags)
        found[f"start, warm, {medium}"] = summary["peak_rss_bytes"]
    for mode in ["hold", "push"]:
        with mounted_image(files["optimized"], "none", "--prefetch", mode, *flags) as (server, disk):
            run("dd", f"if={disk}", "of=/dev/null", "bs=1M", "status=none", patience_s=60)
            found[f"whole disk read, {mode}"] = memory_bytes(server.pid, "VmHWM")
    return found

def resident_pages(path, size=None):
    """One byte a page of a file or device, odd for those in its page cache."""
    size = size or os.path.getsize(path)
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
        idle_bytes = memory_bytes(idle.pid, "RssAnon")
    with image_fs(files["optimized"], FLAT[0], "--prefetch", mode, *CACHE) as (server, disk, target):
        run("chroot", target, *COMMAND)
        device = run("findmnt", "-n", "-o", "SOURCE", "--target", target).strip()
        upper = 0
        for name, pages in by_file.items():
            resident = resident_pages(target / name.lstrip("/")) if name else \
                resident_pages(device, os.path.getsize(disk))
            upper += sum(resident[page] & 1 for page in pages if page < len(resident))
        lower = resident_pages(disk)
        server_bytes = max(memory_bytes(server.pid, "RssAnon") - idle_bytes, 0)
        cache = headstart_json("status", target)["mounts"][0]["cache"]
    share = lambda pages: round(pages / len(blocks), 3)
    return {"in the mounted file system's caches": share(upper),
            "in the cache of disk.img": share(sum(lower[block] & 1 for block in blocks)),
            "in the server, at most": share(server_bytes / PAGE),
            "handed to the kernel and still in the server": share(cache["handed_over_bytes"] / PAGE),
            "hot_bytes": len(blocks) * PAGE, "cache": cache}

@benchmark(repeats=1)
def measure(bench):
    files = demo()
    for budget_mib in BUDGETS_MIB:
        rounds = [peaks(files, budget_mib) for _ in range(bench.repeats)]
        found = {what: round(max(each[what] for each in rounds) / MIB, 1) for what in rounds[0]}
        progress(f"budget {budget_mib}M: {found}")
        bench.figure(f"server's peak beyond a budget of {budget_mib}M", max(found.values()) - budget_mib, at_most=64,
                     unit="MiB", detail={"peak_mib": found})
    blocks = hot_blocks(files["profile"])
    for mode in ["warm", "hold", "push"]:
        counted = copies(files, blocks, mode)
        total = sum(value for key, value in counted.items() if key.startswith("in "))
        bench.figure(f"copies of a hot block in memory after the start, {mode}", total, detail=counted)
        bench.figure(f"bytes that the kernel was given and the server holds again ÷ hot bytes, {mode}",
                     counted["handed to the kernel and still in the server"])
