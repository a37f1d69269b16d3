#!/usr/bin/env python3
"""Sequential reads, after ready, of files that the start had opened, against plain mounts.

The plain mount is the same disk as raw ext4 on the same medium, as `mount -o loop` makes it (here
with a disk's read-ahead of 128 KiB). Stated beside it: ext4 by a loop device with direct I/O and
2560 KiB of read-ahead, which reach the medium in one piece; and squashfs.
"""

import csv
import io
import json

from harness import HERE, MEDIA, alternate, arguments, figure, finish, headstart, ratio_range, run, spread, start
from inputs import READY, demo, optimized, profile
from mounts import plain_fs

LIMIT = 0.9
SCRIPT = (HERE / "inside/sequential.py").read_text()
WAYS = ["kept", "new", "mapped"]
# Few enough files that opening them is a small part of the start; together about 30 MB.
FILES = 15
ELF = b"\x7fELF"
PLAIN = "mount -o loop"


def command(mode, paths):
    return ["python3", "-c", SCRIPT, mode, *map(str, paths)]


def unread_files(files):
    """The largest programs and libraries of the root that the demo's start does not read."""
    rows = csv.DictReader(io.StringIO(headstart("inspect", files["profile"], "--csv")))
    read = {row["file"] for row in rows if row["file"]}
    # One inode may have several names.
    found = {(files["root"] / name.lstrip("/")).stat().st_ino: None for name in read}
    for path in sorted((files["root"] / "usr").rglob("*")):
        name = "/" + str(path.relative_to(files["root"]))
        if path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        if status.st_ino not in found and status.st_size >= 1 << 20 and path.read_bytes()[:4] == ELF:
            found[status.st_ino] = (status.st_size, name)
    # Of copies, which have the same size, one is enough.
    by_size = dict(filter(None, found.values()))
    return [by_size[size] for size in sorted(by_size, reverse=True)[:FILES]]


def inputs():
    """The demo's files, and the image that is optimised for this start."""
    files = demo()
    paths = unread_files(files)
    recorded = profile(files["image"], "sequential", command("record", paths), ready=READY)
    return files, paths, optimized(files["image"], "sequential-optimized", recorded)


def rates(output):
    """MB/s, for each way and for all of them together."""
    found = json.loads(output.splitlines()[-1])
    result = {way: found[way]["bytes"] / found[way]["seconds"] / 1e6 for way in WAYS}
    total = sum(found[way]["bytes"] for way in WAYS)
    result["all"] = total / sum(found[way]["seconds"] for way in WAYS) / 1e6
    if libraries := found.get("libraries"):
        absent = libraries["bytes"] - libraries["resident_bytes"]
        result["libraries, bytes not in memory"] = absent / libraries["seconds"] / 1e6
    return result


def from_image(image, paths, medium, flags=()):
    """One start from an image, and what it then read."""
    summary = start(image, command("start", paths), medium=medium, ready=READY, flags=flags, patience_s=60)
    return {"rates": rates(summary["output"]), "summary": summary}


def from_plain(file, paths, medium, **mount):
    """The same from a plain mount, on this machine's own Python."""
    with plain_fs(file, medium, **mount) as target:
        inside = [target / path.lstrip("/") for path in paths]
        return {"rates": rates(run(*command("open", inside)))}


def spreads(results):
    """The spread of each rate over some runs."""
    return {key: spread((result["rates"][key] for result in results), 1) for key in results[0]["rates"]}


def main():
    parser = arguments(__doc__, repeats=2)
    parser.add_argument("--media", nargs="*", default=MEDIA)
    args = parser.parse_args()
    files, paths, image = inputs()
    raw, squashfs = files["raw"], files["squashfs"]
    figures = []
    for medium in args.media:
        cases = {
            "headstart": lambda: from_image(image, paths, medium),
            PLAIN: lambda: from_plain(raw, paths, medium),
            "2560 KiB read-ahead": lambda: from_plain(raw, paths, medium, direct_io=True, read_ahead_kib=2560),
            "squashfs": lambda: from_plain(squashfs, paths, medium),
        }
        results = alternate(cases, args.repeats, lambda result: f"{medium} {result['rates']['all']:.1f} MB/s")
        found = {name: spreads(runs) for name, runs in results.items()}
        ours = found.pop("headstart")
        detail = {"headstart_mb_per_s": ours, "others_mb_per_s": found}
        for name, theirs in found.items():
            by_way = {way: round(ours[way]["median"] / theirs[way]["median"], 3) for way in [*WAYS, "all"]}
            noise = ratio_range(*([run["rates"]["all"] for run in results[who]] for who in ("headstart", name)))
            figures.append(figure(
                f"sequential rate after ready ÷ {name}, {medium}",
                by_way["all"],
                noise=noise,
                at_least=LIMIT if name == PLAIN else None,
                detail={"ratio_by_way": by_way, **(detail if name == PLAIN else {})},
            ))
    finish("sequential", figures, args.repeats)


if __name__ == "__main__":
    main()
