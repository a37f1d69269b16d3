#!/usr/bin/env python3
"""Reads of a self-filling file that is complete, against a plain file with the same bytes on the same file system.

Both are sparse where the disk is zero, and each round reads both, from memory and from the disk (what was in memory is
given up before). The plain file is read ahead from the disk before it is read from memory: what was just written lies there
in smaller pieces, and is read more slowly. The filling one is left as it is, and is also read by who opened it before it was complete.
"""

import os
import statistics
import time

from harness import arguments, figure, finish, headstart, progress, ratio_range, scratch, spread, wait_until_quiet
from inputs import boot_image, boot_profile, optimized

LEAST = 0.95
BLOCK = 4096
RANDOM_READS = 40_000
# A single reading from memory takes a tenth of a second and varies by a tenth on a shared host: the median of so many in turns counts.
TURNS = 11


def drop(path):
    """Gives up what is in memory of a file."""
    file = os.open(path, os.O_RDONLY)
    os.fsync(file)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(file)


def sequential(path, cold):
    """MB/s."""
    file = os.open(path, os.O_RDONLY)
    rate = from_disk_by(file, path) if cold else from_memory_by(file)
    os.close(file)
    return rate


def from_disk_by(file, path):
    """MB/s of reading an open file of which nothing is in memory."""
    drop(path)
    return sequential_by(file, passes=1)


def sequential_by(file, passes):
    """MB/s of reading an open file so many times."""
    size = os.fstat(file).st_size
    buffer = bytearray(1 << 20)
    began = time.monotonic()
    for _ in range(passes):
        at = 0
        while at < size:
            at += os.preadv(file, [buffer], at)
    return passes * size / (time.monotonic() - began) / 1e6


def from_memory_by(file):
    """The same of what is in memory. Who has just waited for a quiet machine reads slowly at first, so a pass comes before."""
    sequential_by(file, passes=1)
    return sequential_by(file, passes=4)


def at_random(path):
    """Reads of 4 KiB from memory a second."""
    file = os.open(path, os.O_RDONLY)
    blocks = os.fstat(file).st_size // BLOCK
    buffer = bytearray(BLOCK)
    place = 12345
    began = time.monotonic()
    for _ in range(RANDOM_READS):
        place = (place * 1103515245 + 12345) % (1 << 31)
        os.preadv(file, [buffer], place % blocks * BLOCK)
    seconds = time.monotonic() - began
    os.close(file)
    return RANDOM_READS / seconds


def in_turns(way, paths, rounds):
    """{name: [median of the turns of a round, ...]}; who is first changes with every turn."""
    results = {name: [] for name in paths}
    for number in range(rounds):
        wait_until_quiet()
        turns = {name: [] for name in paths}
        for turn in range(TURNS):
            for name in sorted(paths, reverse=turn % 2 == 1):
                turns[name].append(way(paths[name]))
        for name, values in turns.items():
            results[name].append(statistics.median(values))
        progress(f"{number + 1}/{rounds} " + ", ".join(f"{name} {values[-1]:.0f}" for name, values in results.items()))
    return results


def fast_image():
    """The booting Debian, optimised for its boot."""
    image = boot_image()
    return optimized(image, "boot-optimized", boot_profile(image, "boot-profile"))


def main():
    repeats = arguments(__doc__, repeats=5).parse_args().repeats
    image = fast_image()
    filled, plain = scratch() / "filled.raw", scratch() / "plain.raw"
    began = time.monotonic()
    headstart("attach", image, filled)
    opened = {filled: os.open(filled, os.O_RDONLY)}
    headstart("hydrate", filled)
    seconds = time.monotonic() - began
    headstart("export", image, "-o", plain, "--format", "raw")
    opened[plain] = os.open(plain, os.O_RDONLY)
    drop(plain)
    for path in (filled, plain):
        sequential(path, cold=False)
    figures = []
    for name, way in {
        "sequential, from memory": lambda path: sequential(path, cold=False),
        "sequential, from memory, opened before it was complete": lambda path: from_memory_by(opened[path]),
        "sequential, from the disk": lambda path: sequential(path, cold=True),
        "sequential, from the disk, opened before it was complete": lambda path: from_disk_by(opened[path], path),
        "4 KiB at random, from memory": at_random,
    }.items():
        results = in_turns(way, {"filled": filled, "plain": plain}, repeats)
        value = spread(results["filled"])["median"] / spread(results["plain"])["median"]
        figures.append(figure(
            f"reads of a complete self-filling file, of a plain file's rate: {name}",
            round(value, 3), at_least=LEAST, noise=ratio_range(results["filled"], results["plain"]),
            detail={case: spread(values, 0) for case, values in results.items()},
        ))
    size = filled.stat().st_size
    figures.append(figure("time to fill the booting disk, hot region and hydration", round(seconds, 2), unit="s",
                          detail={"bytes": size}))
    finish("self_filling", figures, repeats)


if __name__ == "__main__":
    main()
