#!/usr/bin/env python3
"""Sequential reads, after ready, of files that the start had opened, against a plain mount.

The plain mount is the same disk as raw ext4 on the same medium, on a loop device with the kernel's
own read-ahead for loop devices (2560 KiB on Linux 6.18) and, stated beside it, with that of a disk
(128 KiB).
"""

import csv
import io
import json

from harness import HERE, MEDIA, alternate, arguments, figure, finish, headstart, spread, start
from inputs import READY, demo, optimized, profile

LIMIT = 0.9
SCRIPT = (HERE / "inside/sequential.py").read_text()
WAYS = ["kept", "new", "mapped"]
# Few enough files that opening them is a small part of the start; together about 30 MB.
FILES = 15
ELF = b"\x7fELF"


def command(mode, paths):
    return ["python3", "-c", SCRIPT, mode, *paths]


def unread_files(files):
    """The largest programs and libraries of the root that the demo's start does not read."""
    rows = csv.DictReader(io.StringIO(headstart("inspect", files["profile"], "--csv")))
    read = {row["file"] for row in rows}
    found = {}
    for path in (files["root"] / "usr").rglob("*"):
        name = "/" + str(path.relative_to(files["root"]))
        if name in read or path.is_symlink() or not path.is_file():
            continue
        status = path.stat()
        # One inode may have several names.
        if status.st_size >= 1 << 20 and path.read_bytes()[:4] == ELF:
            found[status.st_ino] = (status.st_size, name)
    return [name for _, name in sorted(found.values(), reverse=True)[:FILES]]


def inputs():
    """The demo's files, and the image that is optimised for this start."""
    files = demo()
    paths = unread_files(files)
    recorded = profile(files["image"], "sequential", command("record", paths), ready=READY)
    return files, paths, optimized(files["image"], "sequential-optimized", recorded)


def measure(image, mode, paths, medium, flags=(), foreign=False):
    """Rates in MB/s, for each way and for all of them together."""
    summary = start(image, command(mode, paths), medium=medium, ready=READY, flags=flags, foreign=foreign)
    found = json.loads(summary["output"].splitlines()[-1])
    rates = {way: found[way]["bytes"] / found[way]["seconds"] / 1e6 for way in WAYS}
    total = sum(found[way]["bytes"] for way in WAYS)
    rates["all"] = total / sum(found[way]["seconds"] for way in WAYS) / 1e6
    libraries = found.get("libraries")
    if libraries:
        absent = libraries["bytes"] - libraries["resident_bytes"]
        rates["libraries, bytes not in memory"] = absent / libraries["seconds"] / 1e6
    return {"rates": rates, "summary": summary}


def rates_of(results):
    """Spreads of each rate over some runs."""
    return {key: spread((result["rates"][key] for result in results), 1) for key in results[0]["rates"]}


def main():
    parser = arguments(__doc__, repeats=3)
    parser.add_argument("--media", nargs="*", default=MEDIA)
    args = parser.parse_args()
    files, paths, image = inputs()
    figures = []
    for medium in args.media:
        def plain(kib, medium=medium):
            flags = ["--read-ahead", kib, "--prefetch", "off"]
            return lambda: measure(files["raw"], "open", paths, medium, flags, foreign=True)

        cases = {
            "headstart": lambda medium=medium: measure(image, "start", paths, medium),
            "plain mount, 2560 KiB": plain(2560),
            "plain mount, 128 KiB": plain(128),
        }
        results = alternate(cases, args.repeats, lambda result: f"{medium} {result['rates']['all']:.1f} MB/s")
        rates = {name: rates_of(runs) for name, runs in results.items()}
        to = {name: {way: rates["headstart"][way]["median"] / rates[name][way]["median"] for way in [*WAYS, "all"]}
              for name in cases if name != "headstart"}
        detail = {
            "mb_per_s": rates,
            "ratios": {name: {way: round(ratio, 3) for way, ratio in ratios.items()} for name, ratios in to.items()},
        }
        for name, ratios in to.items():
            limit = LIMIT if "2560" in name else None
            title = f"sequential rate after ready ÷ {name}, {medium}"
            figures.append(figure(title, ratios["all"], at_least=limit, detail=detail))
    finish("sequential", figures, args.repeats)


if __name__ == "__main__":
    main()
