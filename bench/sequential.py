#!/usr/bin/env python3
"""Sequential reads, after ready, of files that the start had opened, against plain mounts.

The plain mount is the same disk as raw ext4 on the same medium, as `mount -o loop` makes it (here with a disk's
read-ahead of 128 KiB). Stated beside it: ext4 by a loop device with direct I/O and 2560 KiB of read-ahead, which
reach the medium in one piece; and squashfs.
"""

from harness import MEDIA, benchmark, run
from inputs import demo
from mounts import plain_fs
from opened_files import WAYS, command, from_image, rates, recorded, unread_files

PLAIN = "mount -o loop"

def from_plain(file, paths, medium, **mount):
    """The rates from a plain mount, by this machine's own Python."""
    with plain_fs(file, medium, **mount) as target:
        return rates(run(*command("open", [target / path.lstrip("/") for path in paths])))

@benchmark(repeats=2, media=MEDIA)
def measure(bench):
    files = demo()
    paths = unread_files(files)
    image = recorded(paths, "sequential")
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
