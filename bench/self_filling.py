#!/usr/bin/env python3
"""Reads of a self-filling file that is complete, against a plain file with the same bytes on the same file system.

Both are sparse where the disk is zero, and each round reads both, from memory and from the disk (what was in memory
is given up before). The plain file is read ahead from the disk before it is read from memory: what was just written
lies there in smaller pieces, and is read more slowly. The filling one is left as it is, and is also read by a reader
that opened it before it was complete.
"""

import os
import time

from harness import Runs, benchmark, headstart, progress, scratch, spread, wait_until_quiet
from inputs import fast_boot_image

BLOCK = 4096
RANDOM_READS = 40_000
# A single reading from memory takes a tenth of a second and varies by a tenth on a shared host: the median of so many
# in turns counts.
TURNS = 11

def drop(file):
    """Gives up what is in memory of an open file."""
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

def sequential(file, passes=1):
    """MB/s of reading an open file so many times."""
    size, buffer = os.fstat(file).st_size, bytearray(1 << 20)
    began = time.monotonic()
    for _ in range(passes):
        at = 0
        while at < size:
            at += os.preadv(file, [buffer], at)
    return passes * size / (time.monotonic() - began) / 1e6

def from_disk(file):
    drop(file)
    return sequential(file)

def from_memory(file):
    """The first pass after waiting for a quiet machine is slow, so one comes before."""
    sequential(file)
    return sequential(file, passes=4)

def at_random(file):
    """Reads of 4 KiB from memory a second."""
    blocks, buffer, place = os.fstat(file).st_size // BLOCK, bytearray(BLOCK), 12345
    began = time.monotonic()
    for _ in range(RANDOM_READS):
        place = (place * 1103515245 + 12345) % (1 << 31)
        os.preadv(file, [buffer], place % blocks * BLOCK)
    return RANDOM_READS / (time.monotonic() - began)

def opened_now(way):
    """A way to read, by a reader that opens the file for it."""
    def by(path, _):
        file = os.open(path, os.O_RDONLY)
        try:
            return way(file)
        finally:
            os.close(file)
    return by

def in_turns(way, paths, opened, rounds):
    """The medians of the turns of each round; which file is first changes with every turn."""
    runs = Runs({name: [] for name in paths})
    for number in range(rounds):
        wait_until_quiet()
        turns = {name: [] for name in paths}
        for turn in range(TURNS):
            for name in sorted(paths, reverse=turn % 2 == 1):
                turns[name].append(way(paths[name], opened[name]))
        for name, values in turns.items():
            runs[name].append({"rate": spread(values)["median"]})
        progress(f"{number + 1}/{rounds} {[(name, of[-1]['rate']) for name, of in runs.items()]}")
    return runs

WAYS = {
    "sequential, from memory": opened_now(from_memory),
    "sequential, from memory, opened before it was complete": lambda _, file: from_memory(file),
    "sequential, from the disk": opened_now(from_disk),
    "sequential, from the disk, opened before it was complete": lambda _, file: from_disk(file),
    "4 KiB at random, from memory": opened_now(at_random),
}

@benchmark(repeats=5)
def measure(bench):
    image = fast_boot_image()
    paths = {name: scratch() / f"{name}.raw" for name in ("filled", "plain")}
    began = time.monotonic()
    headstart("attach", image, paths["filled"])
    opened = {"filled": os.open(paths["filled"], os.O_RDONLY)}
    headstart("hydrate", paths["filled"])
    seconds = time.monotonic() - began
    headstart("export", image, "-o", paths["plain"], "--format", "raw")
    opened["plain"] = os.open(paths["plain"], os.O_RDONLY)
    drop(opened["plain"])
    for file in opened.values():
        from_memory(file)
    for name, way in bench.chosen(WAYS).items():
        runs = in_turns(way, paths, opened, bench.repeats)
        bench.figure(f"reads of a complete self-filling file, of a plain file's rate: {name}",
                     runs.ratio("filled", "plain", "rate"), at_least=0.95)
    bench.figure("time to fill the booting disk, hot region and hydration", seconds, unit="s",
                 detail={"bytes": paths["filled"].stat().st_size})
