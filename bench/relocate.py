#!/usr/bin/env python3
"""A start from a hard disk before and after `headstart accelerate now`: the demo's program on an aged ext4.

The file system was filled and half emptied before the root was copied into it, file by file in random order, as years of
upgrades leave it. The start is recorded from an image of it, and a copy of the disk is mounted and laid anew. Both are
mounted anew and started from by the plain kernel, whose requests to the device are traced and then replayed, one at a
time, on a model of the drive in virtual time: the load of this machine does not count.
"""

import csv
import json
import os
import random
import shutil
from contextlib import contextmanager
from functools import partial

from harness import benchmark, headstart, headstart_json, headstart_path, run, scratch
from inputs import COMMAND, READY, cache, kept, profile

DRIVE = "hdd-7200"
DISK_BYTES = 3 << 30
FILLED = 0.6
# A step that a drive passes without a seek, as in hs-relocate.
NEAR_BYTES = 512 << 10

@contextmanager
def mounted(disk, *options):
    """The file system of a raw disk, mounted for writing if nothing else is said."""
    root = scratch() / "root"
    root.mkdir(exist_ok=True)
    run("mount", "-o", ",".join(["loop", *options]), disk, root)
    try:
        yield root
    finally:
        run("umount", root)

def age(root, source):
    """Fills a file system, deletes every other file, and copies the files of a tree in random order."""
    dice = random.Random(15)
    filler = root / "filler"
    filler.mkdir()
    noise, written, number = dice.randbytes(1 << 20), 0, 0
    while written < FILLED * DISK_BYTES:
        size = int(min(1 << 20, dice.lognormvariate(9.5, 1.5)))
        (filler / str(number)).write_bytes(noise[:size])
        written, number = written + size, number + 1
    os.sync()
    for each in range(0, number, 2):
        (filler / str(each)).unlink()
    run("cp", "-a", "--attributes-only", f"{source}/.", root)
    files = sorted(path for path in source.rglob("*") if path.is_file() and not path.is_symlink())
    dice.shuffle(files)
    for path in files:
        copy = root / path.relative_to(source)
        shutil.copyfile(path, copy)
        shutil.copystat(path, copy)

def make_aged(source, draft):
    with draft.open("wb") as file:
        file.truncate(DISK_BYTES)
    run("mkfs.ext4", "-q", "-F", draft)
    with mounted(draft) as root:
        age(root, source)

def make_laid(aged, recorded, draft):
    run("cp", "--sparse=always", aged, draft)
    with mounted(draft) as root:
        said = headstart("accelerate", "now", "--root", root, "-p", recorded, "--force", "--json")
    run("e2fsck", "-fn", draft)
    draft.with_name("relocate.json").write_text(said)

def started(disk):
    """The requests of one cold start, and what the drive needs for them."""
    table, log = scratch() / "requests.csv", scratch() / "requests.log"
    with mounted(disk, "ro") as root:
        run(headstart_path(), "-q", "lab", "trace", root, "--csv", table, "--json", "--", "chroot", root, *COMMAND)
    with table.open() as file:
        reads = [(int(row["offset"]), int(row["bytes"])) for row in csv.DictReader(file) if row["direction"] == "read"]
    lines = [f"/dev/d read {offset} {size}" for offset, size in reads]
    log.write_text("\n".join(["fio version 2 iolog", "/dev/d add", "/dev/d open", *lines, "/dev/d close"]) + "\n")
    far = sum(abs(offset - before - size) > NEAR_BYTES for (before, size), (offset, _) in zip(reads, reads[1:]))
    return {"wait_s": headstart_json("lab", "replay", log, "--emulate", DRIVE, "--depth", 1)["seconds"], "seeks": far,
            "requests": len(reads)}

@benchmark(repeats=3)
def measure(bench):
    source = (cache() / "root").resolve()
    aged = kept("aged.raw", [], partial(make_aged, source))
    image = kept("aged.hsi", [aged], lambda draft: headstart("build", aged, "-o", draft, "--codec", "zstd:1",
                                                           patience_s=1800))
    recorded = profile(image, "aged", COMMAND, ready=READY)
    laid = kept("laid.raw", [aged, recorded], partial(make_laid, aged, recorded))
    runs = bench.turns({"aged": partial(started, aged), "laid": partial(started, laid)},
                       "{wait_s:.2f} s, {seeks} seeks")
    said = json.loads((laid.parent / "relocate.json").read_text())
    bench.more["relocated"] = said
    bench.figure("seeks of the list, laid anew / before", said["after"]["seeks"] / said["before"]["seeks"], at_most=0.05)
    bench.figure("time of the drive, laid anew / before", runs.ratio("laid", "aged", "wait_s"))
    bench.figure("seeks, laid anew / before", runs.ratio("laid", "aged", "seeks"))
