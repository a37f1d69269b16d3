#!/usr/bin/env python3
"""Sequential reads, after ready, of files that the start had opened, against plain mounts.

The plain mount is the same disk as raw ext4 on the same medium, as `mount -o loop` makes it (here with a disk's
read-ahead of 128 KiB). Stated beside it: ext4 by a loop device with direct I/O and 2560 KiB of read-ahead, which
reach the medium in one piece; and squashfs.
"""

import csv
import io
import json

from harness import HERE, MEDIA, benchmark, headstart, run, start
from inputs import READY, demo, optimized, profile
from mounts import plain_fs

PLAIN = "mount -o loop"
SCRIPT = (HERE / "inside/sequential.py").read_text()
WAYS = ["kept", "new", "mapped"]
# Few enough files that opening them is a small part of the start; together about 30 MB.
FILES = 15
ELF = b"\x7fELF"

def command(mode, paths):
    return ["python3", "-c", SCRIPT, mode, *map(str, paths)]

def unread_files(files):
    """The largest programs and libraries of the root that the demo's start does not read."""
    rows = csv.DictReader(io.StringIO(headstart("inspect", files["profile"], "--csv")))
    read = {row["file"] for row in rows if row["file"]}
    # One inode may have several names.
    found = {(files["root"] / name.lstrip("/")).stat().st_ino: None for name in read}
    for path in sorted((files["root"] / "usr").rglob("*")):
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        if status.st_ino not in found and status.st_size >= 1 << 20 and path.read_bytes()[:4] == ELF:
            found[status.st_ino] = (status.st_size, "/" + str(path.relative_to(files["root"])))
    # Of copies, which have the same size, one is enough.
    by_size = dict(filter(None, found.values()))
    return [by_size[size] for size in sorted(by_size, reverse=True)[:FILES]]

def recorded(paths):
    """The image that is optimized for this start."""
    plain = demo()["image"]
    return optimized(plain, "sequential-optimized", profile(plain, "sequential", command("record", paths), ready=READY))

def rates(output):
    """MB/s, for each way, for all of them together, and of the rest of mapped libraries."""
    found = json.loads(output.splitlines()[-1])
    of = lambda ways: sum(found[way]["bytes"] for way in ways) / sum(found[way]["seconds"] for way in ways) / 1e6
    result = {"all": of(WAYS), **{way: of([way]) for way in WAYS}}
    if libraries := found.get("libraries"):
        result["libraries"] = (libraries["bytes"] - libraries["resident_bytes"]) / libraries["seconds"] / 1e6
    return result

def from_image(image, paths, medium):
    """One start from an image: its run summary, with the rates at which it then read."""
    summary = start(image, command("start", paths), medium=medium, ready=READY, patience_s=60)
    return {**summary, **rates(summary["output"])}

def from_plain(file, paths, medium, **mount):
    """The rates from a plain mount, by this machine's own Python."""
    with plain_fs(file, medium, **mount) as target:
        return rates(run(*command("open", [target / path.lstrip("/") for path in paths])))

@benchmark(repeats=2, media=MEDIA)
def measure(bench):
    files = demo()
    paths = unread_files(files)
    image = recorded(paths)
    for medium in bench.media:
        runs = bench.turns({
            "headstart": lambda: from_image(image, paths, medium),
            PLAIN: lambda: from_plain(files["raw"], paths, medium),
            "2560 KiB read-ahead": lambda: from_plain(files["raw"], paths, medium, direct_io=True,
                                                      read_ahead_kib=2560),
            "squashfs": lambda: from_plain(files["squashfs"], paths, medium),
        }, say=f"{medium} {{all:.1f}} MB/s")
        for name in [*runs][1:]:
            by_way = {way: round(runs.ratio("headstart", name, way), 3) for way in WAYS}
            bench.figure(f"sequential rate after ready ÷ {name}, {medium}", runs.ratio("headstart", name, "all"),
                         at_least=0.9 if name == PLAIN else None, detail={"ratio_by_way": by_way})
